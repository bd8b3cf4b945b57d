//! Decisions in Redis by every algorithm that keeps only a few numbers, compared with a plain `INCR` for each
//! request; and requests with three rules.
//!
//! `redis_algorithms` shows every table; `redis_algorithms 0 2` shows those with these numbers.

use std::sync::Arc;

use ratekeeper_bench::redis_bench::{
    Askers, Contest, Host, Load, Subject, connect, many, one, plenty, rule, run, store,
};
use ratekeeper_core::{HOUR, Quota};
use ratekeeper_servers::RedisServer;

/// More than is ever charged.
const LIMIT: u32 = 100_000_000;

fn main() {
    let wanted: Vec<usize> = std::env::args().skip(1).filter_map(|number| number.parse().ok()).collect();
    let wanted = |number: usize| wanted.is_empty() || wanted.contains(&number);
    run(async {
        let server = Arc::new(RedisServer::start().unwrap_or_else(|error| panic!("{error}")));
        let (url, store) = (server.url(), store(&server).await);
        let host = Host::Redis(server);
        let mut contest = Contest::new().with("`INCR`", Subject::Incr(connect(&url).await), &host);
        for quota in [
            plenty(),
            Quota::leaky_bucket(LIMIT, HOUR),
            Quota::fixed_window(LIMIT, HOUR),
            Quota::sliding_window(LIMIT, HOUR),
        ] {
            let name = quota.algorithm().name();
            let ours = Subject::Ours(store.clone(), Arc::new(vec![(rule(name), quota)]));
            contest = contest.with(name, ours, &host);
        }
        let loads = [
            ("64 in flight, 100,000 keys", many(), 64, 100_000),
            ("512 in flight, 100,000 keys", many(), 512, 200_000),
            ("64 in flight, one key", one(), 64, 100_000),
        ];
        for (number, (title, keys, in_flight, total)) in loads.into_iter().enumerate() {
            if wanted(number) {
                contest.rates(title, &Load { askers: Askers::Tasks, keys, in_flight, total }).await;
            }
        }
        if wanted(3) {
            contest.latencies("one alone, 100,000 keys", &many(), 2_000).await;
        }

        let three = Arc::new(["a", "b", "c"].map(|name| (rule(name), plenty())).to_vec());
        let contest = Contest::new()
            .with("one rule", Subject::Ours(store.clone(), Arc::new(vec![three[0]])), &host)
            .with("three rules", Subject::Ours(store.clone(), Arc::clone(&three)), &host)
            .with("three rules, one by one", Subject::OneByOne(store, three), &host);
        for (number, (title, in_flight, total)) in
            [("a request alone", 1, 5_000), ("64 in flight", 64, 50_000)].into_iter().enumerate()
        {
            if wanted(4 + number) {
                contest.rates(title, &Load { askers: Askers::Tasks, keys: many(), in_flight, total }).await;
            }
        }
    });
}
