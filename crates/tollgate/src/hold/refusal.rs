//! Denials that are remembered while there is a line, so that a flood does not ask the store each time.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::{Decision, Outcome, Retry};

use super::room::{Line, Wanted};

/// For how long a denial is remembered at most.
const MOST: Duration = Duration::from_secs(1);

/// How many counters of news there are.
const NEWS: usize = 64;

/// Why a request is denied immediately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Too many are ahead.
    TooLong,
    /// It would be denied even if nobody were ahead.
    Regardless,
}

/// The denial that a request got, for those that want the same.
#[derive(Debug)]
pub(super) struct Refusal {
    at: Instant,
    valid_for: Duration,
    /// The news of everything that is wanted, at that time.
    news: u64,
    wanted: Wanted,
    reason: Reason,
    decision: Decision,
}

/// Counts for each line how often some of its budget has come back. Lines share the counters: if two of them
/// have the same one, a denial is merely forgotten too early.
#[derive(Debug)]
pub(super) struct News {
    hasher: RandomState,
    counts: [u64; NEWS],
}

impl Default for News {
    fn default() -> Self {
        Self { hasher: RandomState::new(), counts: [0; NEWS] }
    }
}

impl News {
    fn number(&self, line: &Line) -> usize {
        self.hasher.hash_one(line) as usize % NEWS
    }

    /// Some of this line's budget has come back.
    pub(super) fn add(&mut self, line: &Line) {
        let number = self.number(line);
        self.counts[number] += 1;
    }

    /// A number that changes whenever some of the budget comes back that is wanted. (Counts never shrink, so
    /// their sum is the same only if each of them is.)
    fn of(&self, wanted: &Wanted) -> u64 {
        wanted.iter().map(|(line, ..)| self.counts[self.number(line)]).sum()
    }
}

impl Refusal {
    pub(super) fn new(wanted: Wanted, reason: Reason, decision: &Decision, news: &News) -> Self {
        // After the shortest wait one of the rules has enough again, and then the answer may be another.
        let waits = decision.outcomes().filter_map(|(_, outcome)| outcome.retry()?.after());
        let valid_for = waits.fold(MOST, Duration::min);
        Self {
            at: Instant::now(),
            valid_for,
            news: news.of(&wanted),
            wanted,
            reason,
            decision: decision.clone(),
        }
    }

    pub(super) const fn reason(&self) -> Reason {
        self.reason
    }

    /// The denial, as of now, of a request that wants this, if it still holds.
    pub(super) fn decision(&self, wanted: &Wanted, reason: Reason, news: &News) -> Option<Decision> {
        let passed = self.at.elapsed();
        let holds = self.reason == reason
            && passed < self.valid_for
            && self.wanted == *wanted
            && self.news == news.of(wanted);
        holds.then(|| later(&self.decision, passed))
    }
}

/// A decision after this much time has passed.
fn later(decision: &Decision, passed: Duration) -> Decision {
    let mut later = Decision::new(decision.at().saturating_add(passed));
    let left = |wait: Duration| wait.saturating_sub(passed);
    for (rule, outcome) in decision.outcomes() {
        let (limit, remaining) = (outcome.limit(), outcome.remaining());
        let (reset, refill) = (left(outcome.reset_after()), left(outcome.refill_after()));
        let outcome = match outcome.retry() {
            None => Outcome::admitted(limit, remaining, reset, refill, left(outcome.delay())),
            Some(Retry::Never) => Outcome::denied(limit, remaining, reset, refill, Retry::Never),
            Some(Retry::After(wait)) => {
                Outcome::denied(limit, remaining, reset, refill, Retry::After(left(wait)))
            }
        };
        later.push(rule, outcome);
    }
    later
}
