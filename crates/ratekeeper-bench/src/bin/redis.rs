//! Decisions in Redis, compared with a plain `INCR` and with a script for each request.
//!
//! `redis` shows every table; `redis 0 2` shows those with these numbers.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_bench::redis_bench::{
    Askers, Contest, Host, Load, Subject, connect, many, one, plenty, rule, run, store,
};
use ratekeeper_servers::RedisServer;

fn main() {
    let wanted: Vec<usize> = std::env::args().skip(1).filter_map(|number| number.parse().ok()).collect();
    let wanted = |number: usize| wanted.is_empty() || wanted.contains(&number);
    run(async {
        let server = Arc::new(RedisServer::start().unwrap_or_else(|error| panic!("{error}")));
        let url = server.url();
        let ours = Subject::Ours(store(&server).await, Arc::new(vec![(rule("r"), plenty())]));
        let host = Host::Redis(server);
        let contest = Contest::new()
            .with("`INCR`", Subject::Incr(connect(&url).await), &host)
            .with("a script each", Subject::script(connect(&url).await), &host)
            .with("Ratekeeper", ours, &host);
        let loads = [
            ("64 in flight, 100,000 keys", many(), 64, 100_000),
            ("512 in flight, 100,000 keys", many(), 512, 200_000),
            ("64 in flight, one key", one(), 64, 100_000),
            ("512 in flight, one key", one(), 512, 200_000),
        ];
        for (number, (title, keys, in_flight, total)) in loads.into_iter().enumerate() {
            if wanted(number) {
                contest.rates(title, &Load { askers: Askers::Tasks, keys, in_flight, total }).await;
            }
        }
        if wanted(4) {
            contest.latencies("one alone, 100,000 keys", &many(), 3_000).await;
        }
        if wanted(7) {
            let every = Duration::from_millis(1);
            contest.paces("one a millisecond, 100,000 keys", &many(), 1_000, every).await;
        }
        let loads = [
            ("64 in flight by one task, 100,000 keys", many(), 64, 100_000),
            ("64 in flight by one task, one key", one(), 64, 100_000),
        ];
        for (number, (title, keys, in_flight, total)) in loads.into_iter().enumerate() {
            if wanted(5 + number) {
                contest.rates(title, &Load { askers: Askers::OneTask, keys, in_flight, total }).await;
            }
        }
    });
}
