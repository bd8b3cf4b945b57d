//! Our client and our server. `ratekeeper-bench` has the long version of this.

use std::time::Duration;

use ratekeeper::store::{Charge, RuleName, Store};
use ratekeeper::{Limiter, LimiterBuilder, Quota, SECOND};
use ratekeeper_client::Pacer;
use ratekeeper_redis::{RedisStore, Servers};
use ratekeeper_servers::RedisServer;

use crate::support::{client, load, rule, serve_limited};

const SPAN: Duration = Duration::from_millis(2_500);
const RATE: u32 = 100;

fn quotas() -> [(&'static str, Vec<Quota>); 6] {
    [
        ("token", vec![Quota::token_bucket(RATE, SECOND)]),
        ("leaky", vec![Quota::leaky_bucket(RATE, SECOND)]),
        ("fixed", vec![Quota::fixed_window(RATE, SECOND)]),
        ("sliding", vec![Quota::sliding_window(RATE, SECOND)]),
        ("log", vec![Quota::sliding_log(RATE, SECOND)]),
        ("several", vec![Quota::per_second(RATE).burst(20), Quota::fixed_window(100 * RATE, 10 * SECOND)]),
    ]
}

/// Fifty callers of each server, all at the same time.
async fn check(store: impl Fn(LimiterBuilder) -> LimiterBuilder) {
    let mut running = Vec::new();
    for (name, quotas) in quotas() {
        let rules = quotas.into_iter().enumerate().map(|(n, quota)| rule(&format!("{name}-{n}"), quota));
        let server = serve_limited(store(Limiter::builder()).rules(rules).build().unwrap()).await;
        running.push(tokio::spawn(async move {
            let (client, record) = client(Pacer::new());
            load(&client, server, 50, SPAN).await;
            (name, record.refused(), record.admitted())
        }));
    }
    for server in running {
        let (name, refused, admitted) = server.await.unwrap();
        assert_eq!(refused, 0, "{name}");
        // A busy machine is slow. How much of the quota is used is what the simulation and the benchmark check.
        assert!(admitted >= 10, "{name}: {admitted}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_memory_none_of_fifty_callers_is_ever_refused() {
    check(|limiter| limiter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_redis_none_of_fifty_callers_is_ever_refused() {
    let redis = RedisServer::start().unwrap();
    // The server must not fail on a busy machine, because it would admit everything.
    let servers = Servers::one(redis.url()).unwrap();
    let store = RedisStore::builder(servers).timeout(Duration::from_secs(1)).build().unwrap();
    // Until it is connected, it decides nothing, and the server does not describe its limits.
    let (rule, quota) = (RuleName::new("connected").unwrap(), Quota::per_second(1));
    while store.charge(&[Charge::new(rule, "", &quota)]).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    check(|limiter| limiter.store(store.clone())).await;
}
