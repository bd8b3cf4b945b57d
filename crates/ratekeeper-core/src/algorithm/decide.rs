//! Several charges, one decision.

use super::{Ask, Counter};
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
            decision.push(charge.rule, counters[*place].charge(charge.quota, Ask::of(charge), now));
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
        let earlier = places[..i].iter().zip(charges).filter(|(earlier, _)| *earlier == place);
        let outcome = peek_after(&counters[*place], earlier.map(|(_, charge)| charge), charge, now);
        decision.push(charge.rule, outcome);
    }
    decision
}

/// What a charge would answer after earlier charges of the same request to the same counter. The budget is
/// the one without them.
pub(crate) fn peek_after<'a>(
    counter: &Counter,
    earlier: impl Iterator<Item = &'a Charge<'a>>,
    charge: &Charge<'_>,
    now: Timestamp,
) -> Outcome {
    let mut earlier = earlier.peekable();
    if earlier.peek().is_none() {
        return counter.peek(charge.quota, Ask::of(charge), now);
    }
    let (mut counter, untouched) = (counter.clone(), counter.peek(charge.quota, Ask::from(0), now));
    let mut sum = u64::from(charge.cost);
    for earlier in earlier {
        counter.charge(earlier.quota, Ask::of(earlier), now);
        sum += u64::from(earlier.cost);
    }
    let outcome = counter.peek(charge.quota, Ask::of(charge), now);
    if !outcome.is_admitted() && sum > charge.quota.max().into() {
        return untouched.at_no_time();
    }
    untouched.with_verdict_of(outcome)
}
