//! Detects limiters that take each other's counters for their own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ratekeeper_core::{Quota, RuleName, Store, StoreId};

use crate::hint::HintCode;
use crate::limiter::Limiter;
use crate::rule::Rules;

/// A limiter, whatever its store.
pub(crate) trait HasRules: Send + Sync {
    fn rules_in_force(&self) -> Arc<Rules>;
}

/// The limiters of this process whose stores are known. Checked when a limiter is made or its rules are
/// swapped.
static LIMITERS: Mutex<Vec<(StoreId, Weak<dyn HasRules>)>> = Mutex::new(Vec::new());

impl Limiter {
    /// Registers a limiter for those that are made later.
    pub(crate) fn enlist(&self) {
        let Some(id) = self.store().id() else { return };
        let mut limiters = LIMITERS.lock().unwrap_or_else(PoisonError::into_inner);
        limiters.retain(|(_, limiter)| limiter.strong_count() > 0);
        let this: Arc<dyn HasRules> = self.shared();
        limiters.push((id, Arc::downgrade(&this)));
    }

    /// Looks for other limiters on the same store that have rules of the same name with different quotas.
    pub(crate) fn look_for_clashes(&self) {
        let Some(id) = self.store().id() else { return };
        let limiters = LIMITERS.lock().unwrap_or_else(PoisonError::into_inner);
        let on_it = limiters.iter().filter(|(other, _)| *other == id);
        let others: Vec<_> = on_it.filter_map(|(_, limiter)| limiter.upgrade()).collect();
        drop(limiters);
        let own = self.rules();
        // The limiter may be on this list itself, and its rules may have been swapped meanwhile.
        let others = others.into_iter().filter(|other| Arc::as_ptr(other).addr() != self.address());
        for other in others.map(|other| other.rules_in_force()) {
            let quotas: HashMap<RuleName, &Quota> =
                other.iter().map(|rule| (rule.name, rule.own_quota())).collect();
            let clashes =
                |name: RuleName, quota: &Quota| quotas.get(&name).is_some_and(|other| *other != quota);
            if let Some(rule) = own.iter().find(|rule| clashes(rule.name, rule.own_quota())) {
                let message = format!(
                    "another limiter on the same store has a rule `{}` with another quota, and both count as one",
                    rule.name
                );
                self.watch().hints.say(HintCode::SharedStore, message);
            }
        }
    }
}
