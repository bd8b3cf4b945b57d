//! Users that lack the permission for a command.

use ratekeeper_core::{Charge, DAY, Key, Quota, Store, StoreErrorKind};
use ratekeeper_servers::RedisServer;

use super::{DEADLINE, hasty, story, watched};
use crate::support::{PATIENCE, patient, rule};

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
    for command in ["getrange", "setrange"] {
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
