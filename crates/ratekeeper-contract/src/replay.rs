//! Long histories, compared answer by answer with [`ratekeeper_core::algorithm`].

use std::time::Duration;

use ratekeeper_core::algorithm::{Ask, Counter};
use ratekeeper_core::{Charge, Debit, Decision, Key, Outcome, Receipt, Refund, Timestamp};

use crate::random::Random;
use crate::{Bench, Harness};

/// The charge, sometimes of a caller that will wait.
fn patient<'a>(charge: Charge<'a>, random: &mut Random) -> Charge<'a> {
    if random.below(3) > 0 {
        return charge;
    }
    let refill = charge.quota.full_refill().as_micros() as u64;
    let most = random.of(&[1, refill / 10 + 1, 2 * refill + 1, 100_000_000]);
    charge.wait_up_to(Duration::from_micros(random.below(most)))
}

fn expected(at: Timestamp, charge: &Charge<'_>, outcome: Outcome) -> Decision {
    let mut decision = Decision::new(at);
    decision.push(charge.rule, outcome);
    decision
}

/// Three hundred quotas of all shapes, each with a history of charges, peeks and refunds.
pub async fn three_hundred_quota_shapes_answer_like_the_algorithms<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let rule = bench.rule("shapes");
    let mut random = Random(1);
    for shape in 0..300_u64 {
        let quota = random.quota();
        let (key, mut counter) = (Key::from(shape), Counter::new(&quota));
        let mut receipt = None;
        bench.at(Duration::from_micros(random.below(1 << 32))).await;
        for step in 0..25 {
            bench.advance(random.pause(&quota)).await;
            let now = bench.harness.now().await;
            let charge = Charge::new(rule, &key, &quota).cost(random.cost(&quota));
            let charge = patient(charge, &mut random);
            if random.below(4) == 0 {
                let peeked = expected(now, &charge, counter.peek(&quota, Ask::of(&charge), now));
                assert_eq!(bench.peek(&[charge]).await, peeked, "{quota}: peek {step} of {shape}");
            }
            let outcome = counter.charge(&quota, Ask::of(&charge), now);
            let decision = bench.charge(&[charge]).await;
            assert_eq!(decision, expected(now, &charge, outcome), "{quota}: charge {step} of {shape}");
            receipt = Receipt::of(&decision, rule).or(receipt);
            if random.below(5) == 0 {
                let receipt = receipt.filter(|_| random.below(3) > 0);
                let refund = Refund::new(rule, &key, charge.cost);
                bench.refund(&[receipt.map_or(refund, |receipt| refund.receipt(receipt))]).await;
                counter.refund(charge.cost, receipt, now);
            }
            if random.below(8) == 0 {
                bench.debit(&[Debit::new(charge)]).await;
                counter.debit(&quota, charge.cost, None, now);
            }
        }
    }
}

/// Keys whose quota changes at random, on a clock that also steps back.
pub async fn changing_quotas_and_clocks_answer_like_the_algorithms<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let rule = bench.rule("changes");
    let mut random = Random(2);
    for history in 0..120_u64 {
        let mut quota = random.quota();
        let (key, mut counter) = (Key::from(history), Counter::new(&quota));
        bench.at(Duration::from_secs(1 << 24) + Duration::from_micros(random.below(1 << 32))).await;
        for step in 0..40 {
            let pause = random.pause(&quota);
            match random.below(10) {
                0 | 1 => quota = random.quota(),
                2 => {
                    // What has expired may have been forgotten, and must not come back with the clock.
                    if counter.expires_at() <= bench.harness.now().await {
                        bench.caller_under(rule, quota).with_key(key).reset().await;
                        counter = Counter::new(&quota);
                    }
                    bench.step_back(pause).await;
                }
                _ => bench.advance(pause).await,
            }
            let now = bench.harness.now().await;
            let charge = Charge::new(rule, &key, &quota).cost(random.cost(&quota));
            let charge = patient(charge, &mut random);
            let peeked = expected(now, &charge, counter.peek(&quota, Ask::of(&charge), now));
            assert_eq!(bench.peek(&[charge]).await, peeked, "{quota}: peek {step} of {history}");
            if random.below(10) == 0 {
                bench.debit(&[Debit::new(charge)]).await;
                counter.debit(&quota, charge.cost, None, now);
            }
            let charged = expected(now, &charge, counter.charge(&quota, Ask::of(&charge), now));
            assert_eq!(bench.charge(&[charge]).await, charged, "{quota}: charge {step} of {history}");
        }
    }
}

/// Requests of several rules, over a few keys, decided together.
pub async fn requests_of_several_rules_answer_like_the_algorithms<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let mut random = Random(3);
    for history in 0..40 {
        let mut budgets: Vec<_> = (0..6)
            .map(|i| {
                let quota = random.quota();
                (
                    bench.rule(&format!("{history}-{i}")),
                    Key::from(random.below(3)),
                    quota,
                    Counter::new(&quota),
                )
            })
            .collect();
        bench.at(Duration::from_micros(random.below(1 << 32))).await;
        for step in 0..40 {
            bench.advance(random.pause(&budgets[step % 6].2)).await;
            let now = bench.harness.now().await;
            let first = random.below(6) as usize;
            let asked = first..first + 1 + random.below(6 - first as u64) as usize;
            let costs: Vec<u32> = budgets[asked.clone()].iter().map(|(_, _, q, _)| random.cost(q)).collect();

            let mut model = Decision::new(now);
            for ((rule, _, quota, counter), cost) in budgets[asked.clone()].iter().zip(&costs) {
                model.push(*rule, counter.peek(quota, *cost, now));
            }
            if model.is_admitted() {
                model = Decision::new(now);
                for ((rule, _, quota, counter), cost) in budgets[asked.clone()].iter_mut().zip(&costs) {
                    model.push(*rule, counter.charge(quota, *cost, now));
                }
            }
            let charges = budgets[asked].iter().zip(&costs);
            let charges: Vec<_> = charges
                .map(|((rule, key, quota, _), cost)| Charge::new(*rule, key, quota).cost(*cost))
                .collect();
            assert_eq!(bench.charge(&charges).await, model, "request {step} of {history}");
        }
    }
}
