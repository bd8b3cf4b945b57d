//! What responses say, and what hostile ones cannot do.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use proptest::prelude::*;

use super::{LimitReport, MAX_LIMITS, Refusal, Report};

/// 2026-11-18 00:00:00 UTC.
const NOW: u64 = 1_794_960_000;
const DATE: &str = "Wed, 18 Nov 2026 00:00:00 GMT";
const MAX_PAUSE: Duration = Duration::from_secs(300);

fn report(status: u16, fields: &[(&'static str, &str)]) -> Report {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    }
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
    Report::read(StatusCode::from_u16(status).unwrap(), &headers, now, MAX_PAUSE)
}

fn wait(status: u16, fields: &[(&'static str, &str)]) -> Option<f64> {
    report(status, fields).refusal.and_then(|refusal| refusal.wait).map(|wait| wait.as_secs_f64())
}

/// Name, quota, window, remaining and reset, in seconds.
type Limit = (&'static str, Option<u64>, Option<u64>, Option<u64>, Option<f64>);

#[track_caller]
fn assert_limits(fields: &[(&'static str, &str)], expected: &[Limit]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(name, quota, window, remaining, reset)| LimitReport {
            name: (*name).to_owned(),
            quota: *quota,
            window: window.map(Duration::from_secs),
            remaining: *remaining,
            reset: reset.map(Duration::from_secs_f64),
        })
        .collect();
    assert_eq!(report(200, fields).limits, expected, "{fields:?}");
}

#[test]
fn retry_after_is_seconds_or_a_date() {
    for (value, seconds) in [
        ("20", Some(20.0)),
        (" 7 ", Some(7.0)),
        ("0", Some(0.0)),
        ("2.5", Some(2.5)),
        ("Wed, 18 Nov 2026 00:00:30 GMT", Some(30.0)),
        ("Wednesday, 18-Nov-26 00:00:30 GMT", Some(30.0)),
        ("Wed Nov 18 00:00:30 2026", Some(30.0)),
        ("Tue, 17 Nov 2026 00:00:00 GMT", Some(0.0)),
        // Absurd ones are capped.
        ("31536000", Some(300.0)),
        ("99999999999999999999999999999999999999", Some(300.0)),
        ("Fri, 31 Dec 9999 23:59:59 GMT", Some(300.0)),
        // And malformed ones count as absent.
        ("-5", None),
        ("+5", None),
        ("1e9", None),
        ("NaN", None),
        ("inf", None),
        ("1.2.3", None),
        ("soon", None),
        ("", None),
    ] {
        assert_eq!(wait(429, &[("retry-after", value)]), seconds, "{value:?}");
        assert_eq!(wait(503, &[("retry-after", value)]), seconds, "{value:?}");
        assert_eq!(report(200, &[("retry-after", value)]).refusal, None, "{value:?}");
    }
    assert_eq!(wait(429, &[("retry-after-ms", "1500"), ("retry-after", "2")]), Some(1.5));
}

#[test]
fn a_date_is_compared_with_the_servers_clock() {
    // The server is an hour ahead.
    let fields =
        [("date", "Wed, 18 Nov 2026 01:00:00 GMT"), ("retry-after", "Wed, 18 Nov 2026 01:00:10 GMT")];
    assert_eq!(wait(429, &fields), Some(10.0));
    let reset = (NOW + 3_600 + 20).to_string();
    let fields = [
        ("date", "Wed, 18 Nov 2026 01:00:00 GMT"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", &*reset),
    ];
    assert_eq!(wait(429, &fields), Some(20.0));
}

#[test]
fn the_lists_of_the_draft_are_read_in_every_revision() {
    let policy = ("ratelimit-policy", r#""burst";q=100;w=60, "daily";q=1000;w=86400"#);
    let daily = ("daily", Some(1_000), Some(86_400), None, None);
    let burst = ("burst", Some(100), Some(60), Some(50), Some(30.0));
    assert_limits(&[policy, ("ratelimit", r#""burst";r=50;t=30"#)], &[burst, daily]);
    assert_limits(&[policy, ("ratelimit", r#""burst";a=50;w=30"#)], &[burst, daily]);
    // Members on several lines, spaces, unknown parameters, duplicate parameters of which the last one counts.
    assert_limits(
        &[
            ("ratelimit-policy", r#""burst";q=1;q=100; w=60;acme-burst=7"#),
            ("ratelimit-policy", r#""daily";q=1000;w=86400"#),
            ("ratelimit", r#""burst"; r=50;t=30;pk=:dTEyMw==:"#),
        ],
        &[burst, daily],
    );
    assert_limits(&[("ratelimit", r#""trial";r=999"#)], &[("trial", None, None, Some(999), None)]);
    assert_limits(&[("ratelimit", "trial;r=999")], &[("trial", None, None, Some(999), None)]);
}

#[test]
fn quotas_of_bytes_and_of_connections_are_ignored() {
    let policy = r#""peruser";q=65535;qu="content-bytes";w=10, "calls";q=5;w=1;qu="requests""#;
    assert_limits(
        &[("ratelimit-policy", policy), ("ratelimit", r#""peruser";r=0;t=10, "calls";r=4;t=1"#)],
        &[("calls", Some(5), Some(1), Some(4), Some(1.0))],
    );
}

#[test]
fn malformed_lists_and_parameters_count_as_absent() {
    for field in [
        r#""burst";r=50;t=30,"#,
        r#""burst";r=50;T=30"#,
        r#""burst;r=50"#,
        "\"b\u{e9}\";r=1",
        r#"("burst");r=50"#,
        r#""burst";r=-1"#,
        r#""burst";r=1.5"#,
        r#""burst";r="1""#,
        r#""burst";r"#,
        r#""burst";r=1000000000000000"#,
        "7;r=1",
        "",
    ] {
        assert_limits(&[("ratelimit", field)], &[]);
    }
    let reset = r#""burst";r=0;t=999999999999999"#;
    assert_limits(&[("ratelimit", reset)], &[("burst", None, None, Some(0), Some(300.0))]);
    let policy = r#""burst";q=999999999999999;w=0"#;
    assert_limits(&[("ratelimit-policy", policy)], &[("burst", Some(999_999_999_999_999), None, None, None)]);
}

#[test]
fn no_response_adds_more_limits_than_are_kept() {
    let members: Vec<_> = (0..1_000).map(|n| format!("\"p{n}\";r={n}")).collect();
    assert_eq!(report(200, &[("ratelimit", &members.join(", "))]).limits.len(), MAX_LIMITS);
}

#[test]
fn earlier_drafts_are_read() {
    let expected = ("", Some(100), Some(60), Some(50), Some(5.0));
    // Draft 7: a dictionary.
    assert_limits(
        &[("ratelimit-policy", "100;w=60"), ("ratelimit", "limit=100, remaining=50, reset=5")],
        &[expected],
    );
    // Draft 6: three fields.
    let three = [("ratelimit-remaining", "50"), ("ratelimit-reset", "5")];
    let [remaining, reset] = three;
    assert_limits(
        &[("ratelimit-limit", "100"), ("ratelimit-policy", "100;w=60"), remaining, reset],
        &[expected],
    );
    // Draft 3: the limit is followed by policies.
    assert_limits(&[("ratelimit-limit", "100, 10;w=1, 100;w=60"), remaining, reset], &[expected]);
}

#[test]
fn the_reset_is_read_in_whichever_unit_it_is_written() {
    let unix = |n: u64| (NOW + n).to_string();
    for (value, seconds) in [
        (unix(90), 90.0),
        (format!("{}.5", NOW + 90), 90.5),
        (format!("{}250", NOW + 90), 90.25),
        ("90".to_owned(), 90.0),
        ("0.25".to_owned(), 0.25),
        ("1s".to_owned(), 1.0),
        ("1m30s".to_owned(), 90.0),
        ("250ms".to_owned(), 0.25),
        ("1h2m3.5s".to_owned(), 300.0),
        (unix(1_000_000), 300.0),
        (unix(0), 0.0),
    ] {
        for name in ["x-ratelimit-", "x-rate-limit-", "ratelimit-"] {
            let mut headers = HeaderMap::new();
            for (suffix, value) in [("limit", "60"), ("remaining", "59"), ("reset", &*value)] {
                let name: HeaderName = format!("{name}{suffix}").parse().unwrap();
                headers.insert(name, HeaderValue::from_str(value).unwrap());
            }
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
            let report = Report::read(StatusCode::OK, &headers, now, MAX_PAUSE);
            let [limit] = &*report.limits else { panic!("{report:?}") };
            assert_eq!(limit.reset, Some(Duration::from_secs_f64(seconds)), "{name} {value}");
            assert_eq!((limit.quota, limit.remaining), (Some(60), Some(59)));
        }
    }
    let openai = [
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-reset-requests", "1s"),
    ];
    assert_limits(&openai, &[("", Some(60), None, Some(59), Some(1.0))]);
    let discord = [
        ("x-ratelimit-limit", "5"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1470173023"),
        ("x-ratelimit-reset-after", "1.25"),
    ];
    assert_limits(&discord, &[("", Some(5), None, Some(0), Some(1.25))]);
}

#[test]
fn github_refuses_with_403_as_well() {
    let reset = (NOW + 60).to_string();
    let spent = [("x-ratelimit-limit", "60"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &*reset)];
    assert_eq!(wait(403, &spent), Some(60.0));
    assert_eq!(wait(429, &spent), Some(60.0));
    assert_eq!(wait(403, &[("retry-after", "60"), ("x-ratelimit-remaining", "40")]), Some(60.0));
    assert_eq!(report(403, &[("x-ratelimit-remaining", "40")]).refusal, None, "forbidden, and nothing more");
    assert_eq!(report(200, &spent).refusal, None, "the last request that was admitted");
}

#[test]
fn retry_after_overrides_the_other_fields() {
    let fields = [("retry-after", "20"), ("ratelimit", r#""hour";r=0;t=5"#), ("date", DATE)];
    assert_eq!(wait(429, &fields), Some(20.0));
    assert_eq!(wait(429, &fields[1..]), Some(5.0));
    let refusal = report(503, &[]).refusal;
    assert_eq!(refusal, Some(Refusal { wait: None, is_overload: true, is_final: false }));
}

#[test]
fn fields_from_a_cache_are_ignored() {
    let fields = [("age", "3"), ("ratelimit", r#""hour";r=0;t=5"#)];
    assert_limits(&fields, &[]);
    assert_limits(&[("age", "0"), fields[1]], &[("hour", None, None, Some(0), Some(5.0))]);
}

/// A `google.rpc.Status` with a `RetryInfo` after another detail.
fn details(seconds: &[u8], nanos: &[u8]) -> String {
    let field = |tag: u8, bytes: &[u8]| [&[tag, bytes.len() as u8], bytes].concat();
    let delay = [&[0x08], seconds, &[0x10], nanos].concat();
    let info = [field(0x0A, b"type.googleapis.com/google.rpc.RetryInfo"), field(0x12, &field(0x0A, &delay))]
        .concat();
    let other = field(0x0A, b"type.googleapis.com/google.rpc.QuotaFailure");
    STANDARD_NO_PAD.encode([&[0x08, 0x08][..], &field(0x1A, &other), &field(0x1A, &info)].concat())
}

#[test]
fn grpc_refusals_say_when_to_retry() {
    let status = ("grpc-status", "8");
    assert_eq!(wait(200, &[status, ("grpc-retry-pushback-ms", "1500")]), Some(1.5));
    assert_eq!(wait(200, &[status, ("grpc-retry-pushback-ms", "2147483647")]), Some(300.0));
    for negative in ["-1", "x", "", "2147483648"] {
        let refusal = report(200, &[status, ("grpc-retry-pushback-ms", negative)]).refusal;
        assert_eq!(refusal, Some(Refusal { wait: None, is_overload: false, is_final: true }), "{negative:?}");
    }
    // 130.5 seconds.
    let info = details(&[0x82, 0x01], &[0x80, 0xCA, 0xB5, 0xEE, 0x01]);
    assert_eq!(wait(200, &[status, ("grpc-status-details-bin", &info)]), Some(130.5));
    let padded = format!("{info}{}", "=".repeat((4 - info.len() % 4) % 4));
    assert_ne!(padded, info);
    assert_eq!(wait(200, &[status, ("grpc-status-details-bin", &padded)]), Some(130.5));
    // A negative delay, with ten bytes of sign.
    let minus_one = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01];
    assert_eq!(wait(200, &[status, ("grpc-status-details-bin", &details(&minus_one, &[0]))]), Some(0.0));
    assert_eq!(wait(200, &[status, ("grpc-status-details-bin", "!!")]), None);
    assert!(report(200, &[("grpc-status", "0"), ("grpc-retry-pushback-ms", "9")]).refusal.is_none());
    let unavailable = report(200, &[("grpc-status", "14")]).refusal.unwrap();
    assert!(unavailable.is_overload);
}

const NAMES: [&str; 15] = [
    "age",
    "date",
    "retry-after",
    "retry-after-ms",
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-reset-after",
    "grpc-retry-pushback-ms",
    "grpc-status-details-bin",
];

/// Values that resemble real ones, and any bytes that a field can hold.
fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        r#"("[a-z]{0,3}"(;[rtawq]=-?[0-9]{0,17}(\.[0-9])?){0,4},? ?){0,3}"#.prop_map(String::into_bytes),
        r"-?[0-9]{0,40}(\.[0-9]{0,4})?(ms|s|m|h|d)?".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..40)
            .prop_map(|bytes| STANDARD_NO_PAD.encode(bytes).into_bytes()),
        prop::collection::vec(prop_oneof![32_u8..127, 128_u8..=255], 0..40),
    ]
}

proptest! {
    #[test]
    fn no_response_panics_or_asks_for_more_than_the_cap(
        status in 200_u16..600,
        is_grpc in any::<bool>(),
        fields in prop::collection::vec((prop::sample::select(&NAMES[..]), value()), 0..8),
        now in 0_u64..4_000_000_000,
    ) {
        let mut headers = HeaderMap::new();
        if is_grpc {
            headers.insert("grpc-status", HeaderValue::from_static("8"));
        }
        for (name, value) in fields {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(&value).unwrap());
        }
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now);
        let report = Report::read(StatusCode::from_u16(status).unwrap(), &headers, now, MAX_PAUSE);
        prop_assert!(report.limits.len() <= MAX_LIMITS);
        let waits = report.limits.iter().filter_map(|limit| limit.reset);
        for wait in waits.chain(report.refusal.and_then(|refusal| refusal.wait)) {
            prop_assert!(wait <= MAX_PAUSE);
        }
    }
}
