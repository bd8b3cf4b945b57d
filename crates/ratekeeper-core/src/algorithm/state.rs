//! What every algorithm can do with its state.

use super::Ask;
use super::gcra::Bucket;
use super::log::Log;
use super::window::{FixedWindow, SlidingWindow};
use crate::{Algorithm, Outcome, Quota, Receipt, Timestamp};

/// The state of a key under one quota. Its default is that of a key that was never charged.
pub(crate) trait Count {
    /// What a charge would answer, with the budget as it is now.
    fn peek(&self, quota: &Quota, ask: Ask, now: Timestamp) -> Outcome;

    /// Takes `cost`, whether or not it fits.
    fn debit(&mut self, quota: &Quota, cost: u32, receipt: Option<Receipt>, now: Timestamp);

    /// Takes `cost`, which was admitted under another quota, up to what this one holds.
    fn count(&mut self, quota: &Quota, cost: u32, now: Timestamp);

    /// Gives `cost` back; see [`Refund`](crate::Refund).
    fn refund(&mut self, quota: &Quota, cost: u32, receipt: Option<Receipt>, now: Timestamp);

    /// Remembers that the clock was set back, and changes nothing else.
    fn settle(&mut self, quota: &Quota, now: Timestamp);

    /// Moves a state that was counted at the same rate to now, and cuts it to what this quota holds.
    fn cut(&mut self, quota: &Quota, now: Timestamp);

    /// How many units are used.
    fn used(&self, quota: &Quota, now: Timestamp) -> f64;

    /// The microsecond at which it no longer differs from the state of a key that was never charged.
    fn expires_at(&self, quota: &Quota) -> u64;

    /// Takes the cost if it fits. A denial changes nothing, nor does a cost of zero.
    fn charge(&mut self, quota: &Quota, ask: Ask, now: Timestamp) -> Outcome {
        let outcome = self.peek(quota, ask, now);
        if !outcome.is_admitted() || ask.cost == 0 {
            self.settle(quota, now);
            return outcome;
        }
        self.debit(quota, ask.cost, None, now);
        self.peek(quota, Ask::from(0), now).with_verdict_of(outcome)
    }
}

/// The state of any algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Bucket(Bucket),
    FixedWindow(FixedWindow),
    SlidingWindow(SlidingWindow),
    Log(Log),
}

impl State {
    /// The state of a key that was never charged under this quota.
    pub(crate) fn new(quota: &Quota) -> Self {
        match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => Self::Bucket(Bucket::default()),
            Algorithm::FixedWindow => Self::FixedWindow(FixedWindow::default()),
            Algorithm::SlidingWindow => Self::SlidingWindow(SlidingWindow::default()),
            Algorithm::SlidingLog => Self::Log(Log::default()),
        }
    }

    pub(crate) fn get(&self) -> &dyn Count {
        match self {
            Self::Bucket(state) => state,
            Self::FixedWindow(state) => state,
            Self::SlidingWindow(state) => state,
            Self::Log(state) => state,
        }
    }

    pub(crate) fn get_mut(&mut self) -> &mut dyn Count {
        match self {
            Self::Bucket(state) => state,
            Self::FixedWindow(state) => state,
            Self::SlidingWindow(state) => state,
            Self::Log(state) => state,
        }
    }
}
