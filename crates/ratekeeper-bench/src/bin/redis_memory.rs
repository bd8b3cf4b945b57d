//! How much of a server's memory counters take, compared with a plain string with a time to live under the
//! same key.

use std::sync::Arc;

use ratekeeper_bench::redis_bench::{KEYS, many, rule, run, store};
use ratekeeper_core::{Charge, HOUR, Quota, Store};
use ratekeeper_redis::RedisStore;
use ratekeeper_servers::RedisServer;
use redis::Value;

/// How often each key is charged: a counter that was changed may take more memory than a new one.
const CHARGES: usize = 3;
const ADMISSIONS: u32 = 1_000;

fn number(value: &Value) -> f64 {
    match value {
        Value::Int(number) => *number as f64,
        other => panic!("not a number: {other:?}"),
    }
}

/// The memory of the whole server per key, and what the server reports for one of them.
fn taken(server: &RedisServer, before: u64, name: &str) -> (f64, f64) {
    let used = server.used_memory().expect("the server tells") - before;
    let usage = server.command(&["MEMORY", "USAGE", name, "SAMPLES", "0"]).expect("the server tells");
    (used as f64 / KEYS as f64, number(&usage))
}

fn empty(server: &RedisServer) -> u64 {
    server.command(&["FLUSHALL", "SYNC"]).expect("the server obeys");
    server.used_memory().expect("the server tells")
}

async fn charge_all(store: &RedisStore, quota: Quota) {
    let keys = many();
    for _ in 0..CHARGES {
        let tasks: Vec<_> = (0..64)
            .map(|task| {
                let (store, keys) = (store.clone(), Arc::clone(&keys));
                tokio::spawn(async move {
                    for key in keys.iter().skip(task).step_by(64) {
                        let decision = store.charge(&[Charge::new(rule("r"), key, &quota)]).await;
                        assert!(decision.expect("the store decides").is_admitted());
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("the task ends well");
        }
    }
}

fn main() {
    run(async {
        let server = RedisServer::start().unwrap_or_else(|error| panic!("{error}"));
        let store = store(&server).await;
        let name = |key: &str| format!("ratekeeper:r:{{{key}}}");
        let sample = name(&many()[KEYS / 2]);

        let before = empty(&server);
        let mut connection = server.connect().expect("the server answers");
        for keys in many().chunks(1_000) {
            let mut pipeline = redis::pipe();
            for (i, key) in keys.iter().enumerate() {
                pipeline.cmd("SET").arg(name(key)).arg(1_000_000 + i).arg("PX").arg(3_600_000).ignore();
            }
            pipeline.query::<()>(&mut connection).expect("the server obeys");
        }
        let mut rows =
            vec![("a number as a string, with a time to live".to_owned(), taken(&server, before, &sample))];
        let before = empty(&server);
        for keys in many().chunks(1_000) {
            let mut pipeline = redis::pipe();
            for (i, key) in keys.iter().enumerate() {
                pipeline.cmd("SET").arg(name(key)).arg(format!("{i:010}")).arg("PX").arg(3_600_000).ignore();
            }
            pipeline.query::<()>(&mut connection).expect("the server obeys");
        }
        rows.push(("ten characters, with a time to live".to_owned(), taken(&server, before, &sample)));
        for quota in [
            Quota::per_hour(100),
            Quota::leaky_bucket(100, HOUR),
            Quota::fixed_window(100, HOUR),
            Quota::sliding_window(100, HOUR),
        ] {
            let before = empty(&server);
            charge_all(&store, quota).await;
            rows.push((format!("Ratekeeper, {}", quota.algorithm().name()), taken(&server, before, &sample)));
        }
        println!(
            "| bytes of {KEYS} keys of {} bytes | of the server, each | `MEMORY USAGE` |\n|---|---|---|",
            sample.len()
        );
        for (name, (used, usage)) in rows {
            println!("| {name} | {used:.1} | {usage:.0} |");
        }

        empty(&server);
        let quota = Quota::sliding_log(2 * ADMISSIONS, HOUR);
        let mut usages = Vec::new();
        for admission in 0..ADMISSIONS {
            let decision = store.charge(&[Charge::new(rule("r"), "somebody", &quota)]).await;
            assert!(decision.expect("the store decides").is_admitted());
            if [1, 100, ADMISSIONS].contains(&(admission + 1)) {
                let usage =
                    server.command(&["MEMORY", "USAGE", &name("somebody")]).expect("the server tells");
                usages.push((admission + 1, number(&usage)));
            }
        }
        println!(
            "\n| Ratekeeper, sliding log of | `MEMORY USAGE` | for each admission after the first |\n|---|---|---|"
        );
        for (admissions, usage) in &usages {
            let more = (usage - usages[0].1) / f64::from((admissions - 1).max(1));
            println!("| {admissions} admissions | {usage:.0} | {more:.1} |");
        }
    });
}
