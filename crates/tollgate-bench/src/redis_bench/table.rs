//! Compares, and shows it as Markdown.

use std::sync::Arc;
use std::time::Duration;

use super::{Host, Load, Measured, Paced, Subject, latency, measure, median, paced};

/// One who is compared.
#[derive(Clone)]
pub struct Contestant {
    /// What it is called.
    pub name: String,
    /// What is asked.
    pub subject: Subject,
    /// Whose time it takes.
    pub host: Host,
}

/// Those who are compared. The first is what the others are measured by.
#[derive(Default)]
pub struct Contest {
    contestants: Vec<Contestant>,
}

/// How many times each is asked for a table, besides once to warm up.
const ROUNDS: usize = 5;

impl Contest {
    /// Nobody yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, subject: Subject, host: &Host) -> Self {
        self.contestants.push(Contestant { name: name.into(), subject, host: host.clone() });
        self
    }

    /// Shows how fast they are, and what that takes of the server.
    pub async fn rates(&self, title: &str, load: &Load) {
        let columns = [("a second", 0), ("server CPU each, µs", 2)];
        let measure = async |one: &Contestant| {
            let Measured { rate, cpu } = measure(&one.subject, &one.host, load).await;
            [rate, cpu]
        };
        self.show(title, columns, measure).await;
    }

    /// Shows how long one takes that asks alone.
    pub async fn latencies(&self, title: &str, keys: &Arc<Vec<String>>, total: usize) {
        let measure = async |one: &Contestant| [latency(&one.subject, keys, total).await];
        self.show(title, [("p50, µs", 1)], measure).await;
    }

    /// Shows how long one takes that asks so often, and what that takes of its own process.
    pub async fn paces(&self, title: &str, keys: &Arc<Vec<String>>, total: usize, every: Duration) {
        let columns = [("p50, µs", 1), ("own CPU each, µs", 1)];
        let measure = async |one: &Contestant| {
            let Paced { p50, cpu } = paced(&one.subject, keys, total, every).await;
            [p50, cpu]
        };
        self.show(title, columns, measure).await;
    }

    /// Measures all in turn, and shows the median of each number, with so many decimals, and of its ratios to the first one's.
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
