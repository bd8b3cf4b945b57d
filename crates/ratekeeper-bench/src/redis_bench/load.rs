//! Sends many requests, and measures the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};

use tokio::time::{MissedTickBehavior, interval};

use super::{Host, Subject, host};

/// Who sends the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Askers {
    /// A task for each request in flight, on the threads of the runtime, as in a server.
    Tasks,
    /// One task for all, on the thread that waits for the end. The connections are served on another.
    OneTask,
}

/// The requests to send.
#[derive(Clone, Debug)]
pub struct Load {
    /// Who sends them.
    pub askers: Askers,
    /// The keys, in turn.
    pub keys: Arc<Vec<String>>,
    /// How many requests are in flight at the same time.
    pub in_flight: usize,
    /// How many requests are sent in total.
    pub total: usize,
}

/// How fast it was, and how much of the server's time it took.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Requests per second.
    pub rate: f64,
    /// Microseconds of the server's processor time per request.
    pub cpu: f64,
}

/// How long an occasional request takes, and how much of this process's time.
#[derive(Clone, Copy, Debug)]
pub struct Paced {
    /// Microseconds until the answer: the median.
    pub p50: f64,
    /// Microseconds of this process's processor time per request.
    pub cpu: f64,
}

/// Measures once.
///
/// # Panics
///
/// If a request is denied: the benchmark measures admissions.
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

/// How long a request takes when only one is in flight, in microseconds: the median.
///
/// # Panics
///
/// If a request is denied.
pub async fn latency(subject: &Subject, keys: &Arc<Vec<String>>, total: usize) -> f64 {
    ask_alone(subject, keys, total, None).await
}

/// The same at a pace that lets everything sleep in between; and what that costs.
///
/// # Panics
///
/// If a request is denied.
pub async fn paced(subject: &Subject, keys: &Arc<Vec<String>>, total: usize, every: Duration) -> Paced {
    let cpu = host::own_cpu_used();
    let p50 = ask_alone(subject, keys, total, Some(every)).await;
    let cpu = host::own_cpu_used().saturating_sub(cpu);
    Paced { p50, cpu: cpu.as_secs_f64() * 1e6 / total as f64 }
}

async fn ask_alone(subject: &Subject, keys: &Arc<Vec<String>>, total: usize, every: Option<Duration>) -> f64 {
    let (mut subject, keys) = (subject.clone(), Arc::clone(keys));
    // On the threads that handle requests, and not on the one that waits for the end.
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

/// How many of `requests` concurrent requests are admitted.
///
/// # Panics
///
/// If one is not answered.
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
