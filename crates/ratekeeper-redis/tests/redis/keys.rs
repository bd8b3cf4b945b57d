//! The contents of Redis: names, values, and lifetimes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratekeeper_core::{
    Algorithm, Charge, DAY, Decision, HOUR, Key, MINUTE, ManualClock, Quota, Receipt, Refund, SECOND, Store,
    Timestamp, codec,
};
use ratekeeper_redis::RedisStore;

use crate::support::inspect::{Inspector, Monitor};
use crate::support::random::Random;
use crate::support::{PATIENCE, each, own_server, patient, ready, rule, shared_server};

async fn charge(store: &RedisStore, charges: &[Charge<'_>]) -> Decision {
    store.charge(charges).await.expect("the store decides")
}

/// Makes charges, refunds, resets and quota changes, one after the other; calls `check` after each.
async fn live(store: &RedisStore, steps: usize, mut check: impl FnMut(&Key, &Quota, &Decision)) {
    let mut random = Random::new(7);
    let rule = rule("life");
    let keys: Vec<Key> = (0..8_u64).map(Key::from).collect();
    let mut quotas: Vec<Quota> = keys.iter().map(|_| sensible(&mut random)).collect();
    for _ in 0..steps {
        let (i, j) = (random.below(8) as usize, random.below(8) as usize);
        let cost =
            |random: &mut Random, i: usize| 1 + random.below(u64::from(quotas[i].max() / 2) + 1) as u32;
        let mut charges = vec![Charge::new(rule, &keys[i], &quotas[i]).cost(cost(&mut random, i))];
        if random.once_in(3) {
            charges.push(Charge::new(rule, &keys[j], &quotas[j]).cost(cost(&mut random, j)));
        }
        let decision = charge(store, &charges).await;
        check(&keys[i], &quotas[i], &decision);
        if random.once_in(3) {
            let refund = Refund::new(rule, &keys[i], charges[0].cost);
            let receipt = Receipt::of(&decision, rule).filter(|_| random.once_in(2));
            let refund = receipt.map_or(refund, |receipt| refund.receipt(receipt));
            store.refund(&[refund]).await.expect("the store gives back");
            check(&keys[i], &quotas[i], &decision);
        }
        match random.below(12) {
            0 => store.reset(rule, (&keys[i]).into()).await.expect("the store forgets"),
            1 | 2 => quotas[i] = sensible(&mut random),
            _ => {}
        }
    }
}

/// A quota for which something happens in real time.
fn sensible(random: &mut Random) -> Quota {
    let limit = random.of(&[1, 3, 7, 10, 100]);
    let period =
        random.of(&[Duration::from_millis(1), Duration::from_millis(40), SECOND, MINUTE, 3_650 * DAY]);
    let quota = each(limit, period)[random.below(5) as usize];
    if quota.algorithm() == Algorithm::TokenBucket && random.once_in(2) { quota.burst(20) } else { quota }
}

/// How much longer a bucket may be kept, in microseconds, so that its expiry need not change with each
/// charge: the time of sixteen units, but at least two seconds and at most two hours.
fn slack(quota: &Quota) -> u64 {
    let (units, micros) = quota.rate();
    match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            (16 * micros / u64::from(units)).clamp(2_000_000, 7_200_000_000)
        }
        _ => 0,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_goes_away_by_itself_at_every_instant() {
    let server = own_server();
    let store = ready(patient(&server).denial_cache_ttl(Duration::ZERO)).await;
    let mut inspector = Inspector::new(&server);
    let mut monitor = Monitor::new(&server);
    let done = AtomicBool::new(false);
    let looks = std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            // Continuously, and not only after an answer.
            let mut inspector = Inspector::new(&server);
            let mut looks = 0;
            while !done.load(Ordering::Relaxed) {
                let (keys, expiring) = inspector.key_counts();
                assert_eq!(keys, expiring);
                looks += 1;
            }
            looks
        });
        let living = live(&store, 1_500, |_, _, _| {
            let (keys, expiring) = inspector.key_counts();
            assert_eq!(keys, expiring);
        });
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(living));
        done.store(true, Ordering::Relaxed);
        looking.join().expect("every key expires")
    });
    assert!(looks > 0);
    // A value is written together with its expiry, so there is no instant between the two.
    let heard = monitor.heard(&mut inspector);
    let written: Vec<_> = heard.iter().filter(|line| line.contains(" lua] ")).collect();
    assert!(written.len() > 1_000);
    for line in written {
        let command = line.split('"').nth(1).expect("a command is quoted").to_ascii_uppercase();
        let reads = ["TIME", "MGET", "GET", "GETRANGE"].contains(&command.as_str());
        // A value that is changed keeps its expiry, or gets another one.
        let expires = ["SETRANGE", "PEXPIREAT"].contains(&command.as_str())
            || (command == "SET" && line.contains("\"PXAT\""));
        assert!(reads || expires, "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_kept_for_as_long_as_it_matters_and_no_longer() {
    let server = own_server();
    let store = ready(patient(&server).denial_cache_ttl(Duration::ZERO)).await;
    let mut inspector = Inspector::new(&server);
    let mut seen = 0;
    let mut quotas: HashMap<String, Vec<Quota>> = HashMap::new();
    live(&store, 1_500, |key, quota, _| {
        let name = format!("ratekeeper:life:{{{key}}}");
        let quotas = quotas.entry(name.clone()).or_default();
        quotas.push(*quota);
        let Some(kept) = inspector.kept(name.as_bytes()) else { return };
        let counter = codec::decode(&kept.value).expect("it is a counter");
        let (matters_until, expires) =
            (counter.expires_at().as_micros(), kept.expires.expect("it goes away"));
        // Redis counts in milliseconds, and a key exists until its last one is over.
        assert!((expires + 1) * 1_000 > matters_until, "{quota}: {matters_until}, {kept:?}");
        let is_of_two = kept.value.first() == Some(&255);
        let slack = quotas.iter().filter(|_| is_of_two).map(slack).max().unwrap_or(slack(quota));
        assert!(expires * 1_000 < matters_until + 3_000 + slack, "{quota}: {matters_until}, {kept:?}");
        // An invalid quota changes nothing, so the key is as another quota left it. With two quotas, the
        // other one is kept for as long as it would be by itself.
        let longest = quotas.iter().filter(|_| is_of_two).map(Quota::full_refill).max();
        let refill = kept.now.saturating_add(longest.unwrap_or(quota.full_refill()));
        assert!(
            quota.check().is_err() || matters_until <= refill.as_micros(),
            "{quota}: {matters_until}, {kept:?}"
        );
        seen += 1;
    })
    .await;
    assert!(seen > 500, "{seen}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_goes_away_when_it_no_longer_matters() {
    let server = own_server();
    let store = ready(patient(&server)).await;
    let mut inspector = Inspector::new(&server);
    for quota in each(5, Duration::from_millis(200)) {
        let rule = rule(quota.algorithm().name());
        let decision = charge(&store, &[Charge::new(rule, "alice", &quota).cost(5)]).await;
        let whole_at = decision.outcome(rule.as_str()).expect("it was asked").reset_at(decision.at());
        let name = format!("ratekeeper:{rule}:{{alice}}");
        let started = Instant::now();
        while let Some(kept) = inspector.kept(name.as_bytes()) {
            assert!(started.elapsed() < PATIENCE, "{quota}: still there: {kept:?}");
            let latest = whole_at.as_micros() + 3_000 + slack(&quota);
            assert!(kept.now.as_micros() < latest, "{quota}: {whole_at}, {kept:?}");
        }
        let now = inspector.server_time();
        assert!(now >= whole_at, "{quota}: gone at {now}, but it matters until {whole_at}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_kept_of_a_key_that_is_whole() {
    let server = own_server();
    let store = ready(patient(&server)).await;
    let mut inspector = Inspector::new(&server);
    for quota in each(10, DAY) {
        let rule = rule(quota.algorithm().name());
        let name = format!("ratekeeper:{rule}:{{alice}}");
        charge(&store, &[Charge::new(rule, "alice", &quota).cost(0)]).await;
        assert!(inspector.kept(name.as_bytes()).is_none(), "{quota}: nothing was charged");
        let decision = charge(&store, &[Charge::new(rule, "alice", &quota).cost(4)]).await;
        assert!(inspector.kept(name.as_bytes()).is_some(), "{quota}: something was charged");
        let receipt = Receipt::of(&decision, rule).expect("it was admitted");
        store.refund(&[Refund::new(rule, "alice", 4).receipt(receipt)]).await.expect("the store gives back");
        // A request that has left a queue keeps its distance from the next.
        let has_left = quota.algorithm() == Algorithm::LeakyBucket;
        assert_eq!(inspector.kept(name.as_bytes()).is_some(), has_left, "{quota}: it was given back");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_can_be_read_and_no_two_keys_share_one() {
    let server = own_server();
    let store = ready(patient(&server).prefix("shop")).await;
    let mut inspector = Inspector::new(&server);
    let quota = Quota::per_day(3);
    charge(&store, &[Charge::new(rule("per-user"), "alice", &quota)]).await;
    let address = Key::from(IpAddr::from([203, 0, 113, 9]));
    charge(&store, &[Charge::new(rule("per-ip"), &address, &quota)]).await;
    charge(&store, &[Charge::new(rule("login"), &Key::from(("alice", "/login")), &quota)]).await;
    for name in ["shop:per-user:{alice}", "shop:per-ip:{203.0.113.9}", "shop:login:{alice|/login}"] {
        assert!(inspector.kept(name.as_bytes()).is_some(), "{name}");
    }

    let texts =
        ["", "*", "a", "{a}", "a}", "%7Ba%7D", "a|b", "a%7Cb", "#1", "\"#1\"", "203.0.113.9", "::1", "é"];
    let mut keys: Vec<Key> = texts.map(Key::from).into();
    keys.extend(
        [b"\xff".as_slice(), b"%FF", b"\0", b" ", b"\r\n", b"sha256:00", b"secret:00"].map(Key::from),
    );
    keys.extend([Key::GLOBAL, Key::from(1_u64), Key::secret("a"), Key::from(("a", "b")), address]);
    keys.extend([Key::from("a").and(""), Key::from("").and("a"), Key::from(("a", Key::secret("b")))]);
    keys.extend([
        Key::from("?"),
        Key::AMBIGUOUS,
        Key::from("a").and(Key::AMBIGUOUS),
        Key::AMBIGUOUS.and("a"),
    ]);
    let rules = ["r", "r:", "r:{a}", "r%3A", "{r}"].map(rule);
    for rule in rules {
        for key in &keys {
            let decision = charge(&store, &[Charge::new(rule, key, &quota)]).await;
            assert_eq!(decision.outcome(rule.as_str()).expect("it was asked").remaining(), 2, "{rule} {key}");
        }
    }
    let names: Vec<Vec<u8>> = inspector.ask(&[b"KEYS", b"shop:*r*:{*}"]);
    let ours = names.iter().filter(|name| !name.starts_with(b"shop:per-") && !name.contains(&b' '));
    assert_eq!(ours.count(), rules.len() * keys.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_any_bytes_and_any_length_have_short_names() {
    let store = ready(patient(shared_server()).prefix("bytes")).await;
    let quota = Quota::per_day(2);
    let large = vec![b'x'; 1 << 20];
    let mut other = large.clone();
    other[1 << 19] = b'y';
    let mut keys = vec![Key::from(large.as_slice()), Key::from(other.as_slice()), Key::secret(&large)];
    keys.extend((0..=255_u8).map(|byte| Key::from([byte].as_slice())));
    for key in &keys {
        let decision = charge(&store, &[Charge::new(rule("any"), key, &quota)]).await;
        assert_eq!(decision.outcome("any").expect("it was asked").remaining(), 1, "{key}");
    }
    let names: Vec<Vec<u8>> = Inspector::new(shared_server()).ask(&[b"KEYS", b"bytes:any:*"]);
    assert_eq!(names.len(), keys.len());
    assert!(names.iter().all(|name| name.len() < 100 && name.iter().all(u8::is_ascii_graphic)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_nowhere_to_be_read() {
    let server = own_server();
    let store = ready(patient(&server)).await;
    let mut inspector = Inspector::new(&server);
    let mut monitor = Monitor::new(&server);
    let short = "hunter2";
    let long = format!("sk_live_{}", "0123456789abcdef".repeat(8));
    let quota = Quota::per_day(2);
    let keys = [
        Key::secret(short),
        Key::secret(&long),
        Key::from(("alice", Key::secret(short))),
        Key::secret(short).and(Key::secret(&long)).and("/login"),
    ];
    for key in &keys {
        let decision = charge(&store, &[Charge::new(rule("api"), key, &quota).cost(2)]).await;
        assert!(!charge(&store, &[Charge::new(rule("api"), key, &quota)]).await.is_admitted());
        store.peek(&[Charge::new(rule("api"), key, &quota)]).await.expect("the store decides");
        let refund =
            Refund::new(rule("api"), key, 1).receipt(Receipt::of(&decision, rule("api")).expect("one"));
        store.refund(&[refund]).await.expect("the store gives back");
    }
    let mut seen: Vec<Vec<u8>> = monitor.heard(&mut inspector).into_iter().map(String::into_bytes).collect();
    let names = inspector.names();
    assert!(names.len() >= keys.len());
    for name in names {
        seen.push(inspector.ask(&[b"DUMP", &name]));
        seen.push(name);
    }
    for secret in [short, &long, &long[..24]] {
        for text in &seen {
            assert!(!text.windows(secret.len()).any(|part| part == secret.as_bytes()), "{text:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_small() {
    let server = own_server();
    let store = ready(patient(&server)).await;
    let mut inspector = Inspector::new(&server);
    for limit in [10, 100, 1_000, 10_000] {
        for period in [SECOND, MINUTE, HOUR, DAY] {
            for quota in each(limit, period).into_iter().filter(|q| q.algorithm() != Algorithm::SlidingLog) {
                let rule = rule("small");
                charge(&store, &[Charge::new(rule, quota.to_string().as_str(), &quota).cost(limit / 2)])
                    .await;
                let name = format!("ratekeeper:small:{{{}}}", Key::from(quota.to_string()));
                // Gone if the window has just ended.
                let Some(kept) = inspector.kept(name.as_bytes()) else { continue };
                assert!(kept.value.len() <= 13, "{quota}: {:02x?}", kept.value);
            }
        }
    }
    for (limit, count) in [(100, 100), (1_000, 1_000), (100_000, 500)] {
        let (quota, rule) = (Quota::sliding_log(limit, DAY), rule("log"));
        let key = Key::from(limit);
        let name = format!("ratekeeper:log:{{{key}}}");
        let mut usage = Vec::new();
        for _ in 0..count {
            assert!(charge(&store, &[Charge::new(rule, &key, &quota)]).await.is_admitted());
            if usage.is_empty() {
                usage.push(inspector.ask::<u64>(&[b"MEMORY", b"USAGE", name.as_bytes()]));
            }
        }
        usage.push(inspector.ask::<u64>(&[b"MEMORY", b"USAGE", name.as_bytes()]));
        let each = (usage[1] - usage[0]) as f64 / (f64::from(count) - 1.0);
        assert!(each <= 12.0, "{quota}: {each} bytes for each admission");
    }
}

/// A bucket that was counted by a clock that is set back since is one state, and goes away in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_back_leaves_one_state_and_its_time_to_live() {
    let server = own_server();
    let start = Timestamp::from_secs(1_700_000_000);
    let clock = ManualClock::new(start);
    let store = ready(patient(&server).clock(clock.clone()).denial_cache_ttl(Duration::ZERO)).await;
    let mut inspector = Inspector::new(&server);
    for quota in each(5, 5 * SECOND) {
        clock.set(start);
        let rule = rule(quota.algorithm().name());
        charge(&store, &[Charge::new(rule, "alice", &quota).cost(4)]).await;
        let size = |inspector: &mut Inspector| {
            let kept = inspector.kept(format!("ratekeeper:{rule}:{{alice}}").as_bytes()).expect("it is kept");
            // For a clock that is not the server's, an hour is added.
            let left = kept.expires.expect("it goes away") - kept.now.as_micros() / 1_000 - 3_600_000;
            assert!(left <= 10_000 + slack(&quota) / 1_000 + 3, "{quota}: {left} ms");
            kept.value.len()
        };
        let before = size(&mut inspector);
        clock.set(start.saturating_sub(HOUR));
        // The first is denied, and is remembered nevertheless.
        for cost in [2, 5, 1] {
            charge(&store, &[Charge::new(rule, "alice", &quota).cost(cost)]).await;
            let after = size(&mut inspector);
            assert!(after <= before + 8, "{quota}: {after} bytes");
            clock.advance(SECOND);
        }
    }
}
