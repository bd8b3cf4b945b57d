//! Sliding logs that remember some hundreds of admissions, compared with a sorted set for each; and how many
//! requests are answered in time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use ratekeeper_bench::redis_bench::{
    Askers, Contest, Host, Load, Subject, connect, measure, rule, run, store, store_as,
};
use ratekeeper_core::{Charge, HOUR, Quota, Store};
use ratekeeper_redis::RedisStore;
use ratekeeper_servers::RedisServer;

const LOG: Quota = Quota::sliding_log(100_000_000, HOUR);

/// For how long the callers in `in_time` ask.
const A_WHILE: Duration = Duration::from_secs(2);

fn callers(count: usize) -> Arc<Vec<String>> {
    Arc::new((0..count).map(|i| format!("user:{i:08}")).collect())
}

fn main() {
    run(async {
        for admissions in [10, 100, 1_000] {
            let server = Arc::new(RedisServer::start().unwrap_or_else(|error| panic!("{error}")));
            let ours = Subject::Ours(store(&server).await, Arc::new(vec![(rule("log"), LOG)]));
            let sorted_set = Subject::sorted_set(connect(&server.url()).await);
            let host = Host::Redis(Arc::clone(&server));
            // So many callers that a log hardly grows during the measurement.
            let keys = callers(2_000);
            let fill = Load {
                askers: Askers::Tasks,
                keys: Arc::clone(&keys),
                in_flight: 64,
                total: 2_000 * admissions,
            };
            for subject in [&sorted_set, &ours] {
                measure(subject, &host, &fill).await;
            }
            let contest = Contest::new().with("a sorted set", sorted_set, &host).with("ours", ours, &host);
            let title = format!("64 in flight, logs of {admissions}");
            contest.rates(&title, &Load { total: 2_000, ..fill }).await;
        }
        println!(
            "| callers at once, logs of 1,000, within 5 ms | answered a second | in time |\n|---|---|---|"
        );
        for callers in [16, 64, 256] {
            in_time(callers).await;
        }
    });
}

/// Callers that ask again immediately after an answer, and a millisecond after a failure.
async fn in_time(count: usize) {
    let server = RedisServer::start().unwrap_or_else(|error| panic!("{error}"));
    let patient = store(&server).await;
    let keys = callers(count);
    for _ in 0..1_000 {
        join_all(keys.iter().map(|key| admitted(&patient, key))).await;
    }
    let store = store_as(&server, |builder| builder.timeout(Duration::from_millis(5))).await;
    let started = Instant::now();
    let asking = (0..count).map(|i| {
        let (store, keys) = (store.clone(), Arc::clone(&keys));
        tokio::spawn(async move {
            let (mut answered, mut failed) = (0_u64, 0_u64);
            while started.elapsed() < A_WHILE {
                if admitted(&store, &keys[i]).await {
                    answered += 1;
                } else {
                    failed += 1;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            (answered, failed)
        })
    });
    let (mut answered, mut failed) = (0, 0);
    for asked in join_all(asking.collect::<Vec<_>>()).await {
        let (a, f) = asked.unwrap_or_else(|error| panic!("{error}"));
        (answered, failed) = (answered + a, failed + f);
    }
    let share = answered as f64 / (answered + failed) as f64;
    println!(
        "| {count} | {:.0} | {:.0} % |",
        answered as f64 / started.elapsed().as_secs_f64(),
        share * 100.0
    );
}

/// Whether a charge is answered.
async fn admitted(store: &RedisStore, key: &str) -> bool {
    store.charge(&[Charge::new(rule("log"), key, &LOG)]).await.is_ok()
}
