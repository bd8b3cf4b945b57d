//! The callers of one budget: they wait in line, and one at a time decides when to send.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::budget::{Budget, Sent, Turn};
use crate::field::Report;

/// The callers of one budget.
#[derive(Debug)]
pub(crate) struct Queue {
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
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            budget: Mutex::new(Budget::new()),
            next: Semaphore::new(1),
            changed: Notify::new(),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Waits until a request may be sent, at most until `deadline`. Fails as soon as it is clear that it
    /// cannot be sent by then.
    ///
    /// Dropping the future leaves the line.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        deadline: Instant,
        max_waiting: usize,
    ) -> Result<Ticket, Unsent> {
        {
            let mut budget = self.budget();
            if budget.is_unlimited() {
                return Ok(self.ticket(&mut budget));
            }
        }
        let place = Place::take(self, max_waiting).ok_or(Unsent::Full)?;
        self.check(deadline, place.ahead)?;
        // Held until the request is sent or given up, so that nobody else is next.
        let Ok(_next) = timeout_at(deadline, self.next.acquire()).await else {
            return Err(Unsent::TooLong(self.budget().expected_wait(Instant::now(), 0)));
        };
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the budget is read, so that no change is missed.
            changed.as_mut().enable();
            let until = {
                let now = Instant::now();
                let mut budget = self.budget();
                match budget.turn(now) {
                    Turn::Now => return Ok(self.ticket(&mut budget)),
                    // The budget allows it, so it is better sent early than not at all.
                    Turn::Paced(_) if now >= deadline => return Ok(self.ticket(&mut budget)),
                    Turn::Paced(until) => until.min(deadline),
                    Turn::Blocked(until) if until > deadline => {
                        return Err(Unsent::TooLong(until.duration_since(now)));
                    }
                    Turn::Blocked(until) => until,
                }
            };
            tokio::select! {
                () = sleep_until(until) => {}
                () = changed => {}
            }
        }
    }

    /// Fails if the last of `ahead` callers and this one cannot be sent by `deadline`.
    fn check(&self, deadline: Instant, ahead: usize) -> Result<(), Unsent> {
        let now = Instant::now();
        let wait = self.budget().expected_wait(now, ahead);
        if now + wait > deadline { Err(Unsent::TooLong(wait)) } else { Ok(()) }
    }

    /// Stops everyone until then.
    #[cfg(feature = "fleet")]
    pub(crate) fn pause_until(&self, until: Instant) -> bool {
        let is_new = self.budget().pause_until(until);
        self.changed.notify_waiters();
        is_new
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

/// A place in the line, left on drop.
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
