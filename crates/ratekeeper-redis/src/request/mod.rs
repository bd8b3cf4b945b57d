//! Questions to Redis, and where their answers go.

pub(crate) mod pending;
pub(crate) mod settlement;

use std::time::Duration;

use ratekeeper_core::{Charge, Decision, Quota, Receipt, RuleName, StoreError};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::name::{Counted, Names};
use crate::request::settlement::{Settlement, What};

/// A charge that outlives the call.
#[derive(Clone, Debug)]
pub(crate) struct OwnCharge {
    pub(crate) counter: Counted,
    pub(crate) quota: Quota,
    pub(crate) cost: u32,
    pub(crate) wait_up_to: Option<Duration>,
}

impl OwnCharge {
    pub(crate) fn new(charge: &Charge<'_>, names: &Names) -> Self {
        let counter = names.counted(charge.rule, charge.key);
        Self { counter, quota: *charge.quota, cost: charge.cost, wait_up_to: charge.wait_up_to }
    }

    pub(crate) fn by_ref(&self) -> Charge<'_> {
        let charge = Charge::new(self.counter.rule, &self.counter.key, &self.quota).cost(self.cost);
        self.wait_up_to.map_or(charge, |wait| charge.wait_up_to(wait))
    }
}

/// The charges of one request that live on one node. Usually there is one; it is large, and handed around.
pub(crate) type Charges = Vec<OwnCharge>;

/// Where the answer goes; `None` once it was given.
pub(crate) type Reply<T> = Option<oneshot::Sender<Result<T, StoreError>>>;

/// What was decided.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) decision: Decision,
    /// What a peek would have said before, if this is only a part of a request.
    pub(crate) before: Option<Decision>,
    /// What was charged if it was admitted, to be able to give it back. Empty after a peek.
    pub(crate) charges: Charges,
}

/// The answer to a question about charges.
#[derive(Debug)]
pub(crate) enum Answer {
    Decided(Decided),
    /// Nothing was done: each counter has to be asked about separately.
    Split(Split),
}

/// Charges whose counters are in one slot, but not on one node: the slot is moving from one node to another.
#[derive(Debug)]
pub(crate) struct Split {
    pub(crate) charges: Charges,
    /// When the caller stops waiting.
    pub(crate) deadline: Instant,
    /// Whether nothing is charged.
    pub(crate) peek: bool,
}

impl Decided {
    /// The settlements that give back everything that was charged.
    pub(crate) fn give_back(&self) -> Vec<Ask> {
        let refund = |(charge, (_, receipt)): (&OwnCharge, (RuleName, Receipt))| {
            let counter = charge.counter;
            let what = What::Refund { cost: charge.cost, receipt: Some(receipt) };
            let settlement = Box::new(Settlement { counter, what });
            Ask::new(Kind::Settle { settlement, reply: None }, Instant::now() + SETTLE_TIMEOUT)
        };
        // A decision that denied has no receipts.
        self.charges.iter().zip(self.decision.receipts()).map(refund).collect()
    }
}

/// A question to Redis.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) kind: Kind,
    /// When the caller stops waiting.
    pub(crate) deadline: Instant,
    /// How often it was sent, and not done.
    pub(crate) attempts: u8,
    /// How often it was sent to a node that does not have its counters.
    pub(crate) redirects: u8,
    /// Its slot is moving to the node that is asked, which must be told so with `ASKING`.
    pub(crate) asking: bool,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Charge { charges: Charges, intent: Intent, reply: Reply<Answer> },
    Settle { settlement: Box<Settlement>, reply: Reply<()> },
    Reset { counter: Box<Counted>, reply: Reply<()> },
}

/// Why charges are asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    Charge,
    /// Other parts of the same request are charged elsewhere.
    ChargePart,
    /// Nothing is charged.
    Peek,
}

impl Ask {
    pub(crate) const fn new(kind: Kind, deadline: Instant) -> Self {
        Self { kind, deadline, attempts: 0, redirects: 0, asking: false }
    }

    /// The slot of its counters on a cluster.
    pub(crate) fn slot(&self) -> u16 {
        match &self.kind {
            Kind::Charge { charges, .. } => charges.first().map_or(0, |charge| charge.counter.slot),
            Kind::Settle { settlement, .. } => settlement.counter.slot,
            Kind::Reset { counter, .. } => counter.slot,
        }
    }

    pub(crate) fn fail(mut self, error: &StoreError) {
        self.expire(error);
    }

    /// Answers now, though it may still be done.
    pub(crate) fn expire(&mut self, error: &StoreError) {
        match &mut self.kind {
            // A caller that has gone needs no answer, and its charge is given back when Redis answers.
            Kind::Charge { reply: Some(reply), .. } if reply.is_closed() => {}
            Kind::Charge { reply, .. } => {
                if let Some(reply) = reply.take() {
                    drop(reply.send(Err(error.clone())));
                }
            }
            Kind::Settle { reply, .. } | Kind::Reset { reply, .. } => {
                if let Some(reply) = reply.take() {
                    drop(reply.send(Err(error.clone())));
                }
            }
        }
    }

    /// Whether it is a settlement or reset that nobody waits for.
    pub(crate) const fn is_unheard(&self) -> bool {
        matches!(self.kind, Kind::Settle { reply: None, .. } | Kind::Reset { reply: None, .. })
    }

    /// Why charges are asked about, if it is about charges.
    pub(crate) const fn intent(&self) -> Option<Intent> {
        match self.kind {
            Kind::Charge { intent, .. } => Some(intent),
            Kind::Settle { .. } | Kind::Reset { .. } => None,
        }
    }

    /// Whether the caller has gone, so that it need not be done. Settlements and resets are always done.
    pub(crate) fn is_abandoned(&self) -> bool {
        match &self.kind {
            Kind::Charge { reply, .. } => reply.as_ref().is_none_or(oneshot::Sender::is_closed),
            Kind::Settle { .. } | Kind::Reset { .. } => false,
        }
    }

    /// The settlement, if it is one.
    pub(crate) fn settlement(&self) -> Option<&Settlement> {
        match &self.kind {
            Kind::Settle { settlement, .. } => Some(settlement),
            Kind::Charge { .. } | Kind::Reset { .. } => None,
        }
    }

    /// The counter that this changes, if it is a settlement or a reset.
    pub(crate) fn changed(&self) -> Option<&Counted> {
        match &self.kind {
            Kind::Settle { settlement, .. } => Some(&settlement.counter),
            Kind::Reset { counter, .. } => Some(counter),
            Kind::Charge { .. } => None,
        }
    }

    /// The charges, if it is about charges.
    pub(crate) fn charges(&self) -> Option<&Charges> {
        match &self.kind {
            Kind::Charge { charges, .. } => Some(charges),
            Kind::Settle { .. } | Kind::Reset { .. } => None,
        }
    }

    /// Passes a decision on, and returns what is to be given back.
    ///
    /// If the caller has gone, its request went away before it was admitted, and the charges are given back.
    /// If the caller was told that the store failed, its rules may have let the request in, and the charges
    /// stay.
    pub(crate) fn decided(self, decision: Decision, before: Option<Decision>) -> Vec<Self> {
        let Kind::Charge { charges, intent, reply: Some(reply) } = self.kind else { return Vec::new() };
        let charges = if intent == Intent::Peek { Charges::new() } else { charges };
        match reply.send(Ok(Answer::Decided(Decided { decision, before, charges }))) {
            Err(Ok(Answer::Decided(unheard))) => unheard.give_back(),
            _ => Vec::new(),
        }
    }

    /// Whether it is about several counters, which may be on different nodes while their slot is moving.
    pub(crate) fn is_divisible(&self) -> bool {
        let Some([first, rest @ ..]) = self.charges().map(Vec::as_slice) else { return false };
        rest.iter().any(|charge| charge.counter != first.counter)
    }

    /// Answers that each counter has to be asked about separately. Nothing was done so far.
    pub(crate) fn divide(self) {
        if let Kind::Charge { charges, intent, reply: Some(reply) } = self.kind {
            let (deadline, peek) = (self.deadline, intent == Intent::Peek);
            drop(reply.send(Ok(Answer::Split(Split { charges, deadline, peek }))));
        }
    }

    pub(crate) fn done(self) {
        if let Kind::Settle { reply: Some(reply), .. } | Kind::Reset { reply: Some(reply), .. } = self.kind {
            drop(reply.send(Ok(())));
        }
    }
}

/// How long a settlement may take: no incoming request waits for it.
pub(crate) const SETTLE_TIMEOUT: Duration = Duration::from_secs(1);
