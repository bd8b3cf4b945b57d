//! What operators see: metrics and events, each behind a feature.
//!
//! The code that decides calls this with what was decided. Without the features, none of the metrics and
//! events is compiled. Labels and fields are the names of rules and words of this crate, never anything that
//! a caller sent.

#[cfg(feature = "tracing")]
mod events;
mod limiter;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod sample;
mod shared;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use ratekeeper_core::{Decision, Outcome, RuleName, StoreError, Timestamp};

pub(crate) use self::limiter::{LimiterWatch, SetWatch, Sight, StoreFigures};
pub(crate) use self::shared::HasRules;
use crate::hint::Hint;
use crate::limiter::{Plan, Planned};
use crate::rule::{Compiled, Role};

/// The outcome for a rule that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Admitted,
    Denied,
    /// Admitted after having been held back.
    Delayed,
    /// Not charged, although there was enough, because another rule denied.
    Uncharged,
    /// Denied because the rule's key is missing.
    MissingKey,
    /// Had to be held back, but there was no room to wait.
    NoRoom,
    /// The store failed, and the rule lets requests through in that case.
    AllowedByFailure,
    /// The store failed, and the rule denies in that case.
    DeniedByFailure,
    /// The store failed, and this process admitted.
    LocalAdmitted,
    /// The store failed, and this process denied.
    LocalDenied,
    /// The store failed, and the caller got the error.
    Undecided,
}

impl Said {
    #[cfg(feature = "metrics")]
    const COUNT: usize = Self::Undecided as usize + 1;

    #[cfg(any(feature = "metrics", feature = "tracing"))]
    const fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Denied => "denied",
            Self::Delayed => "delayed",
            Self::Uncharged => "uncharged",
            Self::MissingKey => "missing_key",
            Self::NoRoom => "no_room",
            Self::AllowedByFailure => "allowed_by_failure",
            Self::DeniedByFailure => "denied_by_failure",
            Self::LocalAdmitted => "local_admitted",
            Self::LocalDenied => "local_denied",
            Self::Undecided => "undecided",
        }
    }
}

/// How it was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// By the store, at once.
    AtOnce,
    /// By the store, after waiting for the budget.
    Waited,
    /// In this process, because the store failed.
    Locally,
}

/// How a charge was settled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Settled {
    GivenBack,
    Debited,
}

/// Observes one rule of a set.
#[derive(Debug)]
pub(crate) struct RuleWatch {
    name: RuleName,
    /// Whether anything was ever counted under it.
    has_matched: AtomicBool,
    #[cfg(feature = "metrics")]
    counters: metrics::OfRule,
    #[cfg(feature = "tracing")]
    events: events::OfRule,
}

impl RuleWatch {
    pub(crate) fn new(name: RuleName) -> Self {
        Self {
            name,
            has_matched: AtomicBool::new(false),
            #[cfg(feature = "metrics")]
            counters: metrics::OfRule::default(),
            #[cfg(feature = "tracing")]
            events: events::OfRule::default(),
        }
    }

    /// A request is counted under the rule.
    #[inline(always)]
    pub(crate) fn matched(&self) {
        // Read first: a cache line that is never written can be shared by all cores.
        if !self.has_matched.load(Ordering::Relaxed) {
            self.has_matched.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn has_matched(&self) -> bool {
        self.has_matched.load(Ordering::Relaxed)
    }

    /// The rule, which is enforced, admits a request immediately.
    #[inline(always)]
    pub(crate) fn admitted(&self, outcome: &Outcome) {
        self.matched();
        self.count(Role::Enforced, Said::Admitted, Some(outcome));
    }

    /// The rule, which is enforced, denies a request by itself.
    #[inline]
    pub(crate) fn denied(&self, at: Timestamp, outcome: &Outcome) {
        self.matched();
        self.count(Role::Enforced, Said::Denied, Some(outcome));
        self.tell_denied(Role::Enforced, at, outcome);
    }

    /// A request does not have the rule's key, and is denied for it, or would be.
    #[cold]
    pub(crate) fn missing_key(&self, role: Role) {
        self.matched();
        self.count(role, Said::MissingKey, None);
        #[cfg(feature = "tracing")]
        self.events.missing_key(self.name, role, now());
    }

    /// The answer for a rule in shadow, or for a candidate.
    pub(crate) fn shadowed(&self, role: Role, answer: &Result<Decision, StoreError>) {
        let said = answer.as_ref().ok().and_then(|decision| Some((decision.at(), decision.tightest()?.1)));
        match said {
            None => self.count(role, Said::Undecided, None),
            Some((_, outcome)) if outcome.is_admitted() => self.count(role, Said::Admitted, Some(outcome)),
            Some((at, outcome)) => {
                self.count(role, Said::Denied, Some(outcome));
                self.tell_denied(role, at, outcome);
            }
        }
    }

    /// The charge under the rule was raised or lowered by settling.
    pub(crate) fn settled(&self, role: Role, settled: Settled, units: u32) {
        #[cfg(feature = "metrics")]
        if role == Role::Enforced {
            self.counters.settled(self.name, settled, units);
        }
        #[cfg(not(feature = "metrics"))]
        let _ = (role, settled, units);
    }

    #[inline(always)]
    fn count(&self, role: Role, said: Said, outcome: Option<&Outcome>) {
        #[cfg(feature = "metrics")]
        self.counters.count(self.name, role, said, outcome);
        #[cfg(not(feature = "metrics"))]
        let _ = (role, said, outcome);
    }

    #[inline]
    fn tell_denied(&self, role: Role, at: Timestamp, outcome: &Outcome) {
        #[cfg(feature = "tracing")]
        self.events.denied(self.name, role, at, outcome);
        #[cfg(not(feature = "tracing"))]
        let _ = (self.name, role, at, outcome);
    }
}

impl Clone for RuleWatch {
    /// The watch of a new set, about which nothing is known yet.
    fn clone(&self) -> Self {
        Self::new(self.name)
    }
}

/// A plan was decided.
#[inline]
pub(crate) fn decided(plan: &Plan, decision: &Decision, how: How) {
    if cfg!(any(feature = "metrics", feature = "tracing")) {
        look_at(plan, decision, how);
    }
}

#[inline(never)]
fn look_at(plan: &Plan, decision: &Decision, how: How) {
    for (planned, outcome) in plan.outcomes(decision) {
        let said = match (how, outcome.is_admitted()) {
            (How::Locally, false) => Said::LocalDenied,
            (_, false) => Said::Denied,
            (_, true) if !decision.is_admitted() => Said::Uncharged,
            (How::Locally, true) => Said::LocalAdmitted,
            (How::Waited, true) => Said::Delayed,
            (How::AtOnce, true) if outcome.is_delayed() => Said::Delayed,
            (How::AtOnce, true) => Said::Admitted,
        };
        rule(plan, planned).watch.count(Role::Enforced, said, Some(outcome));
    }
    if how == How::Locally {
        // The rules that do not decide locally let the request through, if these do.
        let said = if decision.is_admitted() { Said::AllowedByFailure } else { Said::Uncharged };
        let others = plan.entries().iter().map(|planned| (rule(plan, planned), planned));
        let others = others.filter(|(rule, planned)| rule.local_quota(&planned.quota).is_none());
        others.for_each(|(rule, _)| rule.watch.count(Role::Enforced, said, None));
    }
    if !decision.is_admitted() {
        let tightest = decision.tightest().map(|(name, _)| name);
        let is_tightest = |(planned, _): &(&Planned, &Outcome)| Some(rule(plan, planned).name) == tightest;
        if let Some((planned, outcome)) = plan.outcomes(decision).find(is_tightest) {
            rule(plan, planned).watch.tell_denied(Role::Enforced, decision.at(), outcome);
        }
    }
}

/// The store failed, with this outcome. If a rule denies because of it, the others are not charged.
#[cold]
pub(crate) fn failed(plan: &Plan, error: &StoreError, said: Said, by: Option<RuleName>) {
    let mut told = false;
    for rule in plan.entries().iter().map(|planned| rule(plan, planned)) {
        let is_it = by.is_none_or(|name| name == rule.name);
        rule.watch.count(Role::Enforced, if is_it { said } else { Said::Uncharged }, None);
        if is_it && !told {
            told = true;
            rule.watch.tell_failed(error, said);
        }
    }
}

/// A plan had to wait, but there was no room.
#[cold]
pub(crate) fn no_room(plan: &Plan) {
    for rule in plan.entries().iter().map(|planned| rule(plan, planned)) {
        rule.watch.count(Role::Enforced, Said::NoRoom, None);
    }
    #[cfg(feature = "tracing")]
    if let Some(first) = plan.entries().first() {
        let rule = rule(plan, first);
        rule.watch.events.no_room(rule.name, now());
    }
}

impl RuleWatch {
    #[inline]
    fn tell_failed(&self, error: &StoreError, said: Said) {
        #[cfg(feature = "tracing")]
        self.events.failed(self.name, now(), error, said);
        #[cfg(not(feature = "tracing"))]
        let _ = (error, said);
    }
}

fn rule<'a>(plan: &'a Plan, planned: &Planned) -> &'a Compiled {
    plan.rules().rule(planned.rule)
}

/// The time, where no store has reported it.
fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::UNIX_EPOCH.saturating_add(since_epoch)
}

/// A hint was given.
pub(crate) fn hinted(hint: &Hint) {
    #[cfg(feature = "metrics")]
    metrics::hinted(hint.code());
    #[cfg(feature = "tracing")]
    events::hinted(hint);
    let _ = hint;
}

/// A request is in the waiting room for as long as this lives.
#[derive(Debug)]
pub(crate) struct Inside {
    #[cfg(feature = "metrics")]
    _gauge: metrics::Inside,
}

impl Inside {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(feature = "metrics")]
            _gauge: metrics::Inside::new(),
        }
    }
}
