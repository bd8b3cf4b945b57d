//! Denials that are remembered while there is a line, so that a flood does not ask the store each time.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use ratekeeper_core::{Decision, Outcome, Retry};
use tokio::time::Instant;

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
    asked: Asked,
    valid_for: Duration,
    wanted: Wanted,
    reason: Reason,
    decision: Decision,
}

/// When the store was asked, and what was new until then about everything that is wanted. What is new after
/// that, the answer may not know of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    at: Instant,
    came_back: u64,
    left: u64,
}

/// Counts for each line how often some of its budget has come back, and how often somebody has left it. Lines
/// share the counters: if two of them have the same one, a denial is merely forgotten too early.
#[derive(Debug)]
pub(super) struct News {
    hasher: RandomState,
    came_back: [u64; NEWS],
    left: [u64; NEWS],
}

impl Default for News {
    fn default() -> Self {
        Self { hasher: RandomState::new(), came_back: [0; NEWS], left: [0; NEWS] }
    }
}

impl News {
    fn number(&self, line: &Line) -> usize {
        self.hasher.hash_one(line) as usize % NEWS
    }

    /// Some of this line's budget has come back.
    pub(super) fn came_back(&mut self, line: &Line) {
        let number = self.number(line);
        self.came_back[number] += 1;
    }

    /// Somebody has left this line.
    pub(super) fn left(&mut self, line: &Line) {
        let number = self.number(line);
        self.left[number] += 1;
    }

    /// What is new until now about everything that is wanted. (Counts never shrink, so a sum is the same only
    /// if each of them is.)
    pub(super) fn until_now(&self, wanted: &Wanted) -> Asked {
        let sum = |counts: &[u64; NEWS]| wanted.iter().map(|(line, ..)| counts[self.number(line)]).sum();
        Asked { at: Instant::now(), came_back: sum(&self.came_back), left: sum(&self.left) }
    }
}

impl Refusal {
    pub(super) fn new(wanted: Wanted, reason: Reason, decision: &Decision, asked: Asked) -> Self {
        // After the shortest wait one of the rules has enough again, and then the answer may be another.
        let waits = decision.outcomes().filter_map(|(_, outcome)| outcome.retry()?.after());
        let valid_for = waits.fold(MOST, Duration::min);
        Self { asked, valid_for, wanted, reason, decision: decision.clone() }
    }

    /// The denial, as of now, of a request that wants this, if it still holds.
    pub(super) fn decision(&self, wanted: &Wanted, reason: Reason, news: &News) -> Option<Decision> {
        if self.reason != reason || self.wanted != *wanted {
            return None;
        }
        let now = news.until_now(wanted);
        let passed = now.at.saturating_duration_since(self.asked.at);
        // A line that somebody has left is shorter.
        let is_shorter = reason == Reason::TooLong && now.left != self.asked.left;
        let holds = passed < self.valid_for && now.came_back == self.asked.came_back && !is_shorter;
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

#[cfg(test)]
mod tests {
    use ratekeeper_core::{Key, Quota, RuleName, Timestamp};

    use super::*;

    fn line(name: &str) -> Line {
        (RuleName::new(name).unwrap(), Key::GLOBAL)
    }

    fn wanted(names: [&str; 2]) -> Wanted {
        names.map(|name| (line(name), 1, Quota::per_second(1))).into_iter().collect()
    }

    fn denied(retry: Duration) -> Decision {
        let outcome = Outcome::denied(1, 0, retry, retry, Retry::After(retry));
        Decision::one(Timestamp::from_secs(1), RuleName::new("one").unwrap(), outcome)
    }

    /// The answer does not know of what comes back while the store decides.
    #[tokio::test(start_paused = true)]
    async fn what_is_new_after_the_store_was_asked_ends_a_denial() {
        for reason in [Reason::Regardless, Reason::TooLong] {
            let (mut news, wanted) = (News::default(), wanted(["one", "other"]));
            let asked = news.until_now(&wanted);
            let refusal = Refusal::new(wanted.clone(), reason, &denied(MOST), asked);
            assert!(refusal.decision(&wanted, reason, &news).is_some());
            news.left(&line("other"));
            let is_shorter = reason == Reason::TooLong;
            assert_eq!(refusal.decision(&wanted, reason, &news).is_none(), is_shorter);
            news.came_back(&line("other"));
            assert!(refusal.decision(&wanted, reason, &news).is_none());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_denial_is_told_as_of_now_and_ends_with_its_wait() {
        let (news, wanted) = (News::default(), wanted(["one", "other"]));
        let wait = Duration::from_millis(300);
        let refusal =
            Refusal::new(wanted.clone(), Reason::Regardless, &denied(wait), news.until_now(&wanted));
        tokio::time::advance(wait / 3).await;
        let told = refusal.decision(&wanted, Reason::Regardless, &news).unwrap();
        assert_eq!(told.retry(), Some(Retry::After(wait / 3 * 2)));
        assert_eq!(told.at(), Timestamp::from_secs(1).saturating_add(wait / 3));
        assert!(refusal.decision(&wanted, Reason::TooLong, &news).is_none());
        tokio::time::advance(wait / 3 * 2).await;
        assert!(refusal.decision(&wanted, Reason::Regardless, &news).is_none());
    }
}
