//! Asks many times, and takes the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};

use tokio::time::{MissedTickBehavior, interval};

use super::{Host, Subject, host};

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Askers {
    /// A task for each request that is in flight, on the threads of the runtime, as a server has them.
    Tasks,
    /// One task for all, on the thread that waits for the end. The connections are served on another.
    OneTask,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Load {
    /// Who asks.
    pub askers: Askers,
    /// The keys, one after the other.
    pub keys: Arc<Vec<String>>,
    /// How many ask at the same time.
    pub in_flight: usize,
    /// How many times they ask, all together.
    pub total: usize,
}

/// How fast it was, and how much of the server's time it took.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Requests a second.
    pub rate: f64,
    /// Microseconds of the server for each.
    pub cpu: f64,
}

/// How long one takes that asks now and then, and how much of its own time.
#[derive(Clone, Copy, Debug)]
pub struct Paced {
    /// Microseconds until the answer: the median.
    pub p50: f64,
    /// Microseconds of the processor for each, of this process.
    pub cpu: f64,
}

/// Measures once.
///
/// # Panics
///
/// When a request is denied: what was to be measured is admissions.
pub async fn measure(subject: &Subject, host: &Host, load: &Load) -> Measured {
    let cpu = host.cpu_used();
    let started = Instant::now();
    match load.askers {
        Askers::Tasks => ask_by_tasks(subject, load).await,
        Askers::OneTask => ask_by_one(subject, load).await,
    }
    let elapsed = started.elapsed();
    let cpu = host.cpu_used() - cpu;
    let each = |seconds: f64| seconds * 1e6 / load.total as f64;
    Measured { rate: load.total as f64 / elapsed.as_secs_f64(), cpu: each(cpu.as_secs_f64()) }
}

async fn ask_by_one(subject: &Subject, load: &Load) {
    let keys = load.keys.iter().cycle().take(load.total);
    let asking = stream::iter(keys).map(|key| {
        let mut subject = subject.clone();
        async move { assert!(subject.admits(key).await, "what is measured is admissions") }
    });
    asking.buffer_unordered(load.in_flight).for_each(|()| async {}).await;
}

async fn ask_by_tasks(subject: &Subject, load: &Load) {
    let next = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..load.in_flight)
        .map(|_| {
            let (mut subject, load, next) = (subject.clone(), load.clone(), Arc::clone(&next));
            tokio::spawn(async move {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= load.total {
                        return;
                    }
                    let key = &load.keys[i % load.keys.len()];
                    assert!(subject.admits(key).await, "what is measured is admissions");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task ends well");
    }
}

/// How long one takes that asks alone, in microseconds: the median.
///
/// # Panics
///
/// When a request is denied.
pub async fn latency(subject: &Subject, keys: &Arc<Vec<String>>, total: usize) -> f64 {
    ask_alone(subject, keys, total, None).await
}

/// The same of one that asks at a pace, so that all have slept before; and what that takes.
///
/// # Panics
///
/// When a request is denied.
pub async fn paced(subject: &Subject, keys: &Arc<Vec<String>>, total: usize, every: Duration) -> Paced {
    let cpu = host::own_cpu_used();
    let p50 = ask_alone(subject, keys, total, Some(every)).await;
    let cpu = host::own_cpu_used().saturating_sub(cpu);
    Paced { p50, cpu: cpu.as_secs_f64() * 1e6 / total as f64 }
}

async fn ask_alone(subject: &Subject, keys: &Arc<Vec<String>>, total: usize, every: Option<Duration>) -> f64 {
    let (mut subject, keys) = (subject.clone(), Arc::clone(keys));
    // Where requests are handled, and not on the thread that waits for the end.
    let asking = tokio::spawn(async move {
        let mut times = Vec::with_capacity(total);
        let mut pace = every.map(interval);
        if let Some(pace) = &mut pace {
            pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        for i in 0..total {
            if let Some(pace) = &mut pace {
                pace.tick().await;
            }
            let started = Instant::now();
            assert!(subject.admits(&keys[i % keys.len()]).await, "what is measured is admissions");
            times.push(started.elapsed().as_nanos());
        }
        times.sort_unstable();
        times[total / 2] as f64 / 1e3
    });
    asking.await.expect("the task ends well")
}

/// How many of so many who come at once are admitted.
///
/// # Panics
///
/// When one is not answered.
pub async fn admitted_at_once(subject: &Subject, key: &str, requests: usize) -> usize {
    let tasks: Vec<_> = (0..requests)
        .map(|_| {
            let (mut subject, key) = (subject.clone(), key.to_owned());
            tokio::spawn(async move { subject.admits(&key).await })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += usize::from(task.await.expect("the task ends well"));
    }
    admitted
}
