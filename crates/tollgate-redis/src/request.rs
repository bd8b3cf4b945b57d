//! What waits for an answer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tollgate_core::{Charge, Decision, Quota, Receipt, RuleName, StoreError};

use crate::name::{Counted, Names};
use crate::settlement::{Settlement, What};
use crate::verdict::Verdict;
use crate::whole::Whole;

/// A charge that outlives the call.
#[derive(Clone, Debug)]
pub(crate) struct OwnCharge {
    pub(crate) counter: Counted,
    pub(crate) quota: Quota,
    pub(crate) cost: u32,
}

impl OwnCharge {
    pub(crate) fn new(charge: &Charge<'_>, names: &Names) -> Self {
        let counter = names.counted(charge.rule, charge.key);
        Self { counter, quota: *charge.quota, cost: charge.cost }
    }

    pub(crate) fn by_ref(&self) -> Charge<'_> {
        Charge::new(self.counter.rule, &self.counter.key, &self.quota).cost(self.cost)
    }
}

/// The charges of one request that live on one node. Mostly there is one; it is large, and handed around.
pub(crate) type Charges = Vec<OwnCharge>;

/// Where the answer goes; nowhere once it was given.
pub(crate) type Reply<T> = Option<oneshot::Sender<Result<T, StoreError>>>;

/// What was decided.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) verdict: Verdict,
    /// What a peek would have said before, if it is but a part of a request.
    pub(crate) before: Option<Box<Decision>>,
    /// What was charged if it was admitted, for whoever has to give it back. Nothing if it was but looked at.
    pub(crate) charges: Charges,
}

/// What whoever asked about charges is told.
#[derive(Debug)]
pub(crate) enum Told {
    Decided(Decided),
    /// Nothing was done: each counter has to be asked about by itself.
    Apart(Apart),
}

/// Charges whose counters are in one slot, but not in one place: the slot is on its way from one node to another.
#[derive(Debug)]
pub(crate) struct Apart {
    pub(crate) charges: Charges,
    /// When whoever asked stops waiting.
    pub(crate) deadline: Instant,
    /// Whether nothing is charged.
    pub(crate) peek: bool,
}

impl Decided {
    /// What gives back all that was charged.
    pub(crate) fn give_back(&self) -> Vec<Ask> {
        let refund = |(charge, (_, receipt)): (&OwnCharge, (RuleName, Receipt))| {
            let counter = charge.counter;
            let what = What::Refund { cost: charge.cost, receipt: Some(receipt) };
            let settlement = Box::new(Settlement { counter, what });
            Ask::new(Kind::Settle { settlement, reply: None }, Instant::now() + UNHURRIED)
        };
        // A decision that denied has no receipts.
        self.charges.iter().zip(self.verdict.to_decision().receipts()).map(refund).collect()
    }
}

/// Something to ask Redis.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) kind: Kind,
    /// When whoever asked stops waiting.
    pub(crate) deadline: Instant,
    /// How often it was sent, and not done.
    pub(crate) attempts: u8,
    /// How often it was sent to a node that has not got its counters.
    pub(crate) redirects: u8,
    /// Its slot is moving to the node that is asked, which must be told that this is known.
    pub(crate) asking: bool,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// `part`: the request of which others are charged elsewhere.
    Charge {
        charges: Charges,
        part: Option<Arc<Whole>>,
        reply: Reply<Told>,
    },
    Peek {
        charges: Charges,
        reply: Reply<Told>,
    },
    Settle {
        settlement: Box<Settlement>,
        reply: Reply<()>,
    },
    Reset {
        counter: Box<Counted>,
        reply: Reply<()>,
    },
}

impl Kind {
    /// Asks about charges. `part`: the request of which they are but a part.
    pub(crate) fn about(
        charges: Charges,
        peek: bool,
        part: Option<Arc<Whole>>,
        reply: oneshot::Sender<Result<Told, StoreError>>,
    ) -> Self {
        let reply = Some(reply);
        if peek { Self::Peek { charges, reply } } else { Self::Charge { charges, part, reply } }
    }
}

impl Ask {
    pub(crate) const fn new(kind: Kind, deadline: Instant) -> Self {
        Self { kind, deadline, attempts: 0, redirects: 0, asking: false }
    }

    /// Where its counters are on a cluster.
    pub(crate) fn slot(&self) -> u16 {
        match &self.kind {
            Kind::Charge { charges, .. } | Kind::Peek { charges, .. } => {
                charges.first().map_or(0, |charge| charge.counter.slot)
            }
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
            // Who no longer listens need not be told, and what it was charged is given back when the answer comes.
            Kind::Charge { reply: Some(reply), .. } if reply.is_closed() => {}
            Kind::Charge { reply, .. } | Kind::Peek { reply, .. } => {
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

    /// Whether nobody waits for a settlement or a reset.
    pub(crate) const fn is_unheard(&self) -> bool {
        matches!(self.kind, Kind::Settle { reply: None, .. } | Kind::Reset { reply: None, .. })
    }

    /// Whether others of the same request are charged elsewhere.
    pub(crate) const fn is_part(&self) -> bool {
        matches!(self.kind, Kind::Charge { part: Some(_), .. })
    }

    /// Whether whoever asked has gone, and it need not be done. Settlements and resets are done in any case.
    pub(crate) fn is_abandoned(&self) -> bool {
        match &self.kind {
            Kind::Charge { reply, .. } | Kind::Peek { reply, .. } => {
                reply.as_ref().is_none_or(oneshot::Sender::is_closed)
            }
            Kind::Settle { .. } | Kind::Reset { .. } => false,
        }
    }

    /// The settlement, if it is one.
    pub(crate) fn settlement(&self) -> Option<&Settlement> {
        match &self.kind {
            Kind::Settle { settlement, .. } => Some(settlement),
            Kind::Charge { .. } | Kind::Peek { .. } | Kind::Reset { .. } => None,
        }
    }

    /// The counter that is another once this is done.
    pub(crate) fn changed(&self) -> Option<&Counted> {
        match &self.kind {
            Kind::Settle { settlement, .. } => Some(&settlement.counter),
            Kind::Reset { counter, .. } => Some(counter),
            Kind::Charge { .. } | Kind::Peek { .. } => None,
        }
    }

    /// The charges, if it is about charges.
    pub(crate) fn charges(&self) -> Option<&Charges> {
        match &self.kind {
            Kind::Charge { charges, .. } | Kind::Peek { charges, .. } => Some(charges),
            Kind::Settle { .. } | Kind::Reset { .. } => None,
        }
    }

    /// Passes a decision on. If whoever asked has gone, returns what is to be given back: the request went away
    /// before it was let in. One that was told that the store failed may have been let in by its rules; but not if it
    /// is a part, and the whole was denied.
    pub(crate) fn decided(self, verdict: Verdict, before: Option<Box<Decision>>) -> Vec<Self> {
        match self.kind {
            Kind::Charge { charges, part, reply } => {
                let decided = Decided { verdict, before, charges };
                match (reply, part) {
                    (Some(reply), _) => match reply.send(Ok(Told::Decided(decided))) {
                        Err(Ok(Told::Decided(unheard))) => unheard.give_back(),
                        _ => Vec::new(),
                    },
                    (None, Some(whole)) => whole.late(decided),
                    (None, None) => Vec::new(),
                }
            }
            Kind::Peek { reply: Some(reply), .. } => {
                drop(reply.send(Ok(Told::Decided(Decided { verdict, before, charges: Charges::new() }))));
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Whether it is about several counters, of which some may be in one place and some in another while their slot is on
    /// its way.
    pub(crate) fn is_divisible(&self) -> bool {
        let Some([first, rest @ ..]) = self.charges().map(Vec::as_slice) else { return false };
        rest.iter().any(|charge| charge.counter != first.counter)
    }

    /// Has each of its counters asked about by itself. Nothing was done so far.
    pub(crate) fn divide(self) {
        let (deadline, peek) = (self.deadline, matches!(self.kind, Kind::Peek { .. }));
        if let Kind::Charge { charges, reply: Some(reply), .. } | Kind::Peek { charges, reply: Some(reply) } =
            self.kind
        {
            drop(reply.send(Ok(Told::Apart(Apart { charges, deadline, peek }))));
        }
    }

    pub(crate) fn done(self) {
        if let Kind::Settle { reply: Some(reply), .. } | Kind::Reset { reply: Some(reply), .. } = self.kind {
            drop(reply.send(Ok(())));
        }
    }
}

/// How long a settlement may take: nobody waits for it at the door.
pub(crate) const UNHURRIED: Duration = Duration::from_secs(1);
