//! A decision on its way to the caller.

use ratekeeper_core::{Decision, Outcome, RuleName, Timestamp};

/// A decision by Redis, on its way to the caller. It passes through several hands, and is usually about one
/// charge.
#[derive(Debug)]
pub(crate) enum Verdict {
    One { at: Timestamp, rule: RuleName, outcome: Outcome },
    Several(Box<Decision>),
}

impl Verdict {
    pub(crate) fn is_admitted(&self) -> bool {
        match self {
            Self::One { outcome, .. } => outcome.is_admitted(),
            Self::Several(decision) => decision.is_admitted(),
        }
    }

    /// When it was decided.
    pub(crate) fn at(&self) -> Timestamp {
        match self {
            Self::One { at, .. } => *at,
            Self::Several(decision) => decision.at(),
        }
    }

    /// The outcome of one of the charges.
    pub(crate) fn outcome(&self, place: usize) -> Option<(RuleName, Outcome)> {
        match self {
            Self::One { rule, outcome, .. } => (place == 0).then_some((*rule, *outcome)),
            Self::Several(decision) => decision.outcomes().nth(place).map(|(rule, outcome)| (rule, *outcome)),
        }
    }

    pub(crate) fn to_decision(&self) -> Decision {
        match self {
            Self::One { at, rule, outcome } => Decision::one(*at, *rule, *outcome),
            Self::Several(decision) => (**decision).clone(),
        }
    }
}

impl From<Verdict> for Decision {
    #[inline]
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::One { at, rule, outcome } => Self::one(at, rule, outcome),
            Verdict::Several(decision) => *decision,
        }
    }
}
