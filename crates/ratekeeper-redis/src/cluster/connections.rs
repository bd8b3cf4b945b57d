//! The servers that have the counters.

use std::sync::Arc;

use ratekeeper_core::StoreError;
use tokio::time::Instant;

use super::deciding::Deciding;
use super::multi_slot::{self, MultiSlot};
use super::routing::Router;
use crate::connection::{Breaker, Connection};
use crate::request::pending::make;
use crate::request::{Ask, Charges, Intent, Kind};

/// The connections to the servers that have the counters.
#[derive(Clone, Debug)]
pub(crate) enum Connections {
    /// One server has all of them.
    One(Connection),
    /// They are spread over a cluster.
    Cluster(Arc<Router>),
}

impl Connections {
    /// Puts something in line. It always gets an answer.
    pub(crate) fn put(&self, ask: Ask) {
        match self {
            Self::One(connection) => connection.put(ask),
            Self::Cluster(router) => router.put(ask),
        }
    }

    pub(crate) fn breaker(&self) -> &Breaker {
        match self {
            Self::One(connection) => connection.breaker(),
            Self::Cluster(router) => router.breaker(),
        }
    }

    /// The error to answer with instead of asking.
    pub(crate) fn refuses(&self, charges: &Charges) -> Option<StoreError> {
        match self {
            Self::One(connection) => connection.refuses(),
            // A denial by one node is a denial, so it refuses only if all nodes do.
            Self::Cluster(router) => {
                let mut refused = charges.iter().map(|charge| router.refuses(charge.counter.slot));
                refused.try_fold(None, |_, error| error.map(Some)).flatten()
            }
        }
    }

    /// Asks about a request, with one question for all charges that may be asked together.
    pub(crate) fn ask(&self, charges: Charges, deadline: Instant, peek: bool) -> Deciding {
        let one = |charges: Charges| {
            let intent = if peek { Intent::Peek } else { Intent::Charge };
            let charge = |reply| Kind::Charge { charges, intent, reply: Some(reply) };
            let (ask, pending) = make(deadline, charge);
            self.put(ask);
            Deciding::alone(pending, self.clone())
        };
        if charges.len() == 1 || matches!(self, Self::One(_)) {
            return one(charges);
        }
        let (mut groups, order) = multi_slot::by(charges, |charge| charge.counter.slot);
        if groups.len() == 1 {
            return one(groups.swap_remove(0));
        }
        Deciding::MultiSlot(Box::new(MultiSlot::ask(groups, order, self.clone(), deadline, peek)))
    }

    /// Lets the connections end once everything that waits is answered.
    pub(crate) fn close(&self) {
        match self {
            Self::One(connection) => connection.close(),
            Self::Cluster(router) => router.close(),
        }
    }
}
