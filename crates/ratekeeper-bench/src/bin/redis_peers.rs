//! Decisions in Redis, compared with other limiters: redis-cell, throttlecrab's server, limitador and
//! tower-rate-tier.
//!
//! `REDIS_CELL` names redis-cell's module (`libredis_cell.so`) and `THROTTLECRAB` throttlecrab's server;
//! those that are not named are left out.

use std::sync::Arc;

use ratekeeper_bench::redis_bench::{
    Askers, Contest, Host, Limitador, Load, Subject, Throttlecrab, admitted_at_once, connect, many, plenty,
    rate_tier, rule, run, store,
};
use ratekeeper_core::Quota;
use ratekeeper_servers::RedisServer;

/// More than is ever charged.
const PLENTY: u32 = 100_000_000;
const LIMIT: u32 = 10;
const AT_ONCE: usize = 200;

fn main() {
    run(async {
        let module = std::env::var("REDIS_CELL").ok();
        let options = RedisServer::builder();
        let options = match &module {
            Some(path) => options.config(format!("loadmodule {path}")),
            None => options,
        };
        let server = Arc::new(options.start().unwrap_or_else(|error| panic!("{error}")));
        let (url, store) = (server.url(), store(&server).await);
        let host = Host::Redis(server);
        let crab = Throttlecrab::start().map(Arc::new);

        let ours = |quota: Quota| Subject::Ours(store.clone(), Arc::new(vec![(rule("r"), quota)]));
        let mut contest = Contest::new().with("`INCR`", Subject::Incr(connect(&url).await), &host).with(
            "Ratekeeper",
            ours(plenty()),
            &host,
        );
        let mut exact = vec![("Ratekeeper", ours(Quota::per_hour(LIMIT)))];
        if module.is_some() {
            let name = "redis-cell's `CL.THROTTLE`";
            let subject = |burst: u32| {
                let url = url.clone();
                async move { Subject::Cell(connect(&url).await, burst) }
            };
            contest = contest.with(name, subject(PLENTY).await, &host);
            exact.push((name, subject(LIMIT - 1).await));
        } else {
            println!("redis-cell is left out: REDIS_CELL does not name its module.\n");
        }
        if let Some(crab) = crab {
            let name = "throttlecrab's server";
            let subject = |burst: u32| {
                let url = crab.url();
                async move { Subject::Throttlecrab(connect(&url).await, burst) }
            };
            contest = contest.with(name, subject(PLENTY).await, &Host::Throttlecrab(Arc::clone(&crab)));
            exact.push((name, subject(LIMIT).await));
        } else {
            println!("throttlecrab is left out: THROTTLECRAB does not name its server.\n");
        }
        let limitador = |limit: u32| {
            let url = url.clone();
            async move { Subject::Limitador(Limitador::new(&url, limit.into()).await) }
        };
        contest = contest.with("limitador's scripts", limitador(PLENTY).await, &host).with(
            "tower-rate-tier's Redis storage",
            rate_tier(&url, PLENTY).await,
            &host,
        );
        exact.push(("limitador's scripts", limitador(LIMIT).await));
        exact.push(("tower-rate-tier's Redis storage", rate_tier(&url, LIMIT).await));

        let load = Load { askers: Askers::Tasks, keys: many(), in_flight: 64, total: 50_000 };
        contest.rates("64 in flight, 100,000 keys", &load).await;
        contest.latencies("one alone, 100,000 keys", &many(), 1_500).await;

        println!("| {AT_ONCE} at once, a limit of {LIMIT} | admitted |\n|---|---|");
        for (name, subject) in exact {
            println!("| {name} | {} |", admitted_at_once(&subject, "a caller", AT_ONCE).await);
        }
    });
}
