//! Several rules, one decision.

use ratekeeper_core::{Charge, Decision, Key, MINUTE, Quota, Receipt, Refund, Retry, SECOND};

use crate::{Bench, Caller, Harness, each};

/// One caller for each algorithm, each with its own key.
fn callers<H: Harness>(bench: &Bench<H>, limit: u32) -> Vec<Caller<'_, H>> {
    let keys = [Key::from("alice"), Key::from(7_u64), Key::GLOBAL, Key::secret("token"), ("a", "b").into()];
    let callers = each(limit, MINUTE).into_iter().zip(keys);
    callers.map(|(quota, key)| bench.caller(quota).with_key(key)).collect()
}

async fn charge_all<H: Harness>(bench: &Bench<H>, callers: &[Caller<'_, H>], cost: u32) -> Decision {
    let charges: Vec<Charge<'_>> = callers.iter().map(|caller| caller.cost(cost)).collect();
    bench.charge(&charges).await
}

async fn remaining<H: Harness>(callers: &[Caller<'_, H>]) -> Vec<u32> {
    let mut remaining = Vec::new();
    for caller in callers {
        remaining.push(caller.remaining().await);
    }
    remaining
}

/// If all admit, all are charged, and the outcomes are in the order of the charges.
pub async fn all_are_charged_if_all_admit<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let callers = callers(&bench, 10);
    let decision = charge_all(&bench, &callers, 3).await;
    assert!(decision.is_admitted());
    assert_eq!(decision.outcomes().map(|(_, outcome)| outcome.remaining()).collect::<Vec<_>>(), [7; 5]);
    assert_eq!(remaining(&callers).await, [7; 5]);
}

/// If one denies, none is charged, whichever of them it is, and however often they are asked.
pub async fn none_is_charged_if_one_denies<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let callers = callers(&bench, 10);
    for spent in 0..callers.len() {
        for caller in &callers {
            caller.reset().await;
            caller.take(4).await;
        }
        callers[spent].take(6).await;
        let before = remaining(&callers).await;
        for _ in 0..5 {
            let decision = charge_all(&bench, &callers, 1).await;
            assert!(!decision.is_admitted());
            assert_eq!(decision.denied_by().collect::<Vec<_>>(), [callers[spent].rule]);
            assert_eq!(remaining(&callers).await, before);
        }
    }
}

/// An outcome of a denied request describes the untouched budget, even where the rule itself admits.
pub async fn outcomes_of_a_denied_request_tell_what_is_there<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let callers = callers(&bench, 10);
    callers[0].take(10).await;
    callers[1].take(2).await;
    let decision = charge_all(&bench, &callers, 1).await;
    let said: Vec<_> = decision.outcomes().map(|(_, o)| (o.is_admitted(), o.remaining())).collect();
    assert_eq!(said, [(false, 0), (true, 8), (true, 10), (true, 10), (true, 10)]);
}

/// A request without charges is admitted.
pub async fn an_empty_request_is_admitted<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let decision = bench.charge(&[]).await;
    assert!(decision.is_admitted());
    assert_eq!((decision.outcomes().len(), decision.retry()), (0, None));
    assert!(bench.peek(&[]).await.is_admitted());
    bench.refund(&[]).await;
}

/// A rule and key that are charged twice in one request are charged the sum, or nothing.
pub async fn a_key_charged_twice_in_one_request_is_charged_the_sum<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(10, MINUTE) {
        let caller = bench.caller(quota);
        let other = bench.caller(Quota::per_second(100)).with_key(quota.to_string());
        let twice = [caller.cost(3), other.cost(1), caller.cost(3)];
        assert!(bench.peek(&twice).await.is_admitted(), "{quota}");
        assert!(bench.charge(&twice).await.is_admitted(), "{quota}");
        assert_eq!(caller.remaining().await, 4, "{quota}");
        // Each would fit, but not both.
        assert!(!bench.peek(&twice).await.is_admitted(), "{quota}");
        assert!(!bench.charge(&twice).await.is_admitted(), "{quota}");
        assert_eq!((caller.remaining().await, other.remaining().await), (4, 99), "{quota}");
    }
    // More than a `u32` can hold.
    for quota in each(u32::MAX, MINUTE) {
        let caller = bench.caller(quota);
        let twice = [caller.cost(u32::MAX - 1), caller.cost(2)];
        assert_eq!(bench.peek(&twice).await.retry(), Some(Retry::Never), "{quota}");
        assert_eq!(bench.charge(&twice).await.retry(), Some(Retry::Never), "{quota}");
        assert_eq!(caller.remaining().await, u32::MAX, "{quota}");
    }
}

/// More rules than anybody needs are decided together as well.
pub async fn forty_rules_are_decided_together<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let quotas: Vec<Quota> = (1..=8).flat_map(|n| each(10, n * SECOND)).collect();
    let callers: Vec<_> = quotas.into_iter().map(|quota| bench.caller(quota)).collect();
    for left in (0..10).rev() {
        assert!(charge_all(&bench, &callers, 1).await.is_admitted());
        assert_eq!(remaining(&callers).await, vec![left; callers.len()]);
    }
    let denied = charge_all(&bench, &callers, 1).await;
    assert_eq!(denied.denied_by().count(), callers.len());
}

/// What a request charged to several rules is given back to all of them in one call.
pub async fn a_request_is_given_back_as_a_whole<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let callers = callers(&bench, 10);
    let decision = charge_all(&bench, &callers, 4).await;
    let refunds: Vec<Refund<'_>> = callers
        .iter()
        .map(|caller| {
            let receipt = Receipt::of(&decision, caller.rule).expect("it was admitted");
            Refund::new(caller.rule, &caller.key, 4).receipt(receipt)
        })
        .collect();
    bench.refund(&refunds).await;
    assert_eq!(remaining(&callers).await, [10; 5]);
}

/// The delay of a request is that of its longest queue, and a denied request has none.
pub async fn a_request_is_held_back_for_its_longest_queue<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let short = bench.caller(Quota::leaky_bucket(2, SECOND).capacity(9));
    let long = bench.caller(Quota::leaky_bucket(1, SECOND).capacity(3));
    let bucket = bench.caller(Quota::per_second(100));
    let charges = [short.cost(1), long.cost(1), bucket.cost(1)];
    for turn in 0..3 {
        assert_eq!(bench.charge(&charges).await.delay(), turn * SECOND);
    }
    let denied = bench.charge(&charges).await;
    assert!(!denied.is_admitted());
    assert!(denied.delay().is_zero());
    assert_eq!(short.peek(1).await.delay(), SECOND * 3 / 2);
}
