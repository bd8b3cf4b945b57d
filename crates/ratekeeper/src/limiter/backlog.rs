//! What this process admitted while the store failed, and the store does not know of yet.
//!
//! When the store works again, it is debited with the part that has not come back meanwhile. So a store that
//! fails every other moment does not double what a caller may use.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ratekeeper_core::{Charge, Debit, Decision, Key, MemoryStore, Quota, Refund, RuleName};

use super::{Limiter, Plan};
use crate::rule::Rules;

/// How many keys are remembered at most. What further keys use while the store fails is never debited.
const MAX_KEYS: usize = 10_000;
/// How many debits are handed over in one call.
const BATCH: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Whether anything is owed, so that most calls need not take the lock.
    is_due: AtomicBool,
    owed: Mutex<HashMap<(RuleName, Key), Owed>>,
}

/// What one key has used since it was last debited.
#[derive(Debug)]
struct Owed {
    /// What is debited in the store.
    quota: Quota,
    /// What this process decides by.
    share: Quota,
    cost: u32,
}

impl Backlog {
    fn owed(&self) -> MutexGuard<'_, HashMap<(RuleName, Key), Owed>> {
        // Nothing here panics halfway through.
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, rule: RuleName, key: Key, quota: Quota, share: Quota, cost: u32) {
        let mut owed = self.owed();
        if owed.len() >= MAX_KEYS && !owed.contains_key(&(rule, key)) {
            return;
        }
        let entry = owed.entry((rule, key)).or_insert(Owed { quota, share, cost: 0 });
        (entry.quota, entry.share) = (quota, share);
        entry.cost = entry.cost.saturating_add(cost);
        self.is_due.store(true, Ordering::Release);
    }
}

impl Limiter {
    /// Remembers what an admitted decision of this process has charged.
    pub(crate) fn owe_admitted(&self, rules: &Rules, plan: &Plan, decision: &Decision) {
        if !decision.is_admitted() {
            return;
        }
        for (planned, _) in plan.outcomes(rules, decision) {
            let rule = rules.rule(planned.rule);
            if let Some(share) = rule.local_quota(&planned.quota) {
                self.owe(rule.name, planned.key, *rule.quota(&planned.quota), share, planned.cost);
            }
        }
    }

    /// Remembers that this much was charged in this process.
    pub(crate) fn owe(&self, rule: RuleName, key: Key, quota: Quota, share: Quota, cost: u32) {
        self.backlog().add(rule, key, quota, share, cost);
    }

    /// Forgets what was given back in this process.
    pub(crate) fn forgive(&self, refunds: &[Refund<'_>]) {
        let mut owed = self.backlog().owed();
        for refund in refunds {
            if let Some(owed) = owed.get_mut(&(refund.rule, refund.key.to_key())) {
                owed.cost = owed.cost.saturating_sub(refund.cost);
            }
        }
    }

    /// Debits the store, which has just answered.
    #[inline]
    pub(crate) fn debit_backlog(&self) {
        let backlog = self.backlog();
        if backlog.is_due.load(Ordering::Relaxed) && backlog.is_due.swap(false, Ordering::AcqRel) {
            let owed = std::mem::take(&mut *backlog.owed());
            self.debit(&owed);
        }
    }

    #[cold]
    fn debit(&self, owed: &HashMap<(RuleName, Key), Owed>) {
        let Some(local) = self.local_store() else { return };
        let due = owed.iter().filter_map(|((rule, key), owed)| {
            let cost = owed.cost.min(used(local, Charge::new(*rule, key, &owed.share)));
            (cost > 0).then(|| Debit::new(Charge::new(*rule, key, &owed.quota).cost(cost)))
        });
        let due: Vec<Debit<'_>> = due.collect();
        // The call hands the debits over; nothing waits for them.
        due.chunks(BATCH).for_each(|batch| drop(self.store().debit(batch)));
    }
}

/// What a key has used of its share and has not come back.
fn used(local: &MemoryStore, charge: Charge<'_>) -> u32 {
    let looked = local.look(&[charge]);
    looked.tightest().map_or(0, |(_, outcome)| outcome.limit().saturating_sub(outcome.remaining()))
}
