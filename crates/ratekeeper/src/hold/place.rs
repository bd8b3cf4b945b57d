//! A place in a leaky bucket's queue.

use std::time::Duration;

use ratekeeper_core::{Algorithm, Charge, Decision, Outcome, Refund, Retry, Store, StoreError};
use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};

use super::Patience;
use crate::error::LimiterError;
use crate::limiter::{Limiter, Plan, Planned, Shadowing};
use crate::observe::{self, How};

/// The decision by which a request is held back.
pub(crate) struct Held {
    pub(crate) decision: Box<Decision>,
    /// Whether it was made in this process, because the store failed.
    pub(crate) is_local: bool,
    /// Makes the shadow charges when the request is forwarded.
    shadowing: Option<Shadowing>,
}

impl Held {
    pub(crate) fn new(decision: &Decision, is_local: bool) -> Self {
        Self { decision: Box::new(decision.clone()), is_local, shadowing: None }
    }

    /// Sets what to do when the request is forwarded.
    pub(crate) fn shadowing(self, shadowing: Option<Shadowing>) -> Self {
        Self { shadowing, ..self }
    }

    /// Gives back what was charged for a request that is not forwarded after all. Of its places in leaky
    /// buckets' queues, only those with nobody behind them are given back; everything else is.
    pub(crate) fn give_back(&self, limiter: &Limiter, plan: &Plan) {
        let local = limiter.local_store().filter(|_| self.is_local);
        // A decision made in this process includes only the rules that decide locally.
        let has_decided = |planned: &&Planned| {
            local.is_none() || plan.rules().rule(planned.rule).local_quota(&planned.quota).is_some()
        };
        let charged = plan.entries().iter().filter(has_decided).zip(self.decision.receipts());
        let refunds = charged
            .map(|(planned, (rule, receipt))| Refund::new(rule, &planned.key, planned.cost).receipt(receipt));
        let refunds: SmallVec<[Refund<'_>; 4]> = refunds.collect();
        // The call hands the refunds over; nothing waits for them.
        match local {
            Some(local) => drop(local.refund(&refunds)),
            None => drop(limiter.store().refund(&refunds)),
        }
        refunds.iter().for_each(|refund| limiter.came_back(refund.rule, refund.key.to_key()));
    }
}

/// A request's place in the queues that it waits in. If the request goes away, the place is given back with
/// everything else that was charged.
pub(crate) struct Place {
    held: Option<(Limiter, Plan, Held)>,
}

impl Place {
    pub(crate) fn new(limiter: Limiter, plan: Plan, held: Held) -> Self {
        Self { held: Some((limiter, plan, held)) }
    }

    fn observe(&self, f: impl FnOnce(&Plan)) {
        if let Some((_, plan, _)) = &self.held {
            f(plan);
        }
    }

    /// Called when it is the request's turn.
    pub(crate) fn take(&mut self) {
        if let Some((_, _, Held { shadowing: Some(shadowing), .. })) = self.held.take() {
            shadowing();
        }
    }
}

impl Limiter {
    /// The denial of a plan that a leaky bucket would hold back for longer than its caller is willing to wait,
    /// since it `started`.
    ///
    /// This looks before anything is charged: a place in a queue can be given back only while nobody stands
    /// behind it, so charging first would leave places that nobody holds.
    pub(crate) async fn held_too_long(
        &self,
        plan: &Plan,
        patience: Patience,
        started: Instant,
    ) -> Result<Option<Decision>, StoreError> {
        let Patience::Own(Some(patience)) = patience else { return Ok(None) };
        let left = || patience.saturating_sub(started.elapsed());
        let most = left();
        let may_be = |planned: &&Planned| {
            let quota = plan.rules().charge_of(planned).quota;
            quota.algorithm() == Algorithm::LeakyBucket && quota.full_refill() > most
        };
        let queues: SmallVec<[&Planned; 1]> = plan.entries().iter().filter(may_be).collect();
        if queues.is_empty() {
            return Ok(None);
        }
        let looked = self.store().peek(&plan.charges()).await?;
        let left = left();
        if !looked.is_admitted() || looked.delay() <= left {
            return Ok(None);
        }
        // A look leaves a counter as it was under an earlier quota, to be re-read each time. A charge brings it
        // to the quota in force, even one that never fits.
        let never = queues.iter().filter_map(|planned| {
            let charge = plan.rules().charge_of(planned);
            Some(charge.cost(charge.quota.max().checked_add(1)?))
        });
        let never: SmallVec<[Charge<'_>; 1]> = never.collect();
        if !never.is_empty() {
            self.store().charge(&never).await?;
        }
        Ok(Some(deny(&looked, left)))
    }

    /// Waits for a decision's delay, if it has one. If that is longer than `patience`, the decision denies
    /// after all. That happens only if others got in line after [`held_too_long`](Self::held_too_long) had
    /// looked.
    pub(crate) async fn hold_back(
        &self,
        plan: Plan,
        decision: Decision,
        how: How,
        patience: Option<Duration>,
    ) -> Result<Decision, LimiterError> {
        let is_local = how == How::Locally;
        self.glance(decision.at());
        let shadowed = (!is_local && !plan.shadows().is_empty()).then(|| plan.clone());
        if decision.is_delayed() {
            let until = Instant::now() + decision.delay();
            // Dropping this gives back what was charged.
            let mut place = Place::new(self.clone(), plan, Held::new(&decision, is_local));
            if let Some(patience) = patience.filter(|patience| decision.delay() > *patience) {
                let denied = deny(&decision, patience);
                place.observe(|plan| observe::decided(plan, &denied, how));
                return Ok(denied);
            }
            let Ok(ticket) = self.room().enter() else {
                place.observe(observe::no_room);
                return Err(LimiterError::NoRoom);
            };
            place.observe(|plan| observe::decided(plan, &decision, how));
            if timeout_at(until, ticket.closed()).await.is_ok() {
                return Err(LimiterError::NoRoom);
            }
            place.take();
        } else {
            observe::decided(&plan, &decision, how);
        }
        if let Some(plan) = shadowed {
            self.shadow_admitted(&plan, &decision);
        }
        Ok(decision)
    }
}

/// Turns an admission whose delay is longer than `patience` into a denial.
fn deny(decision: &Decision, patience: Duration) -> Decision {
    let mut denied = Decision::new(decision.at());
    for (rule, outcome) in decision.outcomes() {
        let late = outcome.delay().saturating_sub(patience);
        let outcome = match late.is_zero() {
            true => *outcome,
            // The queue is empty when everything ahead has left.
            false => Outcome::denied(
                outcome.limit(),
                outcome.remaining(),
                outcome.delay(),
                outcome.refill_after(),
                Retry::After(late),
            ),
        };
        denied.push(rule, outcome);
    }
    denied
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((limiter, plan, held)) = self.held.take() {
            held.give_back(&limiter, &plan);
        }
    }
}
