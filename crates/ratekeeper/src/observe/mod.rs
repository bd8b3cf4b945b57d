//! What operators see: metrics and events, each behind a feature.
//!
//! The code that decides calls this with what was decided. Without the features, none of the metrics and
//! events is compiled. Labels and fields are the names of rules and words of this crate, never anything that
//! a caller sent.

#[cfg(feature = "tracing")]
mod events;
mod hint;
mod limiter;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod sample;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use ratekeeper_core::{Decision, Outcome, RuleName, StoreError, Timestamp};

pub(crate) use self::hint::Hints;
pub use self::hint::{Hint, HintCode};
pub(crate) use self::limiter::{LimiterWatch, SetWatch, StoreFigures};

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
    /// Had to be held back, but too many wait already.
    Overloaded,
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
            Self::Overloaded => "overloaded",
            Self::AllowedByFailure => "allowed_by_failure",
            Self::DeniedByFailure => "denied_by_failure",
            Self::LocalAdmitted => "local_admitted",
            Self::LocalDenied => "local_denied",
            Self::Undecided => "undecided",
        }
    }
}

/// The role in which a charge is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Enforced.
    Enforced,
    /// Only observed.
    Shadow,
    /// Only observed, under the candidate quota.
    Candidate,
}

impl Role {
    /// The name in metrics and events.
    #[cfg(any(feature = "metrics", feature = "tracing"))]
    const fn as_str(self) -> &'static str {
        match self {
            Self::Enforced => "enforce",
            Self::Shadow => "shadow",
            Self::Candidate => "candidate",
        }
    }
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
    pub(crate) fn matched(&self) {
        // Read first: a cache line that is never written can be shared by all cores.
        if !self.has_matched.load(Ordering::Relaxed) {
            self.has_matched.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn has_matched(&self) -> bool {
        self.has_matched.load(Ordering::Relaxed)
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

    pub(crate) fn count(&self, role: Role, said: Said, outcome: Option<&Outcome>) {
        #[cfg(feature = "metrics")]
        self.counters.count(self.name, role, said, outcome);
        #[cfg(not(feature = "metrics"))]
        let _ = (role, said, outcome);
    }

    pub(crate) fn tell_denied(&self, role: Role, at: Timestamp, outcome: &Outcome) {
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

impl RuleWatch {
    pub(crate) fn tell_failed(&self, error: &StoreError, said: Said) {
        #[cfg(feature = "tracing")]
        self.events.failed(self.name, now(), error, said);
        #[cfg(not(feature = "tracing"))]
        let _ = (error, said);
    }

    pub(crate) fn tell_overloaded(&self) {
        #[cfg(feature = "tracing")]
        self.events.overloaded(self.name, now());
    }
}

/// The time, where no store has reported it.
pub(crate) fn now() -> Timestamp {
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

/// A caller waits for as long as this lives.
#[derive(Debug)]
pub(crate) struct WaitingGauge {
    #[cfg(feature = "metrics")]
    _gauge: metrics::WaitingGauge,
}

impl WaitingGauge {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(feature = "metrics")]
            _gauge: metrics::WaitingGauge::new(),
        }
    }
}
