use std::time::Duration;

use super::Counter;
use crate::{Algorithm, MINUTE, Outcome, Quota, Receipt, Retry, SECOND, Timestamp};

mod change;
mod debit;
mod refund;
mod retry;
mod time;
mod worked_figures;

/// A minute's edge, far from the epoch.
const START: Timestamp = Timestamp::from_secs(1_700_000_040);
const MICRO: Duration = Duration::from_micros(1);

/// One quota of each algorithm.
fn each(limit: u32, period: Duration) -> [Quota; 5] {
    [
        Quota::token_bucket(limit, period),
        Quota::fixed_window(limit, period),
        Quota::sliding_window(limit, period),
        Quota::sliding_log(limit, period),
        Quota::leaky_bucket(limit, period),
    ]
}

/// A counter with its own quota and clock.
#[derive(Clone)]
struct Subject {
    quota: Quota,
    counter: Counter,
    now: Timestamp,
}

impl Subject {
    fn new(quota: Quota) -> Self {
        Self { quota, counter: Counter::new(&quota), now: START }
    }

    fn at(mut self, since_start: Duration) -> Self {
        self.now = START.saturating_add(since_start);
        self
    }

    fn charge(&mut self, cost: u32) -> Outcome {
        self.counter.charge(&self.quota, cost, self.now)
    }

    fn peek(&self, cost: u32) -> Outcome {
        self.counter.peek(&self.quota, cost, self.now)
    }

    fn refund(&mut self, cost: u32, receipt: Option<Receipt>) {
        self.counter.refund(cost, receipt, self.now);
    }

    fn debit(&mut self, cost: u32) {
        self.counter.debit(&self.quota, cost, None, self.now);
    }

    /// Charges `cost`, which must fit, and returns the receipt.
    fn take(&mut self, cost: u32) -> Receipt {
        let outcome = self.charge(cost);
        assert!(outcome.is_admitted(), "{} {outcome:?}", self.quota);
        Receipt::new(self.now, outcome.reset_after()).delay(outcome.delay())
    }

    /// Charges one at a time until one is denied, and returns how many were not.
    fn drain(&mut self) -> u32 {
        (0..).take_while(|_| self.charge(1).is_admitted()).count() as u32
    }

    fn remaining(&self) -> u32 {
        self.peek(1).remaining()
    }

    fn advance(&mut self, by: Duration) {
        self.now = self.now.saturating_add(by);
    }

    fn step_back(&mut self, by: Duration) {
        self.now = self.now.saturating_sub(by);
    }
}

fn wait(outcome: &Outcome) -> Duration {
    outcome.retry().and_then(Retry::after).unwrap_or_else(|| panic!("not a wait: {outcome:?}"))
}
