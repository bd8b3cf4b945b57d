//! Charges whose callers will wait.

use std::time::Duration;

use ratekeeper_core::{Algorithm, Charge, MINUTE, Outcome, Quota, Receipt, Retry, SECOND};

use crate::random::Random;
use crate::{Bench, Caller, Harness, MICRO, each, wait};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A charge of a caller that will wait this long.
async fn reserve<H: Harness>(caller: &Caller<'_, H>, cost: u32, patience: Duration) -> Outcome {
    let decision = caller.bench.charge(&[caller.cost(cost).wait_up_to(patience)]).await;
    let (_, outcome) = decision.outcomes().next().expect("one charge has one outcome");
    assert_eq!((decision.delay(), decision.retry()), (outcome.delay(), outcome.retry()));
    *outcome
}

/// Both buckets, with rates that are whole microseconds per unit and rates that are not.
fn buckets() -> [Quota; 6] {
    [
        Quota::per_second(10),
        Quota::per_second(10).burst(3),
        Quota::per_second(7).burst(20),
        Quota::leaky_bucket(10, SECOND),
        Quota::leaky_bucket(7, SECOND).capacity(20),
        Quota::per_minute(1),
    ]
}

/// A token bucket admits a charge with a delay if the tokens come in time, in the order of the charges.
pub async fn a_token_bucket_lends_what_comes_in_time<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let caller = bench.caller(Quota::per_second(10));
    for _ in 0..10 {
        // Tokens that are there are not waited for.
        assert_eq!(reserve(&caller, 1, millis(300)).await.delay(), Duration::ZERO);
    }
    for place in 1..=3 {
        let reserved = reserve(&caller, 1, millis(300)).await;
        assert!(reserved.is_admitted(), "{reserved:?}");
        assert_eq!((reserved.delay(), reserved.remaining()), (millis(100 * place), 0));
        assert_eq!(reserved.reset_after(), millis(1_000 + 100 * place));
    }
    let denied = reserve(&caller, 1, millis(300)).await;
    assert_eq!(denied.retry(), Some(Retry::After(millis(100))));
    // Nobody overtakes: a caller that will not wait is denied until all that is reserved has come.
    assert_eq!(caller.charge(1).await.retry(), Some(Retry::After(millis(400))));
    bench.advance(millis(50)).await;
    assert_eq!(reserve(&caller, 1, SECOND).await.delay(), millis(350));
}

/// A leaky bucket delays as always, and denies whom it would delay for too long. Its queue does not grow
/// beyond its capacity, however patient its callers are.
pub async fn a_leaky_bucket_refuses_a_place_that_comes_too_late<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let caller = bench.caller(Quota::leaky_bucket(10, SECOND).capacity(5));
    for place in 0..3 {
        let reserved = reserve(&caller, 1, millis(200)).await;
        assert_eq!((reserved.is_admitted(), reserved.delay()), (true, millis(100 * place)));
    }
    assert_eq!(reserve(&caller, 1, millis(200)).await.retry(), Some(Retry::After(millis(100))));
    assert_eq!(caller.charge(2).await.delay(), millis(300));
    assert_eq!(reserve(&caller, 1, MINUTE).await.retry(), Some(Retry::After(millis(100))));
    // The later of the two: room in the queue, and a place in time.
    assert_eq!(reserve(&caller, 2, millis(450)).await.retry(), Some(Retry::After(millis(200))));
    assert_eq!(reserve(&caller, 1, Duration::ZERO).await.retry(), Some(Retry::After(millis(500))));
}

/// The wait of a denial ends exactly when the charge would be admitted with the same patience.
pub async fn a_wait_is_until_the_charge_would_be_admitted<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let mut random = Random(5);
    for quota in buckets() {
        let caller = bench.caller(quota);
        for _ in 0..12 {
            let patience = Duration::from_micros(random.below(2 * quota.full_refill().as_micros() as u64));
            let cost = 1 + random.below(quota.max().into()) as u32;
            let peeked = bench.peek(&[caller.cost(cost).wait_up_to(patience)]).await;
            let reserved = reserve(&caller, cost, patience).await;
            assert_eq!((peeked.delay(), peeked.retry()), (reserved.delay(), reserved.retry()), "{quota}");
            assert!(reserved.delay() <= patience, "{quota}: {cost} within {patience:?}: {reserved:?}");
            if reserved.is_admitted() {
                continue;
            }
            bench.advance(wait(&reserved) - MICRO).await;
            assert!(!reserve(&caller, cost, patience).await.is_admitted(), "{quota}: {cost}, early");
            bench.advance(MICRO).await;
            let in_time = reserve(&caller, cost, patience).await;
            assert!(in_time.is_admitted(), "{quota}: {cost} within {patience:?}, in time");
        }
    }
}

/// Requests that are held back for their delays depart as if the bucket had admitted them then.
pub async fn no_more_departs_than_the_bucket_allows<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let mut random = Random(6);
    for quota in buckets() {
        let caller = bench.caller(quota);
        let (mut departures, mut last) = (Vec::new(), bench.harness.now().await);
        for _ in 0..60 {
            bench.advance(random.pause(&quota) / 8).await;
            let patience = Duration::from_micros(random.below(quota.full_refill().as_micros() as u64));
            let reserved = reserve(&caller, 1, patience).await;
            if reserved.is_admitted() {
                let departs = bench.harness.now().await.saturating_add(reserved.delay());
                assert!(departs >= last, "{quota}: nobody overtakes");
                (last, departures) = (departs, [departures, vec![departs]].concat());
            }
        }
        // A queue lets out one at a time.
        let most = if quota.algorithm() == Algorithm::LeakyBucket { 1 } else { u128::from(quota.max()) };
        let (units, micros) = quota.rate();
        for (i, first) in departures.iter().enumerate() {
            for (count, next) in (1_u128..).zip(&departures[i..]) {
                let span = next.saturating_since(*first).as_micros() + 1;
                let allowed = most * u128::from(micros) + span * u128::from(units);
                assert!(count * u128::from(micros) <= allowed, "{quota}: {count} in {span} µs");
            }
        }
    }
}

/// However patient a caller is, at most a minute is reserved ahead.
pub async fn at_most_a_minute_is_reserved_ahead<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in [Quota::per_second(1), Quota::leaky_bucket(1, SECOND).capacity(100)] {
        let caller = bench.caller(quota);
        let mut longest = Duration::ZERO;
        loop {
            let reserved = reserve(&caller, 1, Duration::MAX).await;
            if !reserved.is_admitted() {
                break;
            }
            longest = longest.max(reserved.delay());
        }
        assert_eq!(longest, Charge::MAX_WAIT, "{quota}");
    }
}

/// A token bucket takes back what was reserved, and those behind keep their delays. A queue takes back only
/// the last place.
pub async fn a_reservation_that_is_given_back_is_there_again<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in [Quota::per_second(10).burst(2), Quota::leaky_bucket(10, SECOND).capacity(20)] {
        let caller = bench.caller(quota);
        let mut receipts = Vec::new();
        for _ in 0..6 {
            let decision = bench.charge(&[caller.cost(1).wait_up_to(SECOND)]).await;
            receipts.push(Receipt::of(&decision, caller.rule).expect("it is admitted"));
        }
        bench.advance(millis(10)).await;
        let next = bench.peek(&[caller.cost(1).wait_up_to(SECOND)]).await.delay();
        caller.refund(1, Some(receipts[3])).await;
        let queues = quota.algorithm() == Algorithm::LeakyBucket;
        let expected = if queues { next } else { next - millis(100) };
        assert_eq!(bench.peek(&[caller.cost(1).wait_up_to(SECOND)]).await.delay(), expected, "{quota}");
        caller.refund(1, Some(receipts[5])).await;
        let last = bench.peek(&[caller.cost(1).wait_up_to(SECOND)]).await.delay();
        assert_eq!(last, expected - millis(100), "{quota}");
    }
}

/// The delay of a request is that of its longest reservation.
pub async fn a_request_is_held_back_for_its_longest_reservation<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let [fast, slow] = [Quota::per_second(10), Quota::per_second(2)].map(|quota| bench.caller(quota));
    fast.take(10).await;
    slow.take(2).await;
    let charges = [fast.cost(1), slow.cost(1)].map(|charge| charge.wait_up_to(SECOND));
    let decision = bench.charge(&charges).await;
    assert!(decision.is_admitted());
    assert_eq!(decision.delay(), millis(500));
    let delays: Vec<_> = decision.outcomes().map(|(_, outcome)| outcome.delay()).collect();
    assert_eq!(delays, [millis(100), millis(500)]);
}

/// If one rule would delay for too long, nothing is reserved anywhere.
pub async fn a_reservation_is_part_of_all_or_nothing<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let [fast, slow] = [Quota::per_second(10), Quota::per_second(1)].map(|quota| bench.caller(quota));
    fast.take(10).await;
    slow.take(1).await;
    let before = fast.peek(1).await;
    let charges = [fast.cost(1), slow.cost(1)].map(|charge| charge.wait_up_to(millis(900)));
    let decision = bench.charge(&charges).await;
    assert_eq!(decision.retry(), Some(Retry::After(millis(100))));
    assert_eq!(fast.peek(1).await, before);
    bench.advance(millis(100)).await;
    assert_eq!(bench.charge(&charges).await.delay(), millis(900));
}

/// Windows and logs decide as if the caller would not wait.
pub async fn windows_and_logs_ignore_reservations<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let is_bucket =
        |quota: &Quota| matches!(quota.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
    for quota in each(5, SECOND).into_iter().filter(|quota| !is_bucket(quota)) {
        let caller = bench.caller(quota);
        caller.take(5).await;
        let impatient = caller.charge(1).await;
        assert!(!impatient.is_admitted(), "{quota}");
        assert_eq!(reserve(&caller, 1, MINUTE).await, impatient, "{quota}");
    }
}

/// A cost that the bucket can never hold cannot be reserved either.
pub async fn a_cost_above_the_capacity_is_never<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in buckets() {
        let caller = bench.caller(quota);
        assert_eq!(reserve(&caller, quota.max() + 1, MINUTE).await.retry(), Some(Retry::Never), "{quota}");
        // What costs nothing always passes.
        assert!(reserve(&caller, 0, Duration::ZERO).await.is_admitted(), "{quota}");
    }
}

/// A clock that steps back keeps what was reserved, and locks for no longer than the longest reservation.
pub async fn a_step_back_locks_for_no_longer_than_a_reservation<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in [Quota::per_second(10), Quota::per_second(7).burst(3)] {
        for back in [millis(10), SECOND, 3 * MINUTE, 100 * MINUTE] {
            let caller = bench.caller(quota);
            caller.reset().await;
            bench.at(200 * MINUTE).await;
            while reserve(&caller, 1, 5 * SECOND).await.is_admitted() {}
            let before = wait(&caller.charge(1).await);
            bench.step_back(back).await;
            let after = wait(&caller.charge(1).await);
            assert!(after >= before, "{quota}: {back:?} back");
            let longest = quota.full_refill() + Charge::MAX_WAIT;
            assert!(caller.time_locked(None).await <= longest, "{quota}: {back:?} back");
        }
    }
}
