//! Compares contestants, and prints the result as Markdown.

use std::sync::Arc;
use std::time::Duration;

use super::{Host, Load, Measured, Paced, Subject, latency, measure, median, paced};

/// One contestant.
#[derive(Clone)]
pub struct Contestant {
    /// Its name.
    pub name: String,
    /// What is measured.
    pub subject: Subject,
    /// Whose processor time it uses.
    pub host: Host,
}

/// The contestants. The others are compared with the first.
#[derive(Default)]
pub struct Contest {
    contestants: Vec<Contestant>,
}

/// How often each is measured for a table, besides once to warm up.
const ROUNDS: usize = 5;

impl Contest {
    /// A contest without contestants.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a contestant.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, subject: Subject, host: &Host) -> Self {
        self.contestants.push(Contestant { name: name.into(), subject, host: host.clone() });
        self
    }

    /// Prints how fast they are, and how much of the server's time that takes.
    pub async fn rates(&self, title: &str, load: &Load) {
        let columns = [("a second", 0), ("server CPU each, µs", 2)];
        let measure = async |one: &Contestant| {
            let Measured { rate, cpu } = measure(&one.subject, &one.host, load).await;
            [rate, cpu]
        };
        self.show(title, columns, measure).await;
    }

    /// Prints how long a request takes when only one is in flight.
    pub async fn latencies(&self, title: &str, keys: &Arc<Vec<String>>, total: usize) {
        let measure = async |one: &Contestant| [latency(&one.subject, keys, total).await];
        self.show(title, [("p50, µs", 1)], measure).await;
    }

    /// Prints how long a request takes at this pace, and how much of its own process's time.
    pub async fn paces(&self, title: &str, keys: &Arc<Vec<String>>, total: usize, every: Duration) {
        let columns = [("p50, µs", 1), ("own CPU each, µs", 1)];
        let measure = async |one: &Contestant| {
            let Paced { p50, cpu } = paced(&one.subject, keys, total, every).await;
            [p50, cpu]
        };
        self.show(title, columns, measure).await;
    }

    /// Measures all in turn, and prints the median of each number, with the given decimals, and of its ratio
    /// to the first one's.
    async fn show<const N: usize>(
        &self,
        title: &str,
        columns: [(&str, usize); N],
        measure: impl AsyncFn(&Contestant) -> [f64; N],
    ) {
        let Some(first) = self.contestants.first() else { return };
        let mut rounds = Vec::new();
        for _ in 0..=ROUNDS {
            let mut round = Vec::new();
            for contestant in &self.contestants {
                round.push(measure(contestant).await);
            }
            rounds.push(round);
        }
        let rounds = &rounds[1..];
        let titles = columns.map(|(column, _)| format!(" {column} | of {} |", first.name));
        println!("| {title} |{}\n|---|{}", titles.concat(), "---|---|".repeat(N));
        for (i, contestant) in self.contestants.iter().enumerate() {
            print!("| {} |", contestant.name);
            for (n, (_, decimals)) in columns.into_iter().enumerate() {
                let value = median(rounds.iter().map(|round| round[i][n]).collect());
                let ratio = median(rounds.iter().map(|round| round[i][n] / round[0][n]).collect());
                print!(" {value:.decimals$} | {ratio:.2}× |");
            }
            println!();
        }
        println!();
    }
}
