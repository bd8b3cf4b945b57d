use super::*;
use crate::Timestamp;
use std::time::Duration;

const NOW: Timestamp = Timestamp::from_micros(1_763_270_000_123_457);

fn counted(quota: Quota, costs: &[u32]) -> Counter {
    let mut counter = Counter::new(&quota);
    for (i, cost) in costs.iter().enumerate() {
        let now = NOW.saturating_add(Duration::from_micros(i as u64));
        assert!(counter.charge(&quota, *cost, now).is_admitted(), "{quota}");
    }
    counter
}

fn quotas() -> Vec<Quota> {
    let mut quotas = Vec::new();
    for (limit, period) in [(100, MINUTE), (7, SECOND), (10_000_000, SECOND), (70_000, HOUR), (3, 30 * DAY)] {
        quotas.extend([
            Quota::token_bucket(limit, period),
            Quota::fixed_window(limit, period),
            Quota::sliding_window(limit, period),
            Quota::sliding_log(limit, period),
            Quota::leaky_bucket(limit, period),
        ]);
    }
    quotas.push(Quota::fixed_window(u32::MAX, Duration::from_millis(1)));
    quotas.push(Quota::token_bucket(u32::MAX - 4, 10 * 365 * DAY));
    quotas
}

#[test]
fn bytes_are_of_one_counter() {
    for quota in quotas() {
        for costs in [&[][..], &[1], &[1, 1], &[quota.max() - 1, 1]] {
            let counter = counted(quota, costs);
            let bytes = encode(&counter);
            assert_eq!(decode(&bytes), Some(counter), "{quota}: {bytes:02x?}");
            // Cut short or extended, they are not those of a counter, or those of another one.
            assert_ne!(decode(&bytes[..bytes.len() - 1]), decode(&bytes));
            assert_ne!(decode(&[&bytes[..], &[1]].concat()), decode(&bytes));
        }
    }
}

/// A counter that is asked under two quotas at once, and then `again` times under the first.
fn of_two(one: Quota, other: Quota, again: u32) -> Counter {
    let mut counter = counted(one, &[1]);
    counter.charge(&other, 1, NOW.saturating_add(Duration::from_micros(1)));
    for i in 0..again {
        counter.charge(&one, 1, NOW.saturating_add(Duration::from_micros(u64::from(i) + 2)));
    }
    counter
}

#[test]
fn bytes_of_two_quotas_are_of_both() {
    for one in quotas() {
        for other in quotas().into_iter().filter(|other| !other.counts_like(&one)) {
            for again in 0..3 {
                let counter = of_two(one, other, again);
                let bytes = encode(&counter);
                assert_eq!(decode(&bytes).as_ref(), Some(&counter), "{one} and {other}");
                assert_ne!(decode(&bytes[..bytes.len() - 1]).as_ref(), Some(&counter));
            }
        }
    }
}

#[test]
fn any_bytes_of_two_quotas_are_read_without_a_panic() {
    let pairs = [
        (Quota::fixed_window(3, SECOND), Quota::sliding_log(3, MINUTE)),
        (Quota::per_second(7), Quota::leaky_bucket(100, Duration::from_micros(12_345_678))),
    ];
    for (one, other) in pairs {
        let bytes = encode(&of_two(one, other, 2));
        assert_eq!(bytes[0], TWO);
        let mut read = 0;
        for at in 0..bytes.len() {
            for byte in [0, 1, 3, 0x7f, 0xac, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] = byte;
                let Some(mut counter) = decode(&bytes) else { continue };
                read += 1;
                for now in [NOW, NOW.saturating_sub(DAY)] {
                    for quota in quotas() {
                        let _ = counter.peek(&quota, 1, now);
                        let _ = counter.clone().charge(&quota, 1, now);
                    }
                    counter.settle_clock(now);
                    counter.debit(&one, u32::MAX, None, now);
                    counter.refund(u32::MAX, None, now);
                }
            }
        }
        assert!(read > 50, "{read}");
    }
}

#[test]
fn a_log_may_have_places_before_and_after_its_entries() {
    let quota = Quota::sliding_log(10, MINUTE);
    let counter = counted(quota, &[1, 2, 3]);
    let bytes = encode(&counter);
    let (head, entries) = bytes.split_at(bytes.len() - 3 * (MOMENT + 1));
    let (head, places) = head.split_at(head.len() - 2 * PLACE);
    assert_eq!(places, [0, 0, 0, 0, 3, 0, 0, 0]);
    let any = [0xff; 2 * (MOMENT + 1)];
    for (first, parts) in
        [(0, [&[], entries, &any[..]]), (2, [&any, entries, &[]]), (2, [&any, entries, &any])]
    {
        let value = [head, &[first, 0, 0, 0, 3, 0, 0, 0], &parts.concat()].concat();
        assert_eq!(decode(&value).as_ref(), Some(&counter), "{value:02x?}");
    }
    // All entries have to be there.
    for (first, count) in [(0, 4), (1, 3), (4, 0), (0, 0), (0, 2)] {
        let value = [head, &[first, 0, 0, 0, count, 0, 0, 0], entries].concat();
        assert_eq!(decode(&value), None, "{value:02x?}");
    }
    assert_eq!(decode(&[head, &[0xff; 2 * PLACE], entries].concat()), None);
}

/// To the quota that such a counter would belong to, a part of a microsecond means something else.
#[test]
fn a_rate_that_no_quota_has_is_none() {
    let bucket = |micros: u64, units: u32| {
        let (wide, units_wide) = (width(micros), units_width(units));
        let mut bytes = vec![(ALGORITHMS * (wide - 1 + MOMENT * units_wide)) as u8];
        for (number, width) in
            [(micros, wide), (units.into(), units_wide), (9, 1), (NOW.as_micros(), MOMENT), (0, units_wide)]
        {
            write(&mut bytes, number, width);
        }
        bytes
    };
    for (micros, units, is_rate) in [
        (1_000_000, 7, true),
        (1_000_000, 8, false),
        (250, 1_000_003, true),
        (1, 4_294_967, true),
        // More than any quota has in a millisecond.
        (1, 4_294_968, false),
        (3, u32::MAX - 1, false),
    ] {
        let bytes = bucket(micros, units);
        assert_eq!(decode(&bytes).is_some(), is_rate, "{units} in {micros} µs");
    }
}

#[test]
fn bytes_begin_with_the_head() {
    for quota in quotas() {
        assert!(encode(&counted(quota, &[1])).starts_with(&head(&quota)), "{quota}");
    }
}

/// So what begins with the head of a quota was counted under it.
#[test]
fn no_head_begins_with_another() {
    let widths = (0..32).flat_map(|bits| [1 << bits, (1 << bits) + 1]);
    let more = widths.flat_map(|max| [Quota::per_second(3).burst(max), Quota::fixed_window(max, MINUTE)]);
    let all: Vec<Quota> = quotas().into_iter().chain(more).filter(|quota| quota.check().is_ok()).collect();
    for one in &all {
        for other in &all {
            let begins = head(one).starts_with(&head(other));
            assert_eq!(begins, one.counts_like(other), "{one} and {other}");
        }
    }
}

#[test]
fn most_counters_are_short() {
    let common = [10_u32, 100, 1_000, 10_000]
        .into_iter()
        .flat_map(|limit| [SECOND, MINUTE, HOUR, DAY].map(|period| (limit, period)));
    for (limit, period) in common {
        for quota in [
            Quota::token_bucket(limit, period).burst(20 * limit),
            Quota::leaky_bucket(limit, period),
            Quota::fixed_window(limit, period),
            Quota::sliding_window(limit, period),
        ] {
            let bytes = encode(&counted(quota, &[limit]));
            assert!(bytes.len() <= 14, "{quota}: {bytes:02x?}");
        }
    }
}

#[test]
fn any_bytes_are_read_without_a_panic() {
    for tag in 0..=u8::MAX {
        for len in 0..40 {
            for filler in [0, 1, 0xff] {
                let mut bytes = vec![tag];
                bytes.resize(len + 1, filler);
                if let Some(counter) = decode(&bytes) {
                    for quota in quotas() {
                        let _ = counter.peek(&quota, 1, NOW);
                    }
                }
            }
        }
    }
}
