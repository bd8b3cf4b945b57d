//! A place in a leaky bucket's queue.

use tokio::time::{Instant, timeout_at};
use tollgate_core::{Algorithm, Decision, Receipt, Refund, Store};

use crate::error::LimiterError;
use crate::limiter::{Limiter, Plan};

/// The decision by which a request is held back.
pub(crate) struct Held {
    pub(crate) decision: Box<Decision>,
    /// Whether it was made in this process, as the store failed.
    pub(crate) is_local: bool,
}

impl Held {
    pub(crate) fn new(decision: &Decision, is_local: bool) -> Self {
        Self { decision: Box::new(decision.clone()), is_local }
    }

    /// Gives back the places in leaky buckets' queues.
    pub(crate) fn give_back<S: Store>(&self, limiter: &Limiter<S>, plan: &Plan) {
        for planned in plan.entries() {
            let charge = limiter.charge_of(planned);
            if charge.quota.algorithm() != Algorithm::LeakyBucket {
                continue;
            }
            if let Some(receipt) = Receipt::of(&self.decision, charge.rule) {
                let refund = [Refund::new(charge.rule, charge.key, charge.cost).receipt(receipt)];
                // The call hands the refund over; there is nobody to wait for it.
                match limiter.local_store() {
                    Some(local) if self.is_local => drop(local.refund(&refund)),
                    _ => drop(limiter.store().refund(&refund)),
                }
            }
        }
    }
}

/// A request's place in the queues that it waits in, which is given back if the request goes away.
pub(crate) struct Place<S: Store> {
    held: Option<(Limiter<S>, Plan, Held)>,
}

impl<S: Store> Place<S> {
    pub(crate) fn new(limiter: Limiter<S>, plan: Plan, held: Held) -> Self {
        Self { held: Some((limiter, plan, held)) }
    }

    /// It is the request's turn.
    pub(crate) fn take(&mut self) {
        self.held = None;
    }
}

impl<S: Store> Limiter<S> {
    /// Waits for a decision's delay, if it has one.
    pub(crate) async fn hold_back(
        &self,
        plan: Plan,
        decision: Decision,
        is_local: bool,
    ) -> Result<Decision, LimiterError> {
        if decision.is_delayed() {
            let until = Instant::now() + decision.delay();
            let mut place = Place::new(self.clone(), plan, Held::new(&decision, is_local));
            let ticket = self.room().enter().map_err(|_| LimiterError::NoRoom)?;
            if timeout_at(until, ticket.closed()).await.is_ok() {
                return Err(LimiterError::NoRoom);
            }
            place.take();
        }
        Ok(decision)
    }
}

impl<S: Store> Drop for Place<S> {
    fn drop(&mut self) {
        if let Some((limiter, plan, held)) = self.held.take() {
            held.give_back(&limiter, &plan);
        }
    }
}
