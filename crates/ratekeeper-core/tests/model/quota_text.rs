//! Quotas as text.

use std::time::Duration;

use proptest::prelude::*;
use ratekeeper_core::Quota;

use crate::support::{algorithm, cases, quota};

fn any_quota() -> impl Strategy<Value = Quota> {
    let unit =
        proptest::sample::select(&[1_u64, 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000][..]);
    let period = (unit, prop_oneof![Just(1_u64), 1_u64..100, 1_u64..400_000_000_000]);
    let limit = prop_oneof![1_u32..100, any::<u32>()];
    (algorithm(), limit.clone(), period, proptest::option::of(limit))
        .prop_map(|(algorithm, limit, (unit, count), capacity)| {
            quota(algorithm, (limit, Duration::from_micros(unit.saturating_mul(count))), capacity)
        })
        .prop_filter("makes no sense", |quota| quota.check().is_ok())
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn a_quota_reads_back_from_its_text_and_prints_the_same_again(quota in any_quota()) {
        let text = quota.to_string();
        let read: Quota = text.parse().map_err(|error| TestCaseError::fail(format!("{error}")))?;
        prop_assert_eq!(read, quota);
        prop_assert_eq!(read.to_string(), text);
        prop_assert_eq!(
            (read.algorithm(), read.limit(), read.period(), read.max(), read.full_refill()),
            (quota.algorithm(), quota.limit(), quota.period(), quota.max(), quota.full_refill())
        );
    }

    #[test]
    fn text_that_reads_as_a_quota_makes_sense_and_prints_as_it_was_written(
        limit in "[0-9]{1,10}",
        per in proptest::sample::select(&["/", " per "][..]),
        count in "[0-9]{0,3}",
        unit in proptest::sample::select(&["us", "ms", "s", "sec", "second", "m", "min", "minute", "h", "hour", "d", "day", "days", "week"][..]),
        rest in proptest::sample::select(&["", " sliding-log", " fixed-window", " sliding-window", " burst 5", " leaky-bucket capacity 3", " token-bucket", " leaky-bucket burst 3"][..]),
    ) {
        let text = format!("{limit}{per}{count}{unit}{rest}");
        if let Ok(quota) = text.parse::<Quota>() {
            prop_assert_eq!(quota.check(), Ok(()));
            prop_assert!(quota.max() > 0);
            // Numbers may have been written with leading zeros.
            let has_zeros = limit.starts_with('0') || count.starts_with('0');
            prop_assert!(has_zeros || quota.to_string() == text, "{} printed as {}", text, quota);
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in ".{0,40}") {
        let _ = text.parse::<Quota>();
    }
}
