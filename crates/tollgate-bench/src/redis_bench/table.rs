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

    fn name(&self, i: usize) -> &str {
        &self.contestants[i].name
    }

    /// Shows how fast they are, and what that takes of the server.
    pub async fn rates(&self, title: &str, load: &Load) {
        let mut rounds: Vec<Vec<Measured>> = Vec::new();
        for _ in 0..=ROUNDS {
            let mut round = Vec::new();
            for Contestant { subject, host, .. } in &self.contestants {
                round.push(measure(subject, host, load).await);
            }
            rounds.push(round);
        }
        let first = self.name(0);
        println!(
            "| {title} | a second | of {first} | server CPU each, µs | of {first} |\n|---|---|---|---|---|"
        );
        for i in 0..self.contestants.len() {
            let of = |value: &dyn Fn(&[Measured]) -> f64| {
                median(rounds.iter().skip(1).map(|round| value(round)).collect())
            };
            println!(
                "| {} | {:.0} | {:.2}× | {:.2} | {:.2}× |",
                self.name(i),
                of(&|round| round[i].rate),
                of(&|round| round[i].rate / round[0].rate),
                of(&|round| round[i].cpu),
                of(&|round| round[i].cpu / round[0].cpu),
            );
        }
        println!();
    }

    /// Shows how long one takes that asks alone.
    pub async fn latencies(&self, title: &str, keys: &Arc<Vec<String>>, total: usize) {
        let mut rounds: Vec<Vec<f64>> = Vec::new();
        for _ in 0..=ROUNDS {
            let mut round = Vec::new();
            for Contestant { subject, .. } in &self.contestants {
                round.push(latency(subject, keys, total).await);
            }
            rounds.push(round);
        }
        println!("| {title} | p50, µs | of {} |\n|---|---|---|", self.name(0));
        for i in 0..self.contestants.len() {
            let of = |value: &dyn Fn(&[f64]) -> f64| {
                median(rounds.iter().skip(1).map(|round| value(round)).collect())
            };
            println!(
                "| {} | {:.1} | {:.2}× |",
                self.name(i),
                of(&|round| round[i]),
                of(&|round| round[i] / round[0])
            );
        }
        println!();
    }

    /// Shows how long one takes that asks so often, and what that takes of its own process.
    pub async fn paces(&self, title: &str, keys: &Arc<Vec<String>>, total: usize, every: Duration) {
        let mut rounds: Vec<Vec<Paced>> = Vec::new();
        for _ in 0..=ROUNDS {
            let mut round = Vec::new();
            for Contestant { subject, .. } in &self.contestants {
                round.push(paced(subject, keys, total, every).await);
            }
            rounds.push(round);
        }
        let first = self.name(0);
        println!("| {title} | p50, µs | of {first} | own CPU each, µs | of {first} |\n|---|---|---|---|---|");
        for i in 0..self.contestants.len() {
            let of = |value: &dyn Fn(&[Paced]) -> f64| {
                median(rounds.iter().skip(1).map(|round| value(round)).collect())
            };
            println!(
                "| {} | {:.1} | {:.2}× | {:.1} | {:.2}× |",
                self.name(i),
                of(&|round| round[i].p50),
                of(&|round| round[i].p50 / round[0].p50),
                of(&|round| round[i].cpu),
                of(&|round| round[i].cpu / round[0].cpu),
            );
        }
        println!();
    }
}
