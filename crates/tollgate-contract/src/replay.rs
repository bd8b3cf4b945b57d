//! Long histories, compared answer by answer with [`tollgate_core::algorithm`].

use std::time::Duration;

use tollgate_core::algorithm::Counter;
use tollgate_core::{Charge, Debit, Decision, HOUR, Key, Outcome, Quota, Receipt, Refund, SECOND, Timestamp};

use crate::{Bench, Harness};

/// Numbers that look random and are the same each time (SplitMix64).
struct Random(u64);

impl Random {
    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    fn quota(&mut self) -> Quota {
        let limit = self.of(&[1, 2, 3, 5, 7, 10, 60, 97, 100, 1_000, 9_999]);
        let period = self.of(&[1, 7, 250, 1_000, 1_001, 10_000, 60_000, 86_400_000, 2_592_000_000]);
        let period = Duration::from_millis(period);
        let capacity = self.of(&[1, 3, 10, 64, 500]);
        match self.below(7) {
            0 => Quota::token_bucket(limit, period),
            1 => Quota::token_bucket(limit, period).burst(capacity),
            2 => Quota::fixed_window(limit, period),
            3 => Quota::sliding_window(limit, period),
            4 => Quota::sliding_log(limit.min(100), period),
            5 => Quota::leaky_bucket(limit, period),
            _ => Quota::leaky_bucket(limit, period).capacity(capacity),
        }
    }

    /// A pause that matters to a quota: nothing, a little, a part of its refill, or more than all of it.
    fn pause(&mut self, quota: &Quota) -> Duration {
        let refill = quota.full_refill().as_micros() as u64;
        Duration::from_micros(match self.below(8) {
            0..=2 => 0,
            3 => self.below(1_000),
            4 | 5 => self.below(refill / 10 + 2),
            6 => self.below(refill + 2),
            _ => self.below(3 * refill + 2),
        })
    }

    fn cost(&mut self, quota: &Quota) -> u32 {
        match self.below(8) {
            0..=3 => 1,
            4 | 5 => 1 + self.below(u64::from(quota.max() / 3 + 1)) as u32,
            6 => self.below(u64::from(quota.max()) + 1) as u32,
            _ => quota.max() + self.below(2) as u32,
        }
    }
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
            if random.below(4) == 0 {
                let peeked = expected(now, &charge, counter.peek(&quota, charge.cost, now));
                assert_eq!(bench.peek(&[charge]).await, peeked, "{quota}: peek {step} of {shape}");
            }
            let outcome = counter.charge(&quota, charge.cost, now);
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
            // At most twelve days at once, for the same reason as below.
            let pause = random.pause(&quota).min(SECOND * (1 << 20));
            match random.below(10) {
                0 | 1 => quota = random.quota(),
                2 => {
                    // What has expired may have been forgotten, and is not to come back with the clock.
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
            let peeked = expected(now, &charge, counter.peek(&quota, charge.cost, now));
            assert_eq!(bench.peek(&[charge]).await, peeked, "{quota}: peek {step} of {history}");
            if random.below(10) == 0 {
                bench.debit(&[Debit::new(charge)]).await;
                counter.debit(&quota, charge.cost, None, now);
            }
            let charged = expected(now, &charge, counter.charge(&quota, charge.cost, now));
            assert_eq!(bench.charge(&[charge]).await, charged, "{quota}: charge {step} of {history}");
        }
    }
}

/// Requests of several rules, over few keys, decided together.
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
            // At most three weeks in all, so that no window's number is too far away to be told from
            // another: a store may keep 32 bits of it.
            let pause = random.pause(&budgets[step % 6].2).min(HOUR * 12);
            bench.advance(pause).await;
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
