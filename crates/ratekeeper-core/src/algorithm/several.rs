//! Several charges, one decision.

use super::Counter;
use crate::{Charge, Decision, Outcome, Timestamp};

/// Makes all charges of a request, or none.
///
/// `places` gives the index of the counter for each charge. A counter that is charged twice is charged the
/// sum. This is for stores that hold their counters as [`Counter`]s.
///
/// ```
/// use ratekeeper_core::algorithm::{Counter, decide};
/// use ratekeeper_core::{Charge, Quota, RuleName, Timestamp};
///
/// let (wide, narrow) = (Quota::per_minute(100), Quota::per_second(1));
/// let charges = [
///     Charge::new(RuleName::new("wide")?, "alice", &wide),
///     Charge::new(RuleName::new("narrow")?, "alice", &narrow),
/// ];
/// let mut counters = [Counter::new(&wide), Counter::new(&narrow)];
/// let now = Timestamp::from_secs(1_000);
/// assert!(decide(&mut counters, &[0, 1], &charges, now).is_admitted());
///
/// let denied = decide(&mut counters, &[0, 1], &charges, now);
/// assert!(!denied.is_admitted());
/// assert_eq!(denied.outcome("wide").unwrap().remaining(), 99);
/// # Ok::<(), ratekeeper_core::RuleNameError>(())
/// ```
///
/// # Panics
///
/// If a place is not the index of a counter.
pub fn decide(
    counters: &mut [Counter],
    places: &[usize],
    charges: &[Charge<'_>],
    now: Timestamp,
) -> Decision {
    let peeked = peek(counters, places, charges, now);
    let mut decision = Decision::new(now);
    if peeked.is_admitted() {
        for (place, charge) in places.iter().zip(charges) {
            decision.push(charge.rule, counters[*place].charge(charge.quota, charge.cost, now));
        }
        return decision;
    }
    for (place, charge) in places.iter().zip(charges) {
        counters[*place].settle(charge.quota, now);
    }
    peeked
}

/// What [`decide`] would answer, without changing anything.
///
/// # Panics
///
/// If a place is not the index of a counter.
#[must_use]
pub fn peek(counters: &[Counter], places: &[usize], charges: &[Charge<'_>], now: Timestamp) -> Decision {
    let mut decision = Decision::new(now);
    for (i, (place, charge)) in places.iter().zip(charges).enumerate() {
        // Earlier charges of this request to the same counter have to fit as well.
        let earlier = places[..i].iter().zip(charges).filter(|(earlier, _)| *earlier == place);
        let cost = earlier.fold(u64::from(charge.cost), |sum, (_, earlier)| sum + u64::from(earlier.cost));
        decision.push(charge.rule, peek_sum(cost, |cost| counters[*place].peek(charge.quota, cost, now)));
    }
    decision
}

/// The answer to a peek at the sum of several costs. A sum that exceeds a `u32` never fits, even where the
/// largest possible cost does.
pub(crate) fn peek_sum(cost: u64, peek: impl FnOnce(u32) -> Outcome) -> Outcome {
    match u32::try_from(cost) {
        Ok(cost) => peek(cost),
        Err(_) => peek(u32::MAX).at_no_time(),
    }
}
