//! Keys of all kinds.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ratekeeper_core::{Charge, Key, MINUTE, Quota, Refund, Store};

use crate::{Bench, Harness, each};

/// Keys that are easily mistaken for one another.
fn tricky() -> Vec<Key> {
    let long = "k".repeat(10_000);
    let mut keys = vec![
        Key::GLOBAL,
        Key::AMBIGUOUS,
        Key::AMBIGUOUS.and("a"),
        Key::from("a").and(Key::AMBIGUOUS),
        Key::MISSING,
        Key::MISSING.and("a"),
        Key::from("a").and(Key::MISSING),
        Key::from("?"),
        Key::from(""),
        Key::from("a"),
        Key::from("A"),
        Key::from("a "),
        Key::from(("a", "bc")),
        Key::from(("ab", "c")),
        Key::from("abc"),
        Key::from("a|bc"),
        Key::from("a:bc"),
        Key::from(("a", "b", "c")),
        Key::from(("", "abc")),
        Key::from(("abc", "")),
        Key::from("7"),
        Key::from("#7"),
        Key::from(7_u64),
        Key::from(7_u64 << 32),
        Key::from(u64::MAX),
        Key::from(7_u64.to_be_bytes().as_slice()),
        Key::from(7_u64.to_le_bytes().as_slice()),
        Key::from(IpAddr::V4(Ipv4Addr::new(1, 2, 3, 4))),
        Key::from([1_u8, 2, 3, 4].as_slice()),
        Key::from("1.2.3.4"),
        Key::from(IpAddr::V6(Ipv6Addr::LOCALHOST)),
        Key::from(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        Key::from("::1"),
        Key::secret("a"),
        Key::secret(""),
        Key::from(long.as_str()),
        Key::from(&long[1..]),
        Key::from(format!("{long}l")),
        Key::from(("a", long.as_str())),
        Key::from((long.as_str(), "a")),
        Key::from("{a}"),
        Key::from("{b}"),
        Key::from("*"),
        Key::from("a\r\nb"),
        Key::from("ä"),
        Key::from("a\u{308}"),
    ];
    for byte in 0..=u8::MAX {
        keys.push(Key::from([b'x', byte].as_slice()));
    }
    for len in 2..70 {
        keys.push(Key::from("\0".repeat(len)));
        keys.push(Key::from("z".repeat(len)));
    }
    keys
}

/// Each key has its own counter, whatever it is made of.
pub async fn keys_that_differ_are_counted_apart<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let (rule, quota) = (bench.rule("per-key"), Quota::fixed_window(1_000, MINUTE));
    let keys = tricky();
    // Each key takes a different amount, so that a shared counter shows.
    for (key, cost) in keys.iter().zip(1..) {
        let outcome = bench.charge(&[Charge::new(rule, key, &quota).cost(cost)]).await;
        assert_eq!(outcome.outcomes().next().map(|(_, o)| o.remaining()), Some(1_000 - cost), "{key}");
    }
    for (key, cost) in keys.iter().zip(1..) {
        let outcome = bench.peek(&[Charge::new(rule, key, &quota)]).await;
        assert_eq!(outcome.outcomes().next().map(|(_, o)| o.remaining()), Some(1_000 - cost), "{key}");
    }
}

/// A text counts like the key made from it: in charges, peeks, refunds and resets, long or short.
pub async fn a_text_counts_like_the_key_made_from_it<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let quota = Quota::per_minute(100);
    let rule = bench.rule("per-text");
    for len in (0..70).chain([1_000, 10_000]) {
        let text = "ratekeeper".repeat(1_250)[..len].to_owned();
        let caller = bench.caller_under(rule, quota).with_key(&text);
        caller.take(30).await;
        let charge = [Charge::new(rule, &text, &quota).cost(20)];
        assert!(bench.charge(&charge).await.is_admitted(), "{len}");
        assert_eq!(caller.remaining().await, 50, "{len}");
        bench.refund(&[Refund::new(rule, &text, 10)]).await;
        assert_eq!(caller.remaining().await, 60, "{len}");
        bench.store.reset(rule, text.as_str().into()).await.expect("the store resets");
        assert_eq!(caller.remaining().await, 100, "{len}");
    }
}

/// Keys of ten kilobytes work under every algorithm.
pub async fn very_long_keys_work_under_every_algorithm<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(5, MINUTE) {
        let long = vec![0xff_u8; 10_240];
        let caller = bench.caller(quota).with_key(long.as_slice());
        let other = bench.caller(quota).with_key(&long[1..]);
        assert_eq!(caller.drain().await, 5, "{quota}");
        assert_eq!(other.drain().await, 5, "{quota}");
        caller.reset().await;
        assert_eq!((caller.remaining().await, other.remaining().await), (5, 0), "{quota}");
    }
}

/// Rules with any allowed name are counted apart, as are combinations of a rule and a key that are spelled
/// alike.
pub async fn rules_that_differ_are_counted_apart<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let quota = Quota::fixed_window(1_000, MINUTE);
    let names = ["a", "A", "a:b", "b", "a{b}", "{a}b", "a|b", "%", "*", "[x]", "x".repeat(40).as_str()]
        .map(|name| bench.rule(name));
    let callers: Vec<_> = names
        .into_iter()
        .flat_map(|rule| ["b", ":b", "a:b", "|b"].map(|key| bench.caller_under(rule, quota).with_key(key)))
        .collect();
    for (caller, cost) in callers.iter().zip(1..) {
        caller.take(cost).await;
    }
    for (caller, cost) in callers.iter().zip(1..) {
        assert_eq!(caller.remaining().await, 1_000 - cost, "{} {}", caller.rule, caller.key);
    }
}
