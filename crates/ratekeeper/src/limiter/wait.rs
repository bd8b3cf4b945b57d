//! Step 5: waiting, which is a reservation.
//!
//! A bucket admits a charge whose caller waits with a delay: the tokens are taken, and the caller sleeps. So
//! the order is that of arrival at the store, and nobody asks twice. A caller that goes away gives back what
//! it took.
//!
//! Windows and logs cannot reserve. A caller that waits for one sleeps for `retry_after` and asks again. The
//! callers of this process that wait for one key form a queue, of which only the first asks.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ratekeeper_core::{Algorithm, Charge, Decision, Key, Outcome, Refund, Retry, RuleName, Store};
use smallvec::SmallVec;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::{How, Limiter, Patience, Plan, Planned, Verdict};
use crate::error::LimiterError;
use crate::observe::{Said, WaitingGauge};
use crate::rule::Rules;

/// The callers that wait: how many there may be, and who is first.
#[derive(Debug)]
pub(crate) struct Waiters {
    max: usize,
    permits: Arc<Semaphore>,
    /// Has no permits. It is closed with the limiter, and waiting for it waits for that.
    closing: Semaphore,
    queues: Mutex<HashMap<QueueKey, Arc<Semaphore>>>,
}

type QueueKey = (RuleName, Key);

/// A caller cannot wait: too many wait already, or the limiter is closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overloaded;

impl From<AcquireError> for Overloaded {
    fn from(_: AcquireError) -> Self {
        Self
    }
}

impl From<Overloaded> for LimiterError {
    fn from(_: Overloaded) -> Self {
        Self::Overloaded
    }
}

/// One of the bounded number of callers that wait.
struct Permit {
    _permit: OwnedSemaphorePermit,
    _gauge: WaitingGauge,
}

impl Waiters {
    pub(crate) fn new(max: usize) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS);
        let (permits, closing) = (Arc::new(Semaphore::new(max)), Semaphore::new(0));
        Self { max, permits, closing, queues: Mutex::default() }
    }

    /// How many callers wait.
    pub(crate) fn count(&self) -> usize {
        self.max - self.permits.available_permits()
    }

    /// Releases all callers that wait. From now on nobody waits.
    pub(crate) fn close(&self) {
        self.permits.close();
        self.closing.close();
        self.queues().values().for_each(|queue| queue.close());
    }

    fn enter(&self) -> Result<Permit, Overloaded> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| Overloaded)?;
        Ok(Permit { _permit: permit, _gauge: WaitingGauge::new() })
    }

    /// Sleeps until then, unless the limiter is closed.
    async fn sleep_until(&self, then: Instant) -> Result<(), Overloaded> {
        match timeout_at(then, self.closing.acquire()).await {
            Err(_) => Ok(()),
            Ok(_) => Err(Overloaded),
        }
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<QueueKey, Arc<Semaphore>>> {
        // Nothing here panics halfway through.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins a queue, and waits until nobody is ahead or, at the latest, until the deadline. Returns whether
    /// the caller is first.
    async fn join(self: &Arc<Self>, key: QueueKey, deadline: Option<Instant>) -> Result<Place, Overloaded> {
        let queue = Arc::clone(self.queues().entry(key).or_insert_with(|| Arc::new(Semaphore::new(1))));
        let mut place = Place { turn: None, queue: Some(Arc::clone(&queue)), key, waiters: Arc::clone(self) };
        // The semaphore of tokio is fair.
        place.turn = match deadline {
            None => Some(queue.acquire_owned().await?),
            Some(deadline) => timeout_at(deadline, queue.acquire_owned()).await.ok().transpose()?,
        };
        Ok(place)
    }
}

/// A place in the queue for a key. Dropping it lets the next one go first.
struct Place {
    /// Set while it is first.
    turn: Option<OwnedSemaphorePermit>,
    /// Always set, until it is dropped.
    queue: Option<Arc<Semaphore>>,
    key: QueueKey,
    waiters: Arc<Waiters>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.turn = None;
        let mut queues = self.waiters.queues();
        self.queue = None;
        // Each of the others in the queue holds it, too.
        if queues.get(&self.key).is_some_and(|queue| Arc::strong_count(queue) == 1) {
            queues.remove(&self.key);
        }
    }
}

/// What was charged for a caller that sleeps. Dropping it gives that back.
struct Reservation {
    charged: Option<(Limiter, Arc<Rules>, Plan, Decision, bool)>,
}

impl Reservation {
    /// The caller proceeds: nothing is given back.
    fn keep(&mut self) {
        self.charged = None;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some((limiter, rules, plan, decision, is_local)) = self.charged.take() {
            limiter.give_back(&rules, &plan, &decision, is_local);
        }
    }
}

/// Sleeps for the delay of a decision. Dropping it gives back what was charged.
pub(crate) type Delay = Pin<Box<dyn Future<Output = Result<(), Overloaded>> + Send>>;

impl Limiter {
    /// Delays the caller of an admitted plan, unless too many wait already: then what was charged is given
    /// back.
    pub(crate) fn delay(
        &self,
        rules: &Arc<Rules>,
        plan: &Plan,
        decision: &Decision,
        how: How,
    ) -> Result<Delay, Overloaded> {
        let is_local = how == How::Locally;
        let until = after(Instant::now(), decision.delay());
        let charged = (self.clone(), Arc::clone(rules), plan.clone(), decision.clone(), is_local);
        let mut reservation = Reservation { charged: Some(charged) };
        let permit = self.waiters().enter().inspect_err(|_| plan.observe_overload(rules))?;
        plan.observe_decision(rules, decision, how);
        let waiters = Arc::clone(self.waiters());
        Ok(Box::pin(async move {
            let slept = waiters.sleep_until(until).await;
            drop(permit);
            if slept.is_ok() {
                reservation.keep();
            }
            slept
        }))
    }

    /// Gives back what an admitted decision has charged. A leaky bucket takes back only the last place of its
    /// queue.
    fn give_back(&self, rules: &Rules, plan: &Plan, decision: &Decision, is_local: bool) {
        let name = |planned: &Planned| rules.rule(planned.rule).name;
        let receipts = decision.receipts().collect::<SmallVec<[_; 4]>>();
        // A decision made in this process includes only the rules that decide locally.
        let refunds = plan.outcomes(rules, decision).zip(receipts).map(|((planned, _), (_, receipt))| {
            Refund::new(name(planned), &planned.key, planned.cost).receipt(receipt)
        });
        let refunds: SmallVec<[Refund<'_>; 4]> = refunds.collect();
        // The call hands the refunds over; nothing waits for them.
        match self.local_store().filter(|_| is_local) {
            Some(local) => {
                drop(local.refund(&refunds));
                self.forgive(&refunds);
            }
            None => drop(self.store().refund(&refunds)),
        }
    }

    /// Waits until a plan is admitted, but no longer than `up_to`.
    pub(crate) async fn admit_within(
        &self,
        rules: Arc<Rules>,
        plan: Plan,
        up_to: Option<Duration>,
    ) -> Result<Decision, LimiterError> {
        let deadline = up_to.map(|up_to| after(Instant::now(), up_to));
        let key_of = |planned: &Planned| (rules.rule(planned.rule).name, planned.key);
        let overloaded = |_: &Overloaded| plan.observe_overload(&rules);
        let (mut permit, mut place, mut how) = (None, None, How::AtOnce);
        // Whoever waits for one of these keys came first.
        let queue = {
            let queues = self.waiters().queues();
            plan.entries.iter().map(key_of).find(|key| queues.contains_key(key))
        };
        if let Some(key) = queue {
            permit = Some(self.waiters().enter().inspect_err(overloaded)?);
            place = Some(self.waiters().join(key, deadline).await.inspect_err(overloaded)?);
            how = How::Waited;
        }
        loop {
            let asked = Instant::now();
            let left =
                deadline.map_or(Charge::MAX_WAIT, |deadline| deadline.saturating_duration_since(asked));
            let patience = left.min(Charge::MAX_WAIT);
            let answer = self.ask(&rules, &plan, Patience::UpTo(patience)).await;
            let (decision, decided) = match self.judge(&rules, &plan, Patience::UpTo(patience), answer) {
                Verdict::Decided { decision, failure: None } => (decision, how),
                Verdict::Decided { decision, failure: Some(_) } => (decision, How::Locally),
                Verdict::Allowed(error) | Verdict::Unavailable { error, .. } => {
                    plan.observe_failure(&rules, &error, Said::Undecided, None);
                    return Err(LimiterError::Store(error));
                }
            };
            let is_worth_it = deadline.is_none_or(|_| {
                let mut outcomes = plan.outcomes(&rules, &decision);
                outcomes.all(|(planned, outcome)| ready_after(planned, &rules, patience, outcome) <= left)
            });
            let retry_at = decision.retry().and_then(Retry::after).map(|wait| after(asked, wait));
            let retry_at = retry_at.filter(|_| is_worth_it);
            let tightest = decision.tightest().map(|(name, _)| name);
            let waited_for = plan.entries.iter().map(key_of).find(|(rule, _)| Some(*rule) == tightest);
            let (Some(retry_at), Some(key)) = (retry_at, waited_for) else {
                // It is admitted, or it would take too long.
                drop((permit, place));
                return self.finish(&rules, &plan, decision, decided).await;
            };
            if permit.is_none() {
                permit = Some(self.waiters().enter().inspect_err(overloaded)?);
            }
            if place.as_ref().is_none_or(|place: &Place| place.key != key) {
                // One queue at a time, so that no two callers wait for each other.
                drop(place.take());
                place = Some(self.waiters().join(key, deadline).await.inspect_err(overloaded)?);
            }
            how = How::Waited;
            self.waiters().sleep_until(retry_at).await.inspect_err(overloaded)?;
        }
    }

    /// Sleeps for the delay of a decision, and makes the charges in shadow.
    async fn finish(
        &self,
        rules: &Arc<Rules>,
        plan: &Plan,
        decision: Decision,
        how: How,
    ) -> Result<Decision, LimiterError> {
        self.check(decision.at());
        if decision.is_delayed() {
            self.delay(rules, plan, &decision, how)?.await?;
        } else {
            plan.observe_decision(rules, &decision, how);
        }
        if decision.is_admitted() && how != How::Locally {
            self.shadow(rules, plan, None, None);
        }
        Ok(decision)
    }
}

/// How long it takes until a caller that a rule has denied can proceed, if it waits and asks again.
fn ready_after(planned: &Planned, rules: &Rules, patience: Duration, outcome: &Outcome) -> Duration {
    let algorithm = rules.rule(planned.rule).quota(&planned.quota).algorithm();
    match (outcome.retry(), algorithm) {
        (None, _) => Duration::ZERO,
        (Some(Retry::Never), _) => Duration::MAX,
        // It was denied because this takes longer than it was ready to wait.
        (Some(Retry::After(wait)), Algorithm::TokenBucket) => wait.saturating_add(patience),
        // It leaves the queue when all that are in it have left.
        (Some(Retry::After(_)), Algorithm::LeakyBucket) => outcome.reset_after(),
        (Some(Retry::After(wait)), _) => wait,
    }
}

/// The moment after this wait. A few years later, if the sum cannot be represented.
fn after(moment: Instant, wait: Duration) -> Instant {
    moment.checked_add(wait).unwrap_or_else(|| moment + Duration::from_secs(1 << 28))
}
