//! Periodic checks of a limiter, for hints and gauges. Requests do them in passing: there is no task.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use http::{Extensions, HeaderMap};
use ratekeeper_core::{Quota, RuleName, Store, StoreId, Timestamp};
use smallvec::SmallVec;

use super::{Inner, Limiter, Plan};
use crate::key::X_FORWARDED_FOR;
use crate::observe::{Hint, HintCode, now};
use crate::rule::Rules;

/// The limiters of this process whose stores are known. Looked at when a limiter is made or its rules are
/// swapped.
static LIMITERS: Mutex<Vec<(StoreId, Weak<Inner>)>> = Mutex::new(Vec::new());

/// Marks, in the extensions, a request that was counted.
#[derive(Clone, Debug)]
struct Mark {
    /// The limiter that counted it.
    limiter: usize,
    rules: SmallVec<[RuleName; 4]>,
}

impl Limiter {
    /// The hints about problems found so far. See [`guide::hints`](crate::guide::hints).
    #[must_use]
    pub fn hints(&self) -> Vec<Hint> {
        self.watch().hints.all()
    }

    /// Does a check, if one is due.
    #[inline]
    pub(crate) fn check(&self, at: Timestamp) {
        if self.watch().is_due(at) && self.watch().take(at, false) {
            self.check_rules(at);
        }
    }

    /// The same for a request that no rule counts, so that no store has reported the time.
    pub(crate) fn check_uncounted(&self) {
        if self.watch().is_uncounted_due() {
            self.check(now());
        }
    }

    /// The same, with a request that is denied.
    #[cold]
    pub(crate) fn check_denied(&self, at: Timestamp, rules: &Rules, plan: &Plan, headers: &HeaderMap) {
        if self.watch().take(at, false) {
            self.check_rules(at);
            self.check_forwarding(rules, plan, headers);
        }
    }

    /// The same, with a request that is forwarded.
    ///
    /// This finds requests that are counted twice: one request is marked, and the next one that does a check
    /// looks for the mark. If there is an inner layer, that is most likely the same request.
    #[cold]
    pub(crate) fn check_forwarded(
        &self,
        at: Timestamp,
        rules: &Rules,
        plan: &Plan,
        headers: &HeaderMap,
        extensions: &mut Extensions,
    ) {
        let watch = self.watch();
        let is_over = watch.hints.is_given(HintCode::CountedTwice);
        let has_marked = watch.has_marked();
        if !watch.take(at, !has_marked && !is_over) {
            return;
        }
        watch.set_marked(!has_marked && !is_over);
        let names = || plan.entries.iter().map(|planned| rules.rule(planned.rule).name);
        if has_marked {
            let mark = extensions.get::<Mark>().filter(|mark| mark.limiter == self.address());
            if let Some(twice) = mark.and_then(|mark| names().find(|name| mark.rules.contains(name))) {
                let message = format!(
                    "a request was counted twice under the rule `{twice}`, by a layer within another of the same limiter"
                );
                watch.hints.give(HintCode::CountedTwice, message);
            }
            return;
        }
        self.check_rules(at);
        self.check_forwarding(rules, plan, headers);
        if !is_over {
            extensions.insert(Mark { limiter: self.address(), rules: names().collect() });
        }
    }

    /// Warns that a request does not have the address of the peer, which a rule counts by.
    #[cold]
    pub(crate) fn hint_no_peer(&self, rule: RuleName) {
        let hints = &self.watch().hints;
        if !hints.is_given(HintCode::NoPeer) {
            let message = format!(
                "the rule `{rule}` counts by the address of the peer, and a request has none, so all clients \
                 share one budget: serve the router with \
                 `axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())`; if it is, \
                 look for a second version of axum, such as 0.7 beside 0.8, in `cargo tree -d`"
            );
            hints.give(HintCode::NoPeer, message);
        }
    }

    /// Checks whether all rules match something, and publishes figures.
    fn check_rules(&self, at: Timestamp) {
        self.watch().publish(self.local_store());
        let rules = self.rules();
        // Once for each set: there may be many rules.
        if !rules.watch.is_idle_check_due(at) {
            return;
        }
        let mut idle = rules.iter().filter(|rule| !rule.watch.has_matched() && !rule.is_manual());
        if let Some(first) = idle.next() {
            let others = match idle.count() {
                0 => String::new(),
                more => format!(", nor have {more} others"),
            };
            let message = format!("the rule `{}` has matched nothing for an hour{others}", first.name);
            self.watch().hints.give(HintCode::NeverMatched, message);
        }
    }

    /// Checks for forwarding fields although no proxy is trusted.
    fn check_forwarding(&self, rules: &Rules, plan: &Plan, headers: &HeaderMap) {
        let hints = &self.watch().hints;
        if hints.is_given(HintCode::NoTrustedProxy) {
            return;
        }
        let by_peer =
            plan.entries.iter().map(|planned| rules.rule(planned.rule)).find(|rule| rule.key.is_peer());
        let mut fields = [X_FORWARDED_FOR, http::header::FORWARDED].into_iter();
        let field = fields.find(|field| headers.contains_key(field));
        if let (Some(rule), Some(field)) = (by_peer, field) {
            let message = format!(
                "the rule `{}` counts by the address of the peer, and a request came with `{field}`: if there is a \
                 proxy, all its clients are one",
                rule.name
            );
            hints.give(HintCode::NoTrustedProxy, message);
        }
    }

    /// Registers a limiter for those that are made later.
    pub(super) fn register(&self) {
        let Some(id) = self.store().id() else { return };
        let mut limiters = LIMITERS.lock().unwrap_or_else(PoisonError::into_inner);
        limiters.retain(|(_, limiter)| limiter.strong_count() > 0);
        limiters.push((id, Arc::downgrade(&self.inner)));
    }

    /// Looks for other limiters on the same store that have rules of the same name with different quotas.
    pub(super) fn check_clashes(&self) {
        let Some(id) = self.store().id() else { return };
        let limiters = LIMITERS.lock().unwrap_or_else(PoisonError::into_inner);
        let on_it = limiters.iter().filter(|(other, _)| *other == id);
        let others: Vec<_> = on_it.filter_map(|(_, limiter)| limiter.upgrade()).collect();
        drop(limiters);
        let own = self.rules();
        for other in others.iter().filter(|other| !Arc::ptr_eq(other, &self.inner)) {
            let other = other.rules.load();
            let quotas: HashMap<RuleName, &Quota> =
                other.iter().map(|rule| (rule.name, rule.own_quota())).collect();
            let clashes =
                |name: RuleName, quota: &Quota| quotas.get(&name).is_some_and(|other| *other != quota);
            if let Some(rule) = own.iter().find(|rule| clashes(rule.name, rule.own_quota())) {
                let message = format!(
                    "another limiter on the same store has a rule `{}` with another quota, and both count as one",
                    rule.name
                );
                self.watch().hints.give(HintCode::SharedStore, message);
            }
        }
    }
}
