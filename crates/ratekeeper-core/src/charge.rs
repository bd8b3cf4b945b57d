//! The requests to a store: charges, and their refunds and debits.

use std::time::Duration;

use crate::{Decision, KeyRef, Quota, RuleName, Timestamp};

/// One key's cost against one rule.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Charge<'a> {
    /// The rule that counts.
    pub rule: RuleName,
    /// Who is counted.
    pub key: KeyRef<'a>,
    /// What the rule allows this key.
    pub quota: &'a Quota,
    /// How much is taken.
    pub cost: u32,
    /// How long the caller will wait, if at all; at most [`MAX_WAIT`](Self::MAX_WAIT) counts.
    pub wait_up_to: Option<Duration>,
}

impl<'a> Charge<'a> {
    /// The longest time for which a charge can be reserved ahead.
    pub const MAX_WAIT: Duration = Duration::from_secs(60);

    /// A charge of one unit. The key is a [`&Key`](crate::Key) or a text.
    #[inline]
    #[must_use]
    pub fn new(rule: RuleName, key: impl Into<KeyRef<'a>>, quota: &'a Quota) -> Self {
        Self { rule, key: key.into(), quota, cost: 1, wait_up_to: None }
    }

    /// The same charge at another cost.
    #[must_use]
    pub const fn cost(self, cost: u32) -> Self {
        Self { cost, ..self }
    }

    /// The same charge, as a reservation: its caller will wait up to this long.
    ///
    /// A bucket then admits it *with a delay* if the tokens come within that time. They are taken at once, so
    /// callers are served in the order in which they asked. Hold the request back for
    /// [`Outcome::delay`](crate::Outcome::delay). A denial's wait ends when the charge would be admitted with
    /// the same patience.
    ///
    /// A token bucket without a reservation never delays. A leaky bucket always does, and a reservation is
    /// denied if it would be delayed for longer. Its queue never grows beyond its capacity. Windows and logs
    /// ignore reservations.
    #[must_use]
    pub const fn wait_up_to(self, wait: Duration) -> Self {
        Self { wait_up_to: Some(wait), ..self }
    }
}

/// When a charge was made and what it left behind, so that a refund finds it again. (See [`Refund`] for what
/// happens if the store has forgotten the charge.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    at: Timestamp,
    departs_at: Timestamp,
    reset_at: Timestamp,
}

impl Receipt {
    /// The receipt for what an admitted decision charged to `rule`; `None` if it charged nothing to it.
    #[must_use]
    pub fn of(decision: &Decision, rule: RuleName) -> Option<Self> {
        decision.receipts().find(|(name, _)| *name == rule).map(|(_, receipt)| receipt)
    }

    /// For stores: a charge made `at` this time that left a budget full again after `reset_after`.
    #[must_use]
    pub const fn new(at: Timestamp, reset_after: Duration) -> Self {
        Self { at, departs_at: at, reset_at: at.saturating_add(reset_after) }
    }

    /// For stores: the receipt of a charge that was admitted with a delay.
    #[must_use]
    pub const fn delay(self, delay: Duration) -> Self {
        Self { departs_at: self.at.saturating_add(delay), ..self }
    }

    /// When the charge was made.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// Whether the clock was set back since. Then it is unknown whether the charge still counts, and a refund
    /// for it could give back somebody else's charge.
    pub(crate) fn is_ahead_of(&self, now: Timestamp) -> bool {
        self.at > now
    }

    /// When the request was to leave a leaky bucket's queue.
    #[must_use]
    pub const fn departs_at(&self) -> Timestamp {
        self.departs_at
    }

    /// When, right after the charge, the budget was going to be full again.
    #[must_use]
    pub const fn reset_at(&self) -> Timestamp {
        self.reset_at
    }
}

/// What is given back to one key's budget.
///
/// A refund never lifts a budget above its quota. With a receipt it gives back that charge and no other, if
/// the store still knows of the charge. It does nothing
///
/// - if the charge no longer counts, because its window is over or a bucket has had the time to fill;
/// - if that is unknown, because the clock was set back to before the charge;
/// - if the charge cannot be undone, because others queue behind it in a leaky bucket.
///
/// Of a charge that has left a leaky bucket's queue, as much stays taken as the next one needs to keep its
/// distance.
///
/// A receipt says when the charge was made, not whether the store still knows of it. If the store has
/// forgotten the charge, because the key was reset or evicted, or a server restarted empty, a refund gives
/// back what was charged to the key after that. A sliding log knows each charge by its moment, and gives
/// nothing back in this case.
///
/// Without a receipt, a refund takes back what was charged last, in the current window. A leaky bucket gives
/// nothing back then, as it could be somebody else's place.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Refund<'a> {
    /// The rule that was charged.
    pub rule: RuleName,
    /// Who was charged.
    pub key: KeyRef<'a>,
    /// How much is given back.
    pub cost: u32,
    /// Which charge is given back.
    pub receipt: Option<Receipt>,
}

impl<'a> Refund<'a> {
    /// Gives back `cost` of what was charged last.
    #[must_use]
    pub fn new(rule: RuleName, key: impl Into<KeyRef<'a>>, cost: u32) -> Self {
        Self { rule, key: key.into(), cost, receipt: None }
    }

    /// Gives back `cost` of the charge that the receipt belongs to.
    #[must_use]
    pub const fn receipt(self, receipt: Receipt) -> Self {
        Self { receipt: Some(receipt), ..self }
    }
}

/// What is taken whether or not it fits: more for a charge that turned out to be too small.
///
/// With a receipt it belongs to that charge, and refunds for the receipt give it back as well. A sliding log
/// logs it at the moment of the charge, if that still counts. With all other algorithms, and without a
/// receipt, it is taken now.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Debit<'a> {
    /// What is taken, and from whom.
    pub charge: Charge<'a>,
    /// Which charge was too small.
    pub receipt: Option<Receipt>,
}

impl<'a> Debit<'a> {
    /// A debit that is taken now.
    #[must_use]
    pub const fn new(charge: Charge<'a>) -> Self {
        Self { charge, receipt: None }
    }

    /// Takes it for the charge that the receipt belongs to.
    #[must_use]
    pub const fn receipt(self, receipt: Receipt) -> Self {
        Self { receipt: Some(receipt), ..self }
    }
}
