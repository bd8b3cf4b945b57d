//! The queue of one budget: callers wait in the order of their arrival, and the first one decides when to send.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::budget::{Budget, Sent, Turn};
use crate::field::Report;
use crate::quota::{KnownQuota, Wait};

/// The callers of one budget.
#[derive(Debug)]
pub(crate) struct Queue {
    /// The budget's name.
    key: Box<str>,
    budget: Mutex<Budget>,
    /// Held by the caller that is next. Others wait for it in the order of their arrival.
    next: Semaphore,
    /// A response has changed the budget.
    changed: Notify,
    waiting: AtomicUsize,
}

/// Why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// It would have to wait this long.
    TooLong(Duration),
    /// Too many others are waiting.
    Full,
}

impl Queue {
    pub(crate) fn new(key: &str) -> Arc<Self> {
        Arc::new(Self {
            key: key.into(),
            budget: Mutex::new(Budget::new()),
            next: Semaphore::new(1),
            changed: Notify::new(),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Waits until a request may be sent, at most until `deadline`. Fails as soon as it is clear that it
    /// cannot be sent by then.
    ///
    /// Dropping the future leaves the queue.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        deadline: Instant,
        max_waiting: usize,
        quota: Option<&KnownQuota>,
    ) -> Result<Ticket, Unsent> {
        if quota.is_none() {
            let mut budget = self.budget();
            if budget.is_unlimited() {
                return Ok(self.ticket(&mut budget));
            }
        }
        let place = Place::take(self, max_waiting).ok_or(Unsent::Full)?;
        let now = Instant::now();
        let wait = self.budget().expected_wait(now, place.ahead);
        check(now + wait, deadline)?;
        // Held until the request is sent or given up, so that nobody else is next.
        let Ok(_next) = timeout_at(deadline, self.next.acquire()).await else {
            return Err(Unsent::TooLong(self.budget().expected_wait(Instant::now(), place.ahead)));
        };
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the budget is read, so that no change is missed.
            changed.as_mut().enable();
            let now = Instant::now();
            let turn = self.budget().turn(now);
            let until = match turn {
                Turn::Paced(until) if now < deadline => until.min(deadline),
                Turn::Blocked(until) => until,
                // If the budget allows it, it is better sent early than not at all.
                Turn::Now | Turn::Paced(_) => {
                    let Some(until) = self.charge(quota).await else {
                        return Ok(self.ticket(&mut self.budget()));
                    };
                    check(until, deadline)?;
                    // No response changes the quota, so the store is not asked again before then.
                    sleep_until(until).await;
                    continue;
                }
            };
            check(until, deadline)?;
            tokio::select! {
                () = sleep_until(until) => {}
                () = changed => {}
            }
        }
    }

    /// Takes a request from a known quota, or returns when to try again.
    async fn charge(&self, quota: Option<&KnownQuota>) -> Option<Instant> {
        match quota?.charge(&self.key).await {
            Ok(()) => None,
            Err(Wait::Quota(wait)) => Some(Instant::now() + wait),
            #[cfg(feature = "fleet")]
            Err(Wait::Pause(left)) => {
                let now = Instant::now();
                self.budget().pause(left, now, fastrand::f64());
                Some(now + left)
            }
        }
    }

    /// The budget's name.
    #[cfg(feature = "fleet")]
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Whether dropping it would lose nothing: nobody waits, and nothing holds requests back.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0 && self.budget().expected_wait(Instant::now(), 0).is_zero()
    }

    fn ticket(self: &Arc<Self>, budget: &mut Budget) -> Ticket {
        let sent = budget.sent(Instant::now(), fastrand::f64());
        Ticket { queue: Arc::clone(self), sent, is_finished: false }
    }

    fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fails if a request that is sent then is too late.
fn check(until: Instant, deadline: Instant) -> Result<(), Unsent> {
    if until > deadline {
        return Err(Unsent::TooLong(until.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

/// A request that is in flight. Dropped without a response, it counts as abandoned.
#[derive(Debug)]
pub(crate) struct Ticket {
    queue: Arc<Queue>,
    sent: Sent,
    is_finished: bool,
}

impl Ticket {
    /// Takes in a response. Returns whether it starts or extends a pause.
    pub(crate) fn received(mut self, report: &Report, pause: Option<Duration>) -> bool {
        self.is_finished = true;
        let is_paused =
            self.queue.budget().received(self.sent, report, pause, Instant::now(), fastrand::f64());
        self.queue.changed.notify_waiters();
        is_paused
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_finished {
            self.queue.budget().abandoned(self.sent);
            self.queue.changed.notify_waiters();
        }
    }
}

/// A place in the queue, left on drop.
struct Place<'a> {
    waiting: &'a AtomicUsize,
    ahead: usize,
}

impl<'a> Place<'a> {
    fn take(queue: &'a Queue, max: usize) -> Option<Self> {
        let enter = |waiting: usize| (waiting < max).then_some(waiting + 1);
        let ahead = queue.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter).ok()?;
        Some(Self { waiting: &queue.waiting, ahead })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
