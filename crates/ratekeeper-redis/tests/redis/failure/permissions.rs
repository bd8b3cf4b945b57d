//! Users that lack the permission for a command.

use std::time::Duration;

use ratekeeper_core::{Charge, DAY, Key, Quota, Store, StoreErrorKind};
use ratekeeper_servers::RedisServer;

use super::{DEADLINE, hasty, story, watched};
use crate::support::{PATIENCE, each, patient, rule};

fn server() -> RedisServer {
    let server = RedisServer::builder().user("ratekeeper", "secret", "~ratekeeper:* +@all");
    server.start().expect("it starts")
}

/// The error names the command, whichever one it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permission_that_is_missing_from_the_start_is_named() {
    let server = server();
    let commands =
        ["eval", "evalsha", "time", "get", "mget", "getrange", "set", "setrange", "pexpireat", "del"];
    for command in commands {
        server.command(&["ACL", "SETUSER", "ratekeeper", &format!("-{command}")]).expect("it obeys");
        let store = hasty(&server.url()).build().expect("the store can be made");
        let error = store.ready(DEADLINE).await.expect_err("it may not do all that it has to");
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{command}");
        let told = story(&error).to_lowercase();
        assert!(command == "time" || told.contains(command), "{command}: {told}");
        server.command(&["ACL", "SETUSER", "ratekeeper", &format!("+{command}")]).expect("it obeys");
        store.ready(PATIENCE).await.expect("it may do everything");
    }
}

/// Requests that do not need the command are decided, even if they share a batch with those that do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permission_that_is_taken_away_concerns_only_those_who_need_it() {
    let server = server();
    let store = patient(&server).build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("it works");
    let (log, bucket) = (Quota::sliding_log(100_000, DAY), Quota::per_day(1_000_000));
    let charge_log = async || store.charge(&[Charge::new(rule("log"), "log", &log)]).await;
    for _ in 0..200 {
        assert!(charge_log().await.expect("it is decided").is_admitted());
    }
    for command in ["getrange", "pexpireat"] {
        let breaker = watched(&store);
        server.command(&["ACL", "SETUSER", "ratekeeper", &format!("-{command}")]).expect("it obeys");
        let others = (0..64_u64).map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let key = Key::from(number);
                for _ in 0..50 {
                    let charge = [Charge::new(rule("bucket"), &key, &bucket)];
                    assert!(store.charge(&charge).await.expect("it needs other commands").is_admitted());
                }
            })
        });
        let others: Vec<_> = others.collect();
        let mut refused = 0;
        while !others.iter().all(tokio::task::JoinHandle::is_finished) {
            let error = charge_log().await.expect_err("the log cannot be read, or not be changed");
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{command}");
            refused += 1;
        }
        assert!(refused > 0, "{command}");
        for other in others {
            other.await.unwrap_or_else(|error| panic!("{command}: {error}"));
        }
        assert!(!breaker.has_changed().expect("the store is there"), "{command}: {:?}", store.breaker());
        server.command(&["ACL", "SETUSER", "ratekeeper", &format!("+{command}")]).expect("it obeys");
        assert!(charge_log().await.expect("it is decided").is_admitted(), "{command}");
    }
    let counted = store.peek(&[Charge::new(rule("log"), "log", &log)]).await.expect("it is read");
    assert_eq!(counted.outcome("log").expect("it was asked").remaining(), 100_000 - 202, "none was lost");
}

/// Whatever command is missing, and whatever the algorithm: what is admitted is counted, what is an error is not,
/// and nothing that was counted is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_permission_nothing_is_admitted_for_nothing_and_nothing_is_lost() {
    let server = server();
    let store = patient(&server).denial_cache_ttl(Duration::ZERO).build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("it works");
    // Of the logs, one is short, and one is so long that it is changed where it is.
    let mut quotas = each(1_000, DAY).to_vec();
    quotas.push(Quota::sliding_log(30, DAY));
    let counted = async |place: usize, quota: &Quota| {
        let peeked = store.peek(&[Charge::new(rule("any"), &Key::from(place as u64), quota).cost(0)]).await;
        quota.max() - peeked.expect("it is read").outcome("any").expect("it was asked").remaining()
    };
    for command in ["time", "mget", "get", "getrange", "set", "setrange", "pexpireat"] {
        let mut before = Vec::new();
        for (place, quota) in quotas.iter().enumerate() {
            let key = Key::from(place as u64);
            let several = if quota.max() > 30 { 60 } else { 20 };
            for _ in 0..several {
                let charge = [Charge::new(rule("any"), &key, quota)];
                assert!(store.charge(&charge).await.expect("it is decided").is_admitted(), "{quota}");
            }
            before.push(counted(place, quota).await);
        }
        server.command(&["ACL", "SETUSER", "ratekeeper", &format!("-{command}")]).expect("it obeys");
        let (mut admitted, mut failed) = (vec![0; quotas.len()], 0);
        for round in 0..3_u32 {
            // All at once, so that they share calls.
            let asked = quotas.iter().enumerate().map(|(place, quota)| {
                let store = store.clone();
                let quota = *quota;
                tokio::spawn(async move {
                    let key = Key::from(place as u64);
                    let charge = Charge::new(rule("any"), &key, &quota);
                    // The last time twice, by one request.
                    if round < 2 {
                        store.charge(&[charge]).await
                    } else {
                        store.charge(&[charge, charge]).await
                    }
                })
            });
            let mut asked: Vec<_> = asked.collect();
            for (place, asked) in asked.iter_mut().enumerate() {
                match asked.await.expect("nothing panics") {
                    Ok(decision) if decision.is_admitted() => admitted[place] += 1 + round / 2,
                    Ok(decision) => panic!("{command}: {}: {decision:?}", quotas[place]),
                    Err(_) => failed += 1,
                }
            }
        }
        assert!(failed > 0 || command == "get", "{command} is needed by something");
        server.command(&["ACL", "SETUSER", "ratekeeper", &format!("+{command}")]).expect("it obeys");
        store.ready(PATIENCE).await.expect("it works again");
        for (place, quota) in quotas.iter().enumerate() {
            let now = counted(place, quota).await;
            // A leaky bucket and a token bucket of a day hardly drain meanwhile.
            assert_eq!(now, before[place] + admitted[place], "without {command}: {quota}");
            store.reset(rule("any"), (&Key::from(place as u64)).into()).await.expect("it is forgotten");
        }
    }
}
