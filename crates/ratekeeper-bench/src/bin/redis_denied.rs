//! A caller that is over its limit, and keeps asking.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ratekeeper_bench::redis_bench::{rule, run, store};
use ratekeeper_core::{Charge, MemoryStore, Quota, Store};
use ratekeeper_servers::RedisServer;

const REQUESTS: u32 = 100_000;
/// How long it keeps asking.
const LASTING: Duration = Duration::from_secs(5);

/// Sends requests, and returns how long each took, in nanoseconds.
async fn ask<S: Store>(store: &S, quota: &Quota) -> f64 {
    let charges = [Charge::new(rule("r"), "somebody", quota)];
    let started = Instant::now();
    for _ in 0..REQUESTS {
        let decision = store.charge(black_box(&charges)).await.expect("the store decides");
        assert!(!decision.is_admitted(), "what is measured is denials");
    }
    started.elapsed().as_nanos() as f64 / f64::from(REQUESTS)
}

fn main() {
    run(async {
        let server = Arc::new(RedisServer::start().unwrap_or_else(|error| panic!("{error}")));
        let quota = Quota::per_hour(1);
        let (ours, memory) = (store(&server).await, MemoryStore::new());
        let admitted = [Charge::new(rule("r"), "somebody", &quota)];
        for answer in [ours.charge(&admitted).await, memory.charge(&admitted).await] {
            assert!(answer.expect("the store decides").is_admitted(), "the first of them passes");
        }
        // The commands of a script are counted, too, so only the script calls are considered.
        let calls = || -> u64 {
            let mut connection = server.connect().expect("the server answers");
            let info: String =
                redis::cmd("INFO").arg("commandstats").query(&mut connection).expect("the server tells");
            let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
            line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
        };
        let (mut ratios, mut times) = (Vec::new(), Vec::new());
        let (before, started) = (calls(), Instant::now());
        while started.elapsed() < LASTING {
            let (here, there) = (ask(&ours, &quota).await, ask(&memory, &quota).await);
            times.push((here, there));
            ratios.push(there / here);
        }
        let asked = calls() - before;
        let seconds = started.elapsed().as_secs_f64();
        ratios.sort_by(f64::total_cmp);
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (here, there) = times[times.len() / 2];
        println!("| a caller over its limit | |\n|---|---|");
        println!("| rounds of {REQUESTS} requests | {} in {seconds:.1} s |", times.len());
        println!("| a denial, Redis store | {here:.0} ns |");
        println!("| a denial, memory store | {there:.0} ns |");
        println!("| of the memory store's speed | {:.2}× |", ratios[ratios.len() / 2]);
        println!("| times that Redis was asked | {asked}, {:.2} a second |", asked as f64 / seconds);
    });
}
