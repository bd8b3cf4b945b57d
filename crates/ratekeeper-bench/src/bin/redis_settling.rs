//! Requests that are settled in Redis after they were charged, compared with those that are not: how long
//! charges wait, and what it costs the server.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use ratekeeper_bench::redis_bench::{Host, many, plenty, rule, run, store};
use ratekeeper_core::{Charge, Debit, Receipt, Refund, Store, StoreError};
use ratekeeper_redis::RedisStore;
use ratekeeper_servers::RedisServer;
use tokio::time::{MissedTickBehavior, interval};

/// How a charge is settled after it was made.
#[derive(Clone, Copy, Debug)]
enum Settle {
    Nothing,
    Refund,
    Debit,
    /// One or the other, in turn.
    Both,
}

/// How many callers ask at the same time.
const CALLERS: usize = 50;
/// How long each row of a table takes.
const LASTING: Duration = Duration::from_secs(2);

/// Charges a key and settles; returns how long the charge took, in nanoseconds.
async fn request(store: &RedisStore, key: &str, settle: Settle, odd: bool) -> u128 {
    let (rule, quota) = (rule("settled"), plenty());
    let charge = Charge::new(rule, key, &quota).cost(3);
    let started = Instant::now();
    let decision = store.charge(&[charge]).await.expect("the store decides");
    let took = started.elapsed().as_nanos();
    let receipt = Receipt::of(&decision, rule).expect("what is measured is admissions");
    let refused = match (settle, odd) {
        (Settle::Nothing, _) => false,
        (Settle::Refund, _) | (Settle::Both, false) => {
            is_refused(store.refund(&[Refund::new(rule, key, 1).receipt(receipt)]).into_future())
        }
        (Settle::Debit, _) | (Settle::Both, true) => {
            is_refused(store.debit(&[Debit::new(charge.cost(1)).receipt(receipt)]).into_future())
        }
    };
    assert!(!refused, "more is to be settled than can be");
    took
}

/// Whether it is known immediately that something that was handed over is not done.
fn is_refused(settling: impl Future<Output = Result<(), StoreError>>) -> bool {
    let settling = pin!(settling);
    matches!(settling.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Err(_)))
}

/// Sends `rate` requests a second, or as many as possible if `rate` is 0. Returns requests per second, the
/// median and the 99th percentile of their times in microseconds, and the server's time per request.
async fn measure(store: &RedisStore, host: &Host, rate: u32, settle: Settle) -> (f64, f64, f64, f64) {
    let (keys, cpu, started) = (many(), host.cpu_used(), Instant::now());
    let tasks: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (store, keys) = (store.clone(), Arc::clone(&keys));
            tokio::spawn(async move {
                let mut ticks = (rate > 0).then(|| interval(Duration::from_secs(1) * CALLERS as u32 / rate));
                if let Some(ticks) = &mut ticks {
                    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                }
                let mut times = Vec::new();
                for i in (caller..).step_by(CALLERS) {
                    if started.elapsed() >= LASTING {
                        break;
                    }
                    if let Some(ticks) = &mut ticks {
                        ticks.tick().await;
                    }
                    times.push(request(&store, &keys[i % keys.len()], settle, i / CALLERS % 2 == 1).await);
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.expect("the task ends well"));
    }
    let elapsed = started.elapsed().as_secs_f64();
    // What is handed over later is done later, so this waits for all settlements: they are part of the cost.
    store.refund(&[Refund::new(rule("settled"), "nobody", 0)]).await.expect("the store settles");
    let cpu = (host.cpu_used() - cpu).as_secs_f64() * 1e6 / times.len() as f64;
    times.sort_unstable();
    let at = |share: usize| times[times.len() * share / 100] as f64 / 1e3;
    (times.len() as f64 / elapsed, at(50), at(99), cpu)
}

fn main() {
    run(async {
        let server = Arc::new(RedisServer::start().unwrap_or_else(|error| panic!("{error}")));
        let store = store(&server).await;
        let host = Host::Redis(server);
        measure(&store, &host, 0, Settle::Both).await;
        println!("| | requests a second | p50, µs | p99, µs | server CPU each, µs |\n|---|---|---|---|---|");
        for rate in [2_000, 10_000, 0] {
            for settle in [Settle::Nothing, Settle::Refund, Settle::Debit, Settle::Both] {
                let (rate, p50, p99, cpu) = measure(&store, &host, rate, settle).await;
                println!("| {settle:?} | {rate:.0} | {p50:.0} | {p99:.0} | {cpu:.2} |");
            }
        }
    });
}
