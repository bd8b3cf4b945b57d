//! Decisions in Redis, beside a plain `INCR` for each request.
//!
//! `redis` runs every row; `redis N` runs one.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use tollgate_core::{Charge, Quota, RuleName, Store};
use tollgate_redis::{RedisStore, Servers};
use tollgate_servers::RedisServer;

/// One that is measured: a request for each number.
#[derive(Clone)]
enum Subject {
    /// A plain `INCR`, as the client comes.
    Incr(MultiplexedConnection),
    /// The best that a script for each request can do.
    Script(MultiplexedConnection, Arc<redis::Script>),
    Ours(RedisStore, Quota, RuleName),
}

/// A token bucket in the shortest script that reads the server's clock.
const GCRA: &str = r"
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local unit, fill = tonumber(ARGV[1]), tonumber(ARGV[2])
local tat = tonumber(redis.call('GET', KEYS[1]) or 0)
if tat < now then tat = now end
tat = tat + unit
if tat - now > fill then return -1 end
redis.call('SET', KEYS[1], string.format('%.0f', tat), 'PX', math.ceil((tat - now) / 1000))
return tat - now
";

impl Subject {
    async fn ask(&mut self, key: &str) -> bool {
        match self {
            Self::Incr(connection) => {
                let count: i64 =
                    redis::cmd("INCR").arg(key).query_async(connection).await.expect("INCR works");
                count > 0
            }
            Self::Script(connection, script) => {
                let mut call = script.key(key);
                call.arg(36_000_000).arg(3_600_000_000_000_000_i64);
                let left: i64 = call.invoke_async(connection).await.expect("the script works");
                left >= 0
            }
            Self::Ours(store, quota, rule) => {
                let charges = [Charge::new(*rule, key, quota)];
                store.charge(&charges).await.expect("the store decides").is_admitted()
            }
        }
    }
}

/// How long it takes, and how much of the server's time.
struct Measured {
    rate: f64,
    cpu: f64,
}

async fn measure(
    server: &RedisServer,
    subject: &Subject,
    keys: &Arc<Vec<String>>,
    in_flight: usize,
    total: usize,
) -> Measured {
    let next = Arc::new(AtomicUsize::new(0));
    let cpu = server.cpu_used().expect("the server tells its time");
    let started = Instant::now();
    let tasks: Vec<_> = (0..in_flight)
        .map(|_| {
            let (mut subject, keys, next) = (subject.clone(), Arc::clone(keys), Arc::clone(&next));
            tokio::spawn(async move {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= total {
                        return;
                    }
                    assert!(subject.ask(&keys[i % keys.len()]).await, "what is measured is admissions");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task ends well");
    }
    let elapsed = started.elapsed();
    let cpu = server.cpu_used().expect("the server tells its time") - cpu;
    Measured { rate: total as f64 / elapsed.as_secs_f64(), cpu: cpu.as_secs_f64() * 1e6 / total as f64 }
}

async fn latency(subject: &Subject, keys: &[String], total: usize) -> f64 {
    let mut subject = subject.clone();
    let mut times = Vec::with_capacity(total);
    for i in 0..total {
        let started = Instant::now();
        assert!(subject.ask(&keys[i % keys.len()]).await, "what is measured is admissions");
        times.push(started.elapsed().as_nanos());
    }
    times.sort_unstable();
    times[total / 2] as f64 / 1e3
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn run<F: Future>(future: F) -> F::Output {
    let threads = std::env::var("WORKERS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    runtime.expect("a runtime can be made").block_on(future)
}

fn main() {
    run(async {
        let server = RedisServer::start().unwrap_or_else(|error| panic!("{error}"));
        let rows: Vec<usize> = std::env::args().skip(1).filter_map(|row| row.parse().ok()).collect();
        let wanted = |row: usize| rows.is_empty() || rows.contains(&row);
        let client = redis::Client::open(server.url()).expect("the server has an address");
        let connect =
            || async { client.get_multiplexed_async_connection().await.expect("the server answers") };
        let store = RedisStore::builder(Servers::one(server.url()).expect("an address"))
            .timeout(Duration::from_secs(5));
        let store = store.build().expect("a store can be made");
        store.ready(Duration::from_secs(5)).await.expect("the server works");
        let rule = RuleName::new("r").expect("a name");
        let subjects = [
            ("INCR", Subject::Incr(connect().await)),
            ("a script each", Subject::Script(connect().await, Arc::new(redis::Script::new(GCRA)))),
            ("ours", Subject::Ours(store, Quota::per_hour(100).burst(100_000_000), rule)),
        ];
        let many: Arc<Vec<String>> = Arc::new((0..100_000).map(|i| format!("user:{i:08}")).collect());
        let one = Arc::new(vec!["user:00000000".to_owned()]);
        let rounds = 5;
        for (row, (name, keys, in_flight, total)) in [
            ("64 in flight, 100,000 keys", &many, 64, 100_000),
            ("512 in flight, 100,000 keys", &many, 512, 200_000),
            ("64 in flight, one key", &one, 64, 100_000),
            ("512 in flight, one key", &one, 512, 200_000),
        ]
        .into_iter()
        .enumerate()
        {
            if !wanted(row) {
                continue;
            }
            println!("{name}");
            let mut results: Vec<Vec<Measured>> = subjects.iter().map(|_| Vec::new()).collect();
            for _ in 0..=rounds {
                for ((_, subject), results) in subjects.iter().zip(&mut results) {
                    results.push(measure(&server, subject, keys, in_flight, total).await);
                }
            }
            let base: Vec<(f64, f64)> =
                results[0].iter().map(|measured| (measured.rate, measured.cpu)).collect();
            for ((name, _), results) in subjects.iter().zip(&results) {
                let of = |value: &dyn Fn(&Measured, &(f64, f64)) -> f64| {
                    median(results.iter().zip(&base).skip(1).map(|(m, b)| value(m, b)).collect())
                };
                println!(
                    "  {name:15} {:9.0}/s {:5.2}x   cpu {:5.2} us {:5.2}x",
                    of(&|m, _| m.rate),
                    of(&|m, b| m.rate / b.0),
                    of(&|m, _| m.cpu),
                    of(&|m, b| m.cpu / b.1)
                );
            }
        }
        if wanted(4) {
            println!("one alone");
            let mut results: Vec<Vec<f64>> = subjects.iter().map(|_| Vec::new()).collect();
            for _ in 0..=rounds {
                for ((_, subject), results) in subjects.iter().zip(&mut results) {
                    results.push(latency(subject, &many, 3_000).await);
                }
            }
            let base = results[0].clone();
            for ((name, _), results) in subjects.iter().zip(&results) {
                let p50 = median(results[1..].to_vec());
                let ratio = median(results.iter().zip(&base).skip(1).map(|(p50, base)| p50 / base).collect());
                println!("  {name:15} p50 {p50:6.1} us {ratio:5.2}x");
            }
        }
    });
}
