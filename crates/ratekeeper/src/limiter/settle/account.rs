//! What was charged for one request, and what became of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ratekeeper_core::{Algorithm, Charge, Debit, Decision, MemoryStore, Quota, Receipt, Refund, Store};
use smallvec::SmallVec;

use crate::error::LimiterError;
use crate::limiter::{Limiter, Patience, Plan, Planned};
use crate::observe::{Role, Settled};
use crate::request::ResponseHead;
use crate::rule::{Rules, Settle};

/// The charges of a request that was forwarded.
///
/// However often it is settled and by whom, an account never gives back more than was taken, because it
/// tracks what stands charged. (But it does not know what a bucket that owed all it can has forgiven.)
pub(crate) struct Account {
    limiter: Limiter,
    /// The rules that it was charged under.
    rules: Arc<Rules>,
    /// `None` if nothing was charged, because no rule counts the request or the store could not decide.
    decision: Option<Decision>,
    /// Whether it was decided in this process, because the store failed.
    is_local: bool,
    entries: Mutex<SmallVec<[Entry; 2]>>,
}

/// What was charged under one rule.
struct Entry {
    planned: Planned,
    /// Oldest first. Refunds are taken from the newest.
    takes: SmallVec<[Take; 1]>,
    /// Whether the handler has settled the cost. Then nothing else does.
    is_settled: bool,
    /// Set while a shadow charge is under way, which nothing waits for. The inner value is the cost to settle
    /// to once the charge has been made.
    awaited: Option<Option<u32>>,
}

/// A part of what was charged, and the receipt for it if there is one.
struct Take {
    cost: u32,
    /// How much of it has certainly been taken, and so can be given back.
    taken: u32,
    receipt: Option<Receipt>,
}

impl Take {
    /// A charge that was made because it fitted.
    const fn charged(cost: u32, receipt: Receipt) -> Self {
        Self { cost, taken: cost, receipt: Some(receipt) }
    }

    /// Lowers the cost, and returns how much to give back.
    fn lower(&mut self, by: u32) -> u32 {
        self.cost -= by;
        let back = self.taken.saturating_sub(self.cost);
        self.taken -= back;
        back
    }
}

/// A change that the handler requests.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// This much in total.
    To(u32),
    /// This much less.
    Less(u32),
    /// At least this much.
    AtLeast(u32),
}

impl Account {
    /// The account of a request that no rule counts.
    pub(crate) fn empty(limiter: Limiter, rules: Arc<Rules>) -> Self {
        Self { limiter, rules, decision: None, is_local: false, entries: Mutex::default() }
    }

    /// The account of a request that is counted only in shadow.
    pub(crate) fn shadow(limiter: Limiter, rules: Arc<Rules>, plan: &Plan) -> Self {
        let entries = Mutex::new(plan.shadows.iter().map(|planned| Entry::new(planned, None)).collect());
        Self { limiter, rules, decision: None, is_local: false, entries }
    }

    /// Records the result of a shadow charge.
    pub(crate) fn shadowed(&self, planned: &Planned, decision: Option<&Decision>) {
        let name = planned.charge(&self.rules, Patience::None).rule;
        let receipt = decision.and_then(|decision| Receipt::of(decision, name));
        let mut entries = self.entries();
        let is_it = |entry: &Entry| entry.awaited.is_some() && entry.planned.is_for(planned);
        let Some(place) = entries.iter().position(is_it) else { return };
        match receipt {
            // It would have been denied, so there is nothing to settle.
            None => drop(entries.remove(place)),
            Some(receipt) => {
                let entry = &mut entries[place];
                entry.takes.push(Take::charged(planned.cost, receipt));
                if let Some(cost) = entry.awaited.take().flatten() {
                    self.bring(entry, cost);
                }
            }
        }
    }

    /// The account of an admitted request.
    pub(crate) fn new(
        limiter: Limiter,
        rules: Arc<Rules>,
        plan: &Plan,
        decision: Decision,
        is_local: bool,
    ) -> Self {
        let charged = plan.outcomes(&rules, &decision).zip(decision.receipts());
        let entries = charged.map(|((planned, _), (_, receipt))| {
            Entry::new(planned, Some(Take::charged(planned.cost, receipt)))
        });
        let shadows = plan.shadows.iter().filter(|_| !is_local).map(|planned| Entry::new(planned, None));
        let entries = Mutex::new(entries.chain(shadows).collect());
        Self { limiter, rules, decision: Some(decision), is_local, entries }
    }

    fn entries(&self) -> MutexGuard<'_, SmallVec<[Entry; 2]>> {
        // A panic while the lock was held leaves nothing half done that matters more than continuing.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `f` with the enforced charge under a rule, if the rule counts the request.
    fn with<T>(&self, rule: &str, f: impl FnOnce(&mut Entry) -> T) -> Result<Option<T>, LimiterError> {
        let number = self.rules.find_or(rule)?;
        let is_it = |entry: &&mut Entry| entry.planned.rule == number && entry.planned.role == Role::Enforced;
        Ok(self.entries().iter_mut().find(is_it).map(f))
    }

    /// Brings an entry to a new cost. If it is at that cost already, the store is not asked.
    fn bring(&self, entry: &mut Entry, cost: u32) {
        if let Some(awaited) = &mut entry.awaited {
            *awaited = Some(cost);
            return;
        }
        let charged = entry.charged();
        if cost > charged {
            self.debit(entry, cost - charged);
        } else if cost < charged {
            self.give_back(entry, charged - cost);
        }
    }

    fn observe(&self, entry: &Entry, settled: Settled, units: u32) {
        self.rules.rule(entry.planned.rule).watch.settled(entry.planned.role, settled, units);
    }

    fn debit(&self, entry: &mut Entry, cost: u32) {
        self.observe(entry, Settled::Debited, cost);
        let charge = entry.planned.charge(&self.rules, Patience::None).cost(cost);
        let receipt = entry.takes.first().and_then(|first| first.receipt);
        let debit =
            |charge| receipt.map_or(Debit::new(charge), |receipt| Debit::new(charge).receipt(receipt));
        // The call hands the debit over; nothing waits for it.
        let max = match self.local_store() {
            Some(store) => {
                let quota = self.local_quota(&entry.planned);
                let charge = Charge::new(charge.rule, &entry.planned.key, &quota).cost(cost);
                drop(store.debit(&[debit(charge)]));
                let whole = *self.rules.rule(entry.planned.rule).quota(&entry.planned.quota);
                self.limiter.owe(charge.rule, entry.planned.key, whole, quota, cost);
                quota.max()
            }
            None => {
                drop(self.limiter.store().debit(&[debit(charge)]));
                charge.quota.max()
            }
        };
        entry.takes.push(match charge.quota.algorithm() {
            // A bucket does not care when units were taken, and owes no more than it holds, however often it
            // is debited. (What has come back meanwhile is not taken into account, so less may be given back
            // than possible, never more.)
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                let owed = entry.takes.iter().filter(|take| take.receipt.is_none());
                let owed = owed.fold(0, |sum: u32, take| sum.saturating_add(take.taken));
                Take { cost, taken: cost.min(max.saturating_sub(owed)), receipt: None }
            }
            // For the other algorithms, a refund must not affect another window.
            _ => Take { cost, taken: cost, receipt },
        });
    }

    fn give_back(&self, entry: &mut Entry, mut cost: u32) {
        let rule = entry.planned.charge(&self.rules, Patience::None).rule;
        let mut refunds: SmallVec<[Refund<'_>; 2]> = SmallVec::new();
        while let (1.., Some(newest)) = (cost, entry.takes.last_mut()) {
            let part = cost.min(newest.cost);
            cost -= part;
            let back = newest.lower(part);
            if back > 0 {
                let refund = Refund::new(rule, &entry.planned.key, back);
                refunds.push(newest.receipt.map_or(refund, |receipt| refund.receipt(receipt)));
            }
            if newest.cost == 0 {
                if entry.takes.len() == 1 {
                    // Its receipt is needed for debits that may follow.
                    break;
                }
                entry.takes.pop();
            }
        }
        let back = refunds.iter().fold(0, |sum: u32, refund| sum.saturating_add(refund.cost));
        self.observe(entry, Settled::GivenBack, back);
        match self.local_store() {
            Some(store) => {
                drop(store.refund(&refunds));
                self.limiter.forgive(&refunds);
            }
            None => drop(self.limiter.store().refund(&refunds)),
        }
    }

    /// The in-process store, if it made the decision.
    fn local_store(&self) -> Option<&MemoryStore> {
        self.limiter.local_store().filter(|_| self.is_local)
    }

    fn local_quota(&self, planned: &Planned) -> Quota {
        let rule = self.rules.rule(planned.rule);
        rule.local_quota(&planned.quota).unwrap_or_else(|| *rule.quota(&planned.quota))
    }

    /// Charges more under a rule, if it fits.
    pub(super) async fn charge(&self, rule: &str, cost: u32) -> Result<Option<Decision>, LimiterError> {
        let Some(planned) = self.with(rule, |entry| entry.planned.clone())? else { return Ok(None) };
        let charge = planned.charge(&self.rules, Patience::None).cost(cost);
        let decision = match self.local_store() {
            Some(store) => {
                let quota = self.local_quota(&planned);
                let decision = store.decide(&[Charge::new(charge.rule, &planned.key, &quota).cost(cost)]);
                if decision.is_admitted() {
                    let whole = *self.rules.rule(planned.rule).quota(&planned.quota);
                    self.limiter.owe(charge.rule, planned.key, whole, quota, cost);
                }
                decision
            }
            None => self.limiter.store().charge(&[charge]).await?,
        };
        if let Some(receipt) = Receipt::of(&decision, charge.rule) {
            let take = Take::charged(cost, receipt);
            self.with(rule, |entry| entry.takes.push(take))?;
        }
        Ok(Some(decision))
    }
}

impl Entry {
    /// An entry whose charge has been made (`take`) or is under way.
    fn new(planned: &Planned, take: Option<Take>) -> Self {
        let awaited = if take.is_some() { None } else { Some(None) };
        Self { planned: planned.clone(), takes: take.into_iter().collect(), is_settled: false, awaited }
    }

    fn charged(&self) -> u32 {
        if let Some(awaited) = self.awaited {
            return awaited.unwrap_or(self.planned.cost);
        }
        self.takes.iter().fold(0, |sum, take| sum.saturating_add(take.cost))
    }
}

impl Account {
    /// The decision, if anything was charged.
    pub(super) fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    /// What stands charged under a rule; `None` if the rule does not count the request.
    pub(super) fn charged(&self, rule: &str) -> Result<Option<u32>, LimiterError> {
        self.with(rule, |entry| entry.charged())
    }

    /// Changes what is charged under a rule, if the rule counts the request.
    pub(super) fn change(&self, rule: &str, change: Change) -> Result<(), LimiterError> {
        let number = self.rules.find_or(rule)?;
        for entry in self.entries().iter_mut().filter(|entry| entry.planned.rule == number) {
            let cost = match change {
                Change::To(cost) => cost,
                Change::Less(cost) => entry.charged().saturating_sub(cost),
                // As much is already charged, so nothing changes.
                Change::AtLeast(cost) if cost <= entry.charged() => continue,
                Change::AtLeast(cost) => cost,
            };
            entry.is_settled = true;
            self.bring(entry, cost);
        }
        Ok(())
    }

    /// Settles by the response, for the rules that do so.
    pub(crate) fn answered(&self, response: &ResponseHead<'_>) {
        let unsettled = |entry: &&Entry| !entry.is_settled;
        let rules: SmallVec<[usize; 2]> =
            self.entries().iter().filter(unsettled).map(|entry| entry.planned.rule).collect();
        for (i, rule) in rules.iter().enumerate() {
            // A rule with a candidate is asked once for both.
            if rules[..i].contains(rule) {
                continue;
            }
            let rule = *rule;
            // The closure called here may look at the request's limits, so nothing is locked meanwhile.
            let cost = match self.rules.rule(rule).settle(response) {
                Settle::Keep => continue,
                Settle::Free => 0,
                Settle::Cost(cost) => cost,
            };
            let mut entries = self.entries();
            for entry in entries.iter_mut().filter(|entry| entry.planned.rule == rule && !entry.is_settled) {
                self.bring(entry, cost);
            }
        }
    }
}
