//! Foreign data under our names: it causes no error and no unlimited caller, and is gone in time.

use std::time::Duration;

use futures_util::future::join_all;
use ratekeeper_core::algorithm::Counter;
use ratekeeper_core::{
    Algorithm, Charge, Decision, Key, MINUTE, ManualClock, Quota, Retry, SECOND, Store, Timestamp, codec,
};
use ratekeeper_redis::RedisStore;

use crate::support::inspect::Inspector;
use crate::support::random::Random;
use crate::support::{each, own_server, patient, ready, rule};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_041);

/// Quotas with heads of every form.
fn quotas() -> Vec<Quota> {
    let mut quotas: Vec<Quota> = each(10, MINUTE).into();
    quotas.extend(each(7, SECOND));
    quotas.extend(each(300, Duration::from_micros(12_345_678)));
    quotas
}

/// Stores all values, each under its own key, charges each key, and returns the decisions.
async fn charged(
    store: &RedisStore,
    inspector: &mut Inspector,
    quota: &Quota,
    values: &[Vec<u8>],
) -> Vec<Decision> {
    let keys: Vec<Key> = (0..values.len() as u64).map(Key::from).collect();
    let mut set: Vec<Vec<u8>> = vec![b"MSET".to_vec()];
    for (key, value) in keys.iter().zip(values) {
        set.extend([format!("ratekeeper:foreign:{{{key}}}").into_bytes(), value.clone()]);
    }
    inspector.ask::<()>(&set.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let answers =
        keys.iter().map(|key| store.charge(&[Charge::new(rule("foreign"), key, quota)]).into_future());
    let answers: Vec<_> = answers.collect();
    let decisions = join_all(answers).await.into_iter().zip(values);
    decisions
        .map(|(answer, value)| answer.unwrap_or_else(|error| panic!("{quota}, {value:02x?}: {error:?}")))
        .collect()
}

/// Bytes of every length with every first byte, each of them for one in three quotas, and values that differ
/// from a counter in one bit or in their length.
fn garbage(number: usize, quota: &Quota) -> Vec<Vec<u8>> {
    let mut random = Random::new(number as u64);
    let mut values = Vec::new();
    for first in 0..=u8::MAX {
        for len in (0..30).chain([64, 100, 1_000]).filter(|len| (len + usize::from(first)) % 3 == number % 3)
        {
            let filler = random.of(&[Some(0), Some(0xff), None]);
            let rest = (0..len).map(|_| filler.unwrap_or_else(|| random.next() as u8));
            values.push(std::iter::once(first).chain(rest).collect());
        }
    }
    values.push(Vec::new());
    let mut counter = Counter::new(quota);
    for i in 0..4 {
        let now = NOW.saturating_sub(Duration::from_millis(400 - i * 100));
        counter.charge(quota, 1, now);
    }
    let bytes = codec::encode(&counter);
    // Also a counter that is under two quotas.
    let other = Quota::leaky_bucket(300, Duration::from_micros(12_345_679));
    for quota in [other, *quota] {
        counter.charge(&quota, 1, NOW.saturating_sub(Duration::from_millis(1)));
    }
    for bytes in [&bytes, &codec::encode(&counter)] {
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut value = bytes.clone();
                value[at] ^= 1 << bit;
                values.push(value);
            }
        }
    }
    for len in 0..bytes.len() {
        values.push(bytes[..len].to_vec());
        values.push([&bytes[..], &bytes[..len]].concat());
    }
    values
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_bytes_count_as_the_counter_that_they_are_or_as_none() {
    let server = own_server();
    let store = patient(&server).clock(ManualClock::new(NOW)).denial_cache_ttl(Duration::ZERO);
    let store = ready(store).await;
    let mut inspector = Inspector::new(&server);
    for (number, quota) in quotas().into_iter().enumerate() {
        let values = garbage(number, &quota);
        let decisions = charged(&store, &mut inspector, &quota, &values).await;
        let left = inspector.time_left((0..values.len()).map(|i| format!("ratekeeper:foreign:{{#{i}}}")));
        for ((value, decision), left) in values.iter().zip(decisions).zip(left) {
            let outcome = decision.outcome("foreign").expect("it was asked");
            let counter = codec::decode(value);
            // A denied charge does not write, and a valid counter keeps its expiry. But a value that is no
            // counter does not deny.
            assert!(
                left >= 0 || counter.is_some() || !outcome.is_admitted(),
                "{quota}: {value:02x?}: {left}"
            );
            let no_log = counter.is_none() && quota.algorithm() == Algorithm::SlidingLog;
            let current = if value.first() == Some(&255) { value.get(5..).unwrap_or(&[]) } else { value };
            if no_log && current.starts_with(&codec::head(&quota)) {
                // Logs are too long to be validated each time. What looks like one counts as one.
                let wait = outcome.retry().and_then(Retry::after).unwrap_or_default();
                assert!(
                    outcome.remaining() < quota.max() && wait <= quota.full_refill(),
                    "{quota}: {value:02x?}"
                );
            } else {
                let mut counter = counter.unwrap_or_else(|| Counter::new(&quota));
                assert_eq!(*outcome, counter.charge(&quota, 1, NOW), "{quota}: {value:02x?}");
            }
        }
        inspector.ask::<()>(&[b"FLUSHALL"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_counter_is_given_back_to_peeked_at_and_reset() {
    let server = own_server();
    let store = patient(&server).clock(ManualClock::new(NOW)).denial_cache_ttl(Duration::ZERO);
    let store = ready(store).await;
    let mut inspector = Inspector::new(&server);
    for (number, quota) in quotas().into_iter().enumerate() {
        let name = b"ratekeeper:foreign:{alice}";
        for value in garbage(number, &quota).into_iter().step_by(23) {
            inspector.ask::<()>(&[b"SET", name, &value]);
            let charge = [Charge::new(rule("foreign"), "alice", &quota)];
            let peeked = store.peek(&charge).await.unwrap_or_else(|error| panic!("{value:02x?}: {error:?}"));
            let outcome = peeked.outcome("foreign").expect("it was asked");
            let expected = codec::decode(&value).unwrap_or_else(|| Counter::new(&quota)).peek(&quota, 1, NOW);
            assert_eq!(*outcome, expected, "{quota}: {value:02x?}");
            let refund = [ratekeeper_core::Refund::new(rule("foreign"), "alice", 1)];
            store.refund(&refund).await.unwrap_or_else(|error| panic!("{value:02x?}: {error:?}"));
            store.charge(&charge).await.unwrap_or_else(|error| panic!("{value:02x?}: {error:?}"));
        }
        store.reset(rule("foreign"), "alice".into()).await.expect("the store forgets");
        assert!(inspector.kept(name).is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_and_hashes_and_huge_strings_are_replaced() {
    let server = own_server();
    let store = ready(patient(&server)).await;
    let mut inspector = Inspector::new(&server);
    let huge = vec![3_u8; (16 << 20) + 7];
    for quota in each(2, MINUTE) {
        let rule = rule(quota.algorithm().name());
        let name = format!("ratekeeper:{rule}:{{alice}}");
        let name = name.as_bytes();
        let foreign: [&[&[u8]]; 7] = [
            &[b"RPUSH", name, b"a", b"b"],
            &[b"HSET", name, b"a", b"b"],
            &[b"SADD", name, b"a"],
            &[b"ZADD", name, b"1", b"a"],
            &[b"XADD", name, b"*", b"a", b"b"],
            &[b"SET", name, &huge],
            &[b"SET", name, b"17"],
        ];
        for command in foreign {
            inspector.ask::<redis::Value>(command);
            let peeked = store.peek(&[Charge::new(rule, "alice", &quota)]).await.expect("the store looks");
            assert_eq!(peeked.outcome(rule.as_str()).expect("it was asked").remaining(), 2);
            store
                .refund(&[ratekeeper_core::Refund::new(rule, "alice", 1)])
                .await
                .expect("nothing is given back");
            for expected in [true, true, false] {
                let charge = [Charge::new(rule, "alice", &quota)];
                let decision = store.charge(&charge).await.expect("the store decides");
                assert_eq!(
                    decision.is_admitted(),
                    expected,
                    "{quota}: {:?}",
                    String::from_utf8_lossy(command[0])
                );
            }
            let kept = inspector.kept(name).expect("it is a counter now");
            assert!(kept.expires.is_some() && kept.value.len() < 40, "{quota}: {kept:?}");
            store.reset(rule, "alice".into()).await.expect("the store forgets");
        }
        // A request that does not fit leaves nothing foreign behind either.
        inspector.ask::<()>(&[b"SET", name, &[0_u8; 40]]);
        let decision = store.charge(&[Charge::new(rule, "alice", &quota).cost(3)]).await;
        assert_eq!(decision.expect("the store decides").retry(), Some(Retry::Never));
        assert!(inspector.kept(name).is_none_or(|kept| kept.expires.is_some()), "{quota}");
    }
}
