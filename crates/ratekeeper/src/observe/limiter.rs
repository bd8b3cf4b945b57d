//! Periodic observation of a limiter as a whole.

#[cfg(feature = "metrics")]
use std::any::Any;
use std::cell::Cell;
use std::fmt;
#[cfg(feature = "metrics")]
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::{Extensions, HeaderMap};
#[cfg(feature = "metrics")]
use ratekeeper_core::{Clock, ManualClock, MemoryStore, SystemClock};
use ratekeeper_core::{RuleName, Store, Timestamp};
use smallvec::SmallVec;

#[cfg(feature = "metrics")]
use super::metrics::{Figures, OfStores};
use super::now;
use crate::hint::{Hint, HintCode, Hints};
use crate::key::X_FORWARDED_FOR;
use crate::limiter::Limiter;
use crate::rule::Rules;

/// The interval between checks, in microseconds.
const PAUSE: u64 = 1_000_000;
/// After how long a rule should have matched something.
const A_WHILE: Duration = Duration::from_secs(3_600);
/// One in this many requests that no rule matches does a check.
const PASSED_BY: u32 = 1_024;

/// Observes a limiter. Requests do the checks in passing, one or two per second: there is no task.
#[derive(Debug)]
pub(crate) struct LimiterWatch {
    /// When the last check was.
    last: AtomicU64,
    /// Whether a request has been marked that may pass through another layer.
    has_marked: AtomicBool,
    pub(crate) hints: Hints,
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "published as metrics"))]
    figures: StoreFigures,
    #[cfg(feature = "metrics")]
    stores: OfStores,
}

/// Observes a set of rules.
#[derive(Debug)]
pub(crate) struct SetWatch {
    /// Since when it has been in force, as far as is known, in microseconds.
    since: AtomicU64,
    /// Whether it was checked for rules that match nothing.
    is_looked_through: OnceLock<()>,
    /// A rule that needs the address of the peer, and did not find it.
    lacks_peer: OnceLock<RuleName>,
}

/// For a set that has not been seen in force.
const UNSEEN: u64 = u64::MAX;

impl SetWatch {
    /// The set comes into force, for the first time or again.
    pub(crate) fn put_in_force(&self) {
        self.since.store(UNSEEN, Ordering::Relaxed);
    }

    /// Since when it has been in force: since now, if this is the first check.
    fn since(&self, now: Timestamp) -> Timestamp {
        match self.since.compare_exchange(UNSEEN, now.as_micros(), Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => now,
            Err(since) => Timestamp::from_micros(since),
        }
    }

    /// A request does not have the address of the peer, which the rule needs.
    #[cold]
    pub(crate) fn no_peer(&self, rule: RuleName) {
        self.lacks_peer.get_or_init(|| rule);
    }
}

impl Default for SetWatch {
    fn default() -> Self {
        Self {
            since: AtomicU64::new(UNSEEN),
            is_looked_through: OnceLock::new(),
            lacks_peer: OnceLock::new(),
        }
    }
}

impl Clone for SetWatch {
    /// The watch of a new set, about which nothing is known yet.
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// A request, and which rules count it.
pub(crate) struct Sight<'a> {
    pub(crate) headers: &'a HeaderMap,
    pub(crate) rules: &'a Rules,
    pub(crate) asked: SmallVec<[usize; 4]>,
}

/// Marks, in the extensions, a request that was counted.
#[derive(Clone, Debug)]
struct Mark {
    /// The limiter that counted it.
    limiter: usize,
    rules: SmallVec<[RuleName; 4]>,
}

impl LimiterWatch {
    pub(crate) fn new(figures: StoreFigures) -> Self {
        Self {
            figures,
            // As far from any time as possible, so that the first request does a check.
            last: AtomicU64::new(1 << 63),
            has_marked: AtomicBool::new(false),
            hints: Hints::default(),
            #[cfg(feature = "metrics")]
            stores: OfStores::default(),
        }
    }

    /// Whether a check is due.
    #[inline(always)]
    pub(crate) fn is_due(&self, at: Timestamp) -> bool {
        // It is also due if the clock was set back, because then the difference wraps around.
        at.as_micros().wrapping_sub(self.last.load(Ordering::Relaxed)) >= PAUSE
    }

    /// Whether the caller is to do the check. The next check is due after the pause, or immediately if
    /// `at_once`.
    fn take(&self, at: Timestamp, at_once: bool) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        let next = if at_once { at.as_micros().wrapping_sub(PAUSE) } else { at.as_micros() };
        at.as_micros().wrapping_sub(last) >= PAUSE
            && self.last.compare_exchange(last, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl Limiter {
    /// The hints about problems found so far. See [`guide::hints`](crate::guide::hints).
    #[must_use]
    pub fn hints(&self) -> Vec<Hint> {
        self.look_at_rules(None);
        self.watch().hints.said()
    }

    /// Does a check, if one is due.
    #[inline]
    pub(crate) fn glance(&self, at: Timestamp) {
        if self.watch().is_due(at) {
            self.look_around(at);
        }
    }

    /// The same for a request that no rule counts, so that no store has reported the time.
    #[inline]
    pub(crate) fn passed_by(&self) {
        thread_local!(static PASSED: Cell<u32> = const { Cell::new(0) });
        let passed = PASSED.get().wrapping_add(1);
        PASSED.set(passed);
        if passed.is_multiple_of(PASSED_BY) {
            self.glance(now());
        }
    }

    #[cold]
    pub(crate) fn look_around(&self, at: Timestamp) {
        if self.watch().take(at, false) {
            self.look(at);
        }
    }

    /// The same, with a request that is denied.
    #[cold]
    pub(crate) fn look_around_with(&self, at: Timestamp, sight: &Sight<'_>) {
        if self.watch().take(at, false) {
            self.look(at);
            self.look_at_fields(sight);
        }
    }

    /// The same, with a request that is forwarded.
    ///
    /// This finds requests that are counted twice: one request is marked, and the next one that does a check
    /// looks for the mark. If there is an inner layer, that is most likely the same request.
    #[cold]
    pub(crate) fn look_around_and_mark(&self, at: Timestamp, sight: &Sight<'_>, extensions: &mut Extensions) {
        let watch = self.watch();
        let (has_marked, is_over) =
            (watch.has_marked.load(Ordering::Relaxed), watch.hints.is_said(HintCode::CountedTwice));
        if !watch.take(at, !has_marked && !is_over) {
            return;
        }
        watch.has_marked.store(!has_marked && !is_over, Ordering::Relaxed);
        let names = || sight.asked.iter().map(|number| sight.rules.rule(*number).name);
        if has_marked {
            let mark = extensions.get::<Mark>().filter(|mark| mark.limiter == self.address());
            if let Some(twice) = mark.and_then(|mark| names().find(|name| mark.rules.contains(name))) {
                let message = format!(
                    "a request was counted twice under the rule `{twice}`, by a layer within another of the same limiter"
                );
                watch.hints.say(HintCode::CountedTwice, message);
            }
            return;
        }
        self.look(at);
        self.look_at_fields(sight);
        if !is_over {
            extensions.insert(Mark { limiter: self.address(), rules: names().collect() });
        }
    }

    fn look(&self, at: Timestamp) {
        #[cfg(feature = "metrics")]
        {
            let watch = self.watch();
            let own = watch.figures.read.as_ref().map(|read| read());
            watch.stores.publish(own, self.local_store().map(Figures::of));
        }
        self.look_at_rules(Some(at));
    }

    /// Checks whether all rules match something and find what they need.
    fn look_at_rules(&self, at: Option<Timestamp>) {
        let (hints, rules) = (&self.watch().hints, self.rules());
        if let (Some(rule), false) = (rules.watch.lacks_peer.get(), hints.is_said(HintCode::NoPeer)) {
            let message =
                format!("the rule `{rule}` counts by the address of the peer, and a request has none");
            hints.say(HintCode::NoPeer, message);
        }
        let since = at.map(|at| (at, rules.watch.since(at)));
        let is_old = since.is_some_and(|(at, since)| at.saturating_since(since) >= A_WHILE);
        // Once for each set: there may be many rules.
        if is_old && rules.watch.is_looked_through.set(()).is_ok() {
            let idle: Vec<&str> = rules
                .iter()
                .filter(|rule| !rule.watch.has_matched() && !rule.is_by_hand())
                .map(|rule| rule.name.as_str())
                .collect();
            if let [first, ..] = &*idle {
                let others = match idle.len() {
                    1 => String::new(),
                    more => format!(", nor have {} others", more - 1),
                };
                let message = format!("the rule `{first}` has matched nothing for an hour{others}");
                hints.say(HintCode::NeverMatched, message);
            }
        }
    }

    /// Checks for forwarding fields although no proxy is trusted.
    fn look_at_fields(&self, sight: &Sight<'_>) {
        let hints = &self.watch().hints;
        if hints.is_said(HintCode::NoTrustedProxy) {
            return;
        }
        let rules = sight.asked.iter().map(|number| sight.rules.rule(*number));
        let by_peer = rules.into_iter().find(|rule| rule.key.is_peer());
        let field = [X_FORWARDED_FOR, http::header::FORWARDED]
            .into_iter()
            .find(|field| sight.headers.contains_key(field));
        if let (Some(rule), Some(field)) = (by_peer, field) {
            let message = format!(
                "the rule `{}` counts by the address of the peer, and a request came with `{field}`: if there is a \
                 proxy, all its clients are one",
                rule.name
            );
            hints.say(HintCode::NoTrustedProxy, message);
        }
    }
}

/// Reads the figures of a store, if it is an in-memory store. The type of a store is known only when it is
/// given to a limiter.
#[derive(Clone)]
pub(crate) struct StoreFigures {
    #[cfg(feature = "metrics")]
    read: Option<Arc<dyn Fn() -> Figures + Send + Sync>>,
}

impl StoreFigures {
    pub(crate) fn of<S: Store>(store: &S) -> Self {
        #[cfg(not(feature = "metrics"))]
        let _ = store;
        Self {
            #[cfg(feature = "metrics")]
            read: read_as::<SystemClock>(store).or_else(|| read_as::<ManualClock>(store)),
        }
    }
}

impl fmt::Debug for StoreFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreFigures")
    }
}

#[cfg(feature = "metrics")]
fn read_as<C: Clock>(store: &dyn Any) -> Option<Arc<dyn Fn() -> Figures + Send + Sync>> {
    let store: MemoryStore<C> = store.downcast_ref::<MemoryStore<C>>()?.clone();
    Some(Arc::new(move || Figures::of(&store)))
}
