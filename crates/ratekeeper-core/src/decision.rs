//! A store's answer: an [`Outcome`] for each rule, and a [`Decision`] for the request.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::{Receipt, RuleName, Timestamp};

/// One rule's answer to one charge.
///
/// For a charge that was made, `remaining` and the waits describe the budget after it. For a denied charge
/// and for a peek they describe the untouched budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    limit: u32,
    remaining: u32,
    reset_micros: u64,
    refill_micros: u64,
    /// The delay if admitted; if denied, [`DENIED`] plus the wait, or [`NEVER`]. Packed into one word, so
    /// that an outcome is four words and cheap to pass around.
    verdict: u64,
}

/// Set in the verdict of a denial.
const DENIED: u64 = 1 << 63;
/// Denied forever.
const NEVER: u64 = u64::MAX;

/// The verdict of an admission after a delay.
const fn admitted_after(micros: u64) -> u64 {
    if micros < DENIED { micros } else { DENIED - 1 }
}

/// The verdict of a denial for a while; forever if that is longer than the verdict can hold.
const fn denied_for(micros: u64) -> u64 {
    DENIED | if micros < NEVER - DENIED { micros } else { NEVER - DENIED }
}

/// When a denied charge could be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// After exactly this long, if nobody else charges the key in the meantime.
    After(Duration),
    /// Never: the cost is larger than the quota can ever hold.
    Never,
}

impl Retry {
    /// How long to wait, or `None` for never.
    #[must_use]
    pub const fn after(self) -> Option<Duration> {
        match self {
            Self::After(wait) => Some(wait),
            Self::Never => None,
        }
    }

    fn later(self, other: Self) -> Self {
        match (self, other) {
            (Self::After(a), Self::After(b)) => Self::After(a.max(b)),
            _ => Self::Never,
        }
    }
}

/// The state of a budget that goes into an [`Outcome`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) limit: u32,
    pub(crate) remaining: u32,
    pub(crate) reset_micros: u64,
    pub(crate) refill_micros: u64,
}

impl Outcome {
    /// An admitted charge, to be held back for `delay` (zero except for leaky buckets and reservations).
    ///
    /// For stores: `limit` is the most the quota can hold, `reset_after` how long until the budget is full,
    /// `refill_after` how long until `remaining` next grows.
    #[must_use]
    pub const fn admitted(
        limit: u32,
        remaining: u32,
        reset_after: Duration,
        refill_after: Duration,
        delay: Duration,
    ) -> Self {
        Self {
            limit,
            remaining,
            reset_micros: crate::time::micros_ceil(reset_after),
            refill_micros: crate::time::micros_ceil(refill_after),
            verdict: admitted_after(crate::time::micros_ceil(delay)),
        }
    }

    /// A denied charge. The figures are as for [`Outcome::admitted`]. A wait of 2⁶³ microseconds or more
    /// counts as never.
    #[must_use]
    pub const fn denied(
        limit: u32,
        remaining: u32,
        reset_after: Duration,
        refill_after: Duration,
        retry: Retry,
    ) -> Self {
        Self {
            limit,
            remaining,
            reset_micros: crate::time::micros_ceil(reset_after),
            refill_micros: crate::time::micros_ceil(refill_after),
            verdict: match retry {
                Retry::After(wait) => denied_for(crate::time::micros_ceil(wait)),
                Retry::Never => NEVER,
            },
        }
    }

    #[inline]
    pub(crate) const fn admit(budget: Budget, delay_micros: u64) -> Self {
        Self::new(budget, admitted_after(delay_micros))
    }

    pub(crate) const fn deny(budget: Budget, retry_micros: u64) -> Self {
        Self::new(budget, denied_for(retry_micros))
    }

    pub(crate) const fn never(budget: Budget) -> Self {
        Self::new(budget, NEVER)
    }

    /// What is answered for a budget that is not charged; `retry` is when the cost would fit.
    pub(crate) fn of(budget: Budget, cost: u32, retry: impl FnOnce() -> u64) -> Self {
        if cost > budget.limit {
            Self::never(budget)
        } else if cost <= budget.remaining {
            Self::admit(budget, 0)
        } else {
            Self::deny(budget, retry())
        }
    }

    #[inline]
    const fn new(budget: Budget, verdict: u64) -> Self {
        let Budget { limit, remaining, reset_micros, refill_micros } = budget;
        Self { limit, remaining, reset_micros, refill_micros, verdict }
    }

    /// The same budget with the verdict of another outcome.
    pub(crate) const fn with_verdict_of(self, other: Self) -> Self {
        Self { verdict: other.verdict, ..self }
    }

    /// The same budget, for a charge that never fits.
    pub(crate) const fn at_no_time(self) -> Self {
        Self { verdict: NEVER, ..self }
    }

    /// Whether the rule admits the charge.
    #[inline]
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        self.verdict < DENIED
    }

    /// The most the quota can hold: a bucket's burst or capacity, a window's limit.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// How much is left. Never more than [`limit`](Self::limit).
    #[must_use]
    pub const fn remaining(&self) -> u32 {
        self.remaining
    }

    /// How long until the budget is full again, if nobody charges it.
    #[must_use]
    pub const fn reset_after(&self) -> Duration {
        Duration::from_micros(self.reset_micros)
    }

    /// When the budget is full again, if this was decided `at` this time.
    #[must_use]
    pub const fn reset_at(&self, at: Timestamp) -> Timestamp {
        Timestamp::from_micros(at.as_micros().saturating_add(self.reset_micros))
    }

    /// How long until [`remaining`](Self::remaining) next grows, if nobody charges the budget; zero if it is
    /// full.
    #[must_use]
    pub const fn refill_after(&self) -> Duration {
        Duration::from_micros(self.refill_micros)
    }

    /// How long an admitted request is to be held back: until its turn in a leaky bucket, or until the tokens
    /// of a [reservation](crate::Charge::wait_up_to) are there. Zero otherwise, and zero if denied.
    #[must_use]
    pub const fn delay(&self) -> Duration {
        Duration::from_micros(if self.is_admitted() { self.verdict } else { 0 })
    }

    /// Whether an admitted request is to be held back.
    #[inline]
    #[must_use]
    pub const fn is_delayed(&self) -> bool {
        self.is_admitted() && self.verdict > 0
    }

    /// When a denied charge could be admitted; `None` if it was admitted.
    #[must_use]
    pub const fn retry(&self) -> Option<Retry> {
        match self.verdict {
            0..DENIED => None,
            NEVER => Some(Retry::Never),
            verdict => Some(Retry::After(Duration::from_micros(verdict - DENIED))),
        }
    }
}

/// The store's answer for all charges of one request.
///
/// Admitted means that every rule admitted its charge and all charges were made. Denied means that none was
/// made, whatever the individual rules answered.
///
/// It is small, because most requests have one rule: the outcome of one rule is stored in place, those of
/// several are shared by all clones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    at: Timestamp,
    outcomes: Outcomes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcomes {
    One((RuleName, Outcome)),
    /// `None` if there are none.
    Several(Option<Arc<Several>>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Several {
    outcomes: SmallVec<[(RuleName, Outcome); 4]>,
    /// When each outcome was decided, if not all at the same moment; those without an entry were decided at
    /// the time of the decision. Only stores that ask several servers set it.
    moments: Vec<Timestamp>,
}

impl Decision {
    /// A decision without any charge, which is admitted.
    #[inline]
    #[must_use]
    pub const fn new(at: Timestamp) -> Self {
        Self { at, outcomes: Outcomes::Several(None) }
    }

    /// A decision by one rule.
    #[must_use]
    pub const fn one(at: Timestamp, rule: RuleName, outcome: Outcome) -> Self {
        Self { at, outcomes: Outcomes::One((rule, outcome)) }
    }

    /// Sets when it was decided, and returns the outcomes to add to.
    #[inline]
    pub(crate) fn fill(&mut self, at: Timestamp) -> &mut SmallVec<[(RuleName, Outcome); 4]> {
        self.at = at;
        &mut self.several_mut().outcomes
    }

    /// A decision by several rules.
    pub(crate) fn several(at: Timestamp, outcomes: &[(RuleName, Outcome)]) -> Self {
        let several = Several { outcomes: SmallVec::from_slice(outcomes), moments: Vec::new() };
        Self { at, outcomes: Outcomes::Several(Some(Arc::new(several))) }
    }

    /// Adds one rule's outcome. A denied outcome makes the whole decision a denial.
    pub fn push(&mut self, rule: RuleName, outcome: Outcome) {
        match &self.outcomes {
            Outcomes::Several(None) => self.outcomes = Outcomes::One((rule, outcome)),
            _ => self.several_mut().outcomes.push((rule, outcome)),
        }
    }

    /// Adds the outcome of a rule that was asked separately and decided at its own moment.
    ///
    /// For stores that ask several servers. The latest of the moments is that of the decision.
    pub fn push_at(&mut self, rule: RuleName, outcome: Outcome, at: Timestamp) {
        if at == self.at && self.moments().is_empty() {
            return self.push(rule, outcome);
        }
        let latest = self.at;
        let several = self.several_mut();
        // Outcomes that were added without a moment were decided at the latest moment known then.
        several.moments.resize(several.outcomes.len(), latest);
        several.moments.push(at);
        several.outcomes.push((rule, outcome));
        self.at = latest.max(at);
    }

    fn several_mut(&mut self) -> &mut Several {
        if let Outcomes::One(one) = self.outcomes {
            *self = Self::several(self.at, &[one]);
        }
        match &mut self.outcomes {
            Outcomes::Several(several) => Arc::make_mut(several.get_or_insert_default()),
            Outcomes::One(_) => unreachable!("it was replaced above"),
        }
    }

    #[inline]
    fn as_slice(&self) -> &[(RuleName, Outcome)] {
        match &self.outcomes {
            Outcomes::One(one) => std::slice::from_ref(one),
            Outcomes::Several(None) => &[],
            Outcomes::Several(Some(several)) => &several.outcomes,
        }
    }

    fn moments(&self) -> &[Timestamp] {
        match &self.outcomes {
            Outcomes::Several(Some(several)) => &several.moments,
            _ => &[],
        }
    }

    /// What is needed to refund each charge of an admitted decision, in the order of the charges. Empty if it
    /// was denied.
    pub fn receipts(&self) -> impl Iterator<Item = (RuleName, Receipt)> {
        let (moments, is_admitted) = (self.moments(), self.is_admitted());
        let outcomes = self.as_slice().iter().filter(move |_| is_admitted).enumerate();
        outcomes.map(move |(i, (rule, outcome))| {
            let at = moments.get(i).copied().unwrap_or(self.at);
            (*rule, Receipt::new(at, outcome.reset_after()).delay(outcome.delay()))
        })
    }

    /// When the store decided, on the store's clock; if several servers decided, the latest of their times.
    #[must_use]
    #[inline]
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// Whether the request may proceed.
    #[must_use]
    #[inline]
    pub fn is_admitted(&self) -> bool {
        match &self.outcomes {
            Outcomes::One((_, only)) => only.is_admitted(),
            Outcomes::Several(_) => self.as_slice().iter().all(|(_, outcome)| outcome.is_admitted()),
        }
    }

    /// Each rule's outcome, in the order of the charges.
    #[inline]
    pub fn outcomes(&self) -> impl ExactSizeIterator<Item = (RuleName, &Outcome)> + Clone {
        self.as_slice().iter().map(|(rule, outcome)| (*rule, outcome))
    }

    /// The outcome of the rule with this name, if it was asked.
    #[must_use]
    pub fn outcome(&self, rule: &str) -> Option<&Outcome> {
        self.as_slice().iter().find(|(name, _)| name.as_str() == rule).map(|(_, outcome)| outcome)
    }

    /// The names of the rules that deny.
    pub fn denied_by(&self) -> impl Iterator<Item = RuleName> + Clone {
        self.as_slice().iter().filter(|(_, outcome)| !outcome.is_admitted()).map(|(rule, _)| *rule)
    }

    /// How long an admitted request is to be held back: the longest delay of its rules.
    #[must_use]
    pub fn delay(&self) -> Duration {
        if !self.is_admitted() {
            return Duration::ZERO;
        }
        self.as_slice().iter().map(|(_, outcome)| outcome.delay()).max().unwrap_or_default()
    }

    /// Whether an admitted request is to be held back.
    #[inline]
    #[must_use]
    pub fn is_delayed(&self) -> bool {
        self.is_admitted() && self.as_slice().iter().any(|(_, outcome)| outcome.is_delayed())
    }

    /// When a denied request could be admitted: when the last of the denying rules would admit it. `None` if
    /// it was admitted.
    #[must_use]
    pub fn retry(&self) -> Option<Retry> {
        match self.as_slice() {
            [(_, only)] => only.retry(),
            several => several.iter().filter_map(|(_, outcome)| outcome.retry()).reduce(Retry::later),
        }
    }

    /// The rule that matters most to the caller.
    ///
    /// Of the rules that deny, it is the one with the longest wait. If none denies, it is the one with the
    /// least left, and among equals the one that resets last.
    #[must_use]
    #[inline]
    pub fn tightest(&self) -> Option<(RuleName, &Outcome)> {
        match self.as_slice() {
            [(rule, only)] => Some((*rule, only)),
            _ => self.tightest_of_several(),
        }
    }

    fn tightest_of_several(&self) -> Option<(RuleName, &Outcome)> {
        self.outcomes().min_by_key(|(_, outcome)| {
            // Denials come before admissions, and long waits before short ones. Admissions are equal,
            // whatever their delay.
            let denied = if outcome.is_admitted() { 0 } else { outcome.verdict };
            (!denied, outcome.remaining, !outcome.reset_micros)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(remaining: u32, reset: u64, retry: Option<u64>) -> Outcome {
        let budget = Budget { limit: 100, remaining, reset_micros: reset, refill_micros: reset };
        retry.map_or(Outcome::admit(budget, 0), |wait| Outcome::deny(budget, wait))
    }

    fn decision(outcomes: &[(&str, Outcome)]) -> Decision {
        let mut decision = Decision::new(Timestamp::UNIX_EPOCH);
        for (name, outcome) in outcomes {
            decision.push(RuleName::new(name).unwrap(), *outcome);
        }
        decision
    }

    #[test]
    fn the_tightest_rule_is_the_one_with_least_left_then_the_one_that_resets_last() {
        let decision = decision(&[
            ("a", outcome(7, 10, None)),
            ("b", outcome(3, 10, None)),
            ("c", outcome(3, 20, None)),
        ]);
        assert!(decision.is_admitted());
        assert_eq!(decision.tightest().unwrap().0.as_str(), "c");
    }

    #[test]
    fn a_denying_rule_is_tighter_than_an_empty_one_and_never_is_the_longest_wait() {
        let mut rules = vec![
            ("empty", outcome(0, 90, None)),
            ("soon", outcome(2, 10, Some(5))),
            ("late", outcome(4, 10, Some(9))),
        ];
        let denied = decision(&rules);
        assert!(!denied.is_admitted());
        assert_eq!(denied.tightest().unwrap().0.as_str(), "late");
        assert_eq!(denied.retry(), Some(Retry::After(Duration::from_micros(9))));
        assert_eq!(denied.denied_by().map(RuleName::as_str).collect::<Vec<_>>(), ["soon", "late"]);

        rules.push(("never", outcome(4, 10, Some(u64::MAX))));
        assert_eq!(decision(&rules).tightest().unwrap().0.as_str(), "never");
        assert_eq!(decision(&rules).retry(), Some(Retry::Never));
    }

    #[test]
    fn a_receipt_is_of_the_moment_at_which_its_rule_decided() {
        let at = Timestamp::from_micros;
        let names = ["a", "b", "c", "d"].map(|name| RuleName::new(name).unwrap());
        let mut decision = Decision::new(at(7));
        decision.push_at(names[0], outcome(3, 10, None), at(7));
        decision.push_at(names[1], outcome(3, 10, None), at(5));
        decision.push_at(names[2], outcome(3, 10, None), at(9));
        decision.push(names[3], outcome(3, 20, None));
        assert_eq!(decision.at(), at(9));
        let expected = [(7, 17), (5, 15), (9, 19), (9, 29)];
        let moments = |receipt: Receipt| (receipt.at().as_micros(), receipt.reset_at().as_micros());
        for (name, expected) in names.into_iter().zip(expected) {
            assert_eq!(Receipt::of(&decision, name).map(moments), Some(expected));
        }
        assert!(
            decision.clone() == decision && decision.receipts().map(|(_, one)| moments(one)).eq(expected)
        );
        decision.push(names[0], outcome(0, 10, Some(1)));
        assert_eq!(decision.receipts().count(), 0, "a denied decision has charged nothing");
    }

    #[test]
    fn a_decision_without_rules_admits_at_once() {
        let decision = decision(&[]);
        assert!(decision.is_admitted());
        assert_eq!((decision.delay(), decision.retry()), (Duration::ZERO, None));
        assert!(decision.tightest().is_none());
    }
}
