use super::*;

const THIRTY_DAYS: Duration = Duration::from_secs(30 * 86_400);

#[test]
fn per_second_ten_is_ten_each_second() {
    let quota = Quota::per_second(10);
    assert_eq!((quota.limit(), quota.period(), quota.max()), (10, SECOND, 10));
    assert_eq!(quota.full_refill(), SECOND);
    assert_eq!(quota.unit, Span { micros: 100_000, parts: 0 });
}

#[test]
fn quotas_can_be_made_in_a_const() {
    const QUOTA: Quota = Quota::per_minute(100).burst(7);
    const CHECKED: Result<(), QuotaError> = QUOTA.check();
    assert_eq!(CHECKED, Ok(()));
    assert_eq!(QUOTA.max(), 7);
}

#[test]
fn rates_are_exact_fractions() {
    let third = Quota::token_bucket(3, SECOND);
    assert_eq!((third.rate_units(), third.rate_micros().get()), (3, 1_000_000));
    assert_eq!(third.span(1), Span { micros: 333_333, parts: 1 });
    assert_eq!(third.span(2), Span { micros: 666_666, parts: 2 });
    assert_eq!(third.fill(), Span { micros: 1_000_000, parts: 0 });

    let fast = Quota::per_second(10_000_000);
    assert_eq!((fast.rate_units(), fast.rate_micros().get()), (10, 1));
    assert_eq!(fast.span(25), Span { micros: 2, parts: 5 });

    let slow = Quota::token_bucket(1, THIRTY_DAYS);
    assert_eq!(slow.span(1), Span { micros: 2_592_000_000_000, parts: 0 });
}

#[test]
fn text_prints_back_to_the_same_text() {
    for text in [
        "100/minute",
        "10/s burst 20",
        "5 per 30s sliding-log",
        "1/s leaky-bucket capacity 3",
        "7/30days",
        "1000/h fixed-window",
        "100 per minute sliding-window",
        "100/1minute",
        "10/s token-bucket",
        "10/s token-bucket burst 10",
        "3 per 500ms",
        "3/1500us",
        "4294967295/s",
        "1/week",
        "2 per 2hours",
    ] {
        let quota: Quota = text.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(quota.to_string(), text);
    }
}

#[test]
fn spaces_stand_between_words_and_around_a_slash() {
    for (text, canonical) in [
        (" 10 / s ", "10/s"),
        ("10/ 30 s", "10/30s"),
        ("10  per  30  s  sliding-log", "10 per 30s sliding-log"),
        ("10/s  token-bucket  burst  20", "10/s token-bucket burst 20"),
    ] {
        assert_eq!(text.parse::<Quota>().unwrap().to_string(), canonical);
    }
}

#[test]
fn what_is_printed_is_valid_text_only_of_a_valid_quota() {
    const YEARS: Duration = MAX_PERIOD;
    let nanos = |n| Duration::from_nanos(n);
    let periods = [
        Duration::ZERO,
        nanos(1),
        nanos(999),
        nanos(1_000),
        nanos(999_999),
        nanos(1_000_000),
        nanos(1_000_001),
        nanos(1_000_500),
        nanos(1_001_000),
        SECOND,
        SECOND + nanos(1),
        2 * MINUTE - nanos(1),
        HOUR,
        YEARS,
        YEARS + nanos(1),
        YEARS + nanos(1_000),
        Duration::MAX,
    ];
    for algorithm in Algorithm::ALL {
        for limit in [0, 1, 5, u32::MAX] {
            for period in periods {
                let quota = Quota::new(algorithm, limit, period);
                let more = [0, 1, 7, u32::MAX].map(|n| [quota.burst(n), quota.capacity(n)]);
                for quota in more.into_iter().flatten().chain([quota]) {
                    let parsed = quota.to_string().parse::<Quota>();
                    assert_eq!(parsed.is_ok(), quota.check().is_ok(), "{quota:?} {period:?}");
                    assert!(parsed.is_err() || parsed == Ok(quota), "{quota:?}");
                }
            }
        }
    }
    assert_eq!(Quota::per_second(5).to_string(), "5/second");
    assert_eq!(Quota::token_bucket(5, nanos(1_000_500)).burst(7).to_string(), "5 per 1000500ns burst 0");
    assert_eq!(Quota::token_bucket(5, nanos(500)).to_string(), "5 per 500ns");
}

#[test]
fn quotas_made_in_code_print_as_text_that_means_the_same() {
    for (quota, text) in [
        (Quota::per_second(10).burst(20), "10/second burst 20"),
        (Quota::per_minute(100), "100/minute"),
        (Quota::per_day(1), "1/day"),
        (Quota::sliding_log(5, Duration::from_secs(30)), "5 per 30s sliding-log"),
        (Quota::fixed_window(5, 2 * HOUR), "5 per 2h fixed-window"),
        (Quota::sliding_window(5, Duration::from_millis(1_500)), "5 per 1500ms sliding-window"),
        (Quota::leaky_bucket(1, SECOND).capacity(3), "1/second leaky-bucket capacity 3"),
        (Quota::token_bucket(1, THIRTY_DAYS), "1 per 30d"),
        (Quota::token_bucket(1, Duration::from_micros(1_001)), "1 per 1001us"),
        // More microseconds than 32 bits hold.
        (Quota::token_bucket(1, 2 * HOUR + Duration::from_micros(1)), "1 per 7200000001us"),
    ] {
        assert_eq!(quota.to_string(), text);
        assert_eq!(text.parse::<Quota>().unwrap(), quota);
    }
}

#[test]
fn spelling_has_no_part_in_equality() {
    let [a, b] = ["60/m", "60 per 60s burst 60"].map(|text| text.parse::<Quota>().unwrap());
    assert_eq!(a, b);
    assert_ne!(a, "1/s".parse().unwrap());
}

#[test]
fn text_that_is_no_quota_is_refused_and_the_error_says_where() {
    for (text, says) in [
        ("", "expected a number, but the text ends there"),
        ("minute", "expected a number, found \"minute\""),
        ("100", "expected `/`, or a space and `per`, after the limit, but the text ends there"),
        ("100 every minute", "found \"every\""),
        ("100/", "expected a unit of time"),
        ("100/fortnight", "found \"fortnight\""),
        ("100/minute bust 5", "expected an algorithm, `burst` or `capacity`, found \"bust\""),
        ("100/minute burst", "expected a number, but the text ends there"),
        ("100/minute burst 5 x", "expected nothing more, found \"x\""),
        ("-1/s", "expected a number, found \"-1/s\""),
        ("1.5/s", "found \".5/s\""),
        ("4294967296/s", "\"4294967296\" is not a whole number"),
        ("1per m", "expected `/`, or a space and `per`, after the limit, found \"per\""),
        ("1 perm", "found \"perm\""),
        ("1 per\tm", "found \"per\\tm\""),
        ("10\u{a0}/ s", "expected `/`, or a space and `per`, after the limit, found \"\\u{a0}/\""),
        ("10/\u{2003}s", "expected a unit of time"),
        ("10/s\tburst 20", "expected a unit of time"),
        ("10/s burst\u{2003}20", "found \"burst\\u{2003}20\""),
        ("10/s burst 20\n", "expected nothing more, found \"\\n\""),
        ("\t10/s", "expected a number"),
        ("0/s", "a limit of zero"),
        ("1/0s", "below one millisecond"),
        ("1/999us", "below one millisecond"),
        ("1/4000000000days", "above ten years"),
        ("1/99999999999999999999us", "above ten years"),
        ("5/s burst 0", "a burst of zero"),
        ("5/s sliding-log burst 9", "a sliding-log has no burst"),
        ("5/s leaky-bucket burst 9", "its queue has a capacity"),
        ("5/s capacity 9", "what it holds is its burst"),
        ("1/30days burst 4000", "142 years"),
    ] {
        let error = text.parse::<Quota>().unwrap_err().to_string();
        assert!(error.contains(says), "{text:?}: {error}");
        assert!(error.contains(&format!("{text:?}")), "{text:?}: {error}");
    }
}

#[test]
fn a_quota_that_makes_no_sense_admits_nothing_and_says_why() {
    for (quota, why) in [
        (Quota::per_second(0), QuotaError::ZeroLimit),
        (Quota::per_second(0).burst(5), QuotaError::ZeroLimit),
        (Quota::per_second(1).burst(0), QuotaError::ZeroBurst),
        (Quota::leaky_bucket(1, SECOND).capacity(0), QuotaError::ZeroCapacity),
        (Quota::fixed_window(1, Duration::ZERO), QuotaError::PeriodTooShort),
        (Quota::fixed_window(1, Duration::MAX), QuotaError::PeriodTooLong),
        (Quota::fixed_window(1, Duration::from_nanos(1_000_500)), QuotaError::PeriodTooFine),
        (Quota::fixed_window(1, SECOND).burst(1), QuotaError::BurstWithout(Algorithm::FixedWindow)),
        (Quota::per_second(1).capacity(1), QuotaError::CapacityWithout(Algorithm::TokenBucket)),
        (Quota::token_bucket(1, THIRTY_DAYS).burst(u32::MAX), QuotaError::TooSlow),
    ] {
        assert_eq!(quota.check(), Err(why), "{quota:?}");
        assert_eq!(quota.max(), 0, "{quota:?}");
    }
    assert_eq!(Quota::token_bucket(1, THIRTY_DAYS).burst(u32::MAX).burst(2).check(), Ok(()));
}
