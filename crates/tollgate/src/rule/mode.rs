//! Whether a rule's answer counts.

use tollgate_core::{Key, RuleName, Share};

/// What becomes of what a rule says.
///
/// A rule in shadow counts as if it were enforced, and says so in metrics and logs. It never denies a request, never holds
/// one back, and nobody waits for what it says. Requests that the enforced rules deny are not counted by those in shadow
/// either, as they would not have gone on.
///
/// ```
/// use tollgate::{Mode, Quota, Rule, Share};
///
/// // Look first.
/// let shadow = Rule::new("api", Quota::per_minute(60)).mode(Mode::Shadow);
/// // Then a tenth of all callers, always the same ones.
/// let some = Rule::new("api", Quota::per_minute(60)).mode(Mode::EnforceFor(Share::one_of(10)));
/// // Then everybody.
/// let all = Rule::new("api", Quota::per_minute(60));
/// // And look at a tighter limit beside it.
/// let next = Rule::new("api", Quota::per_minute(60)).candidate(Quota::per_minute(30));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// It counts.
    #[default]
    Enforce,
    /// It is counted and told in metrics and logs, and nothing else comes of it.
    Shadow,
    /// It is enforced for this share of all keys, and in shadow for the others. See [`Share::includes`].
    ///
    /// Requests without the key are all of one share, whatever [becomes of them](crate::MissingKey): that of
    /// [`Key::GLOBAL`].
    EnforceFor(Share),
}

/// For what a charge is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// To be obeyed.
    Enforced,
    /// To be seen.
    Shadow,
    /// To be seen, under the quota that may be the next.
    Candidate,
}

impl Role {
    /// As it stands in metrics and events.
    #[cfg(any(feature = "metrics", feature = "tracing"))]
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Enforced => "enforce",
            Self::Shadow => "shadow",
            Self::Candidate => "candidate",
        }
    }
}

impl Mode {
    #[inline]
    pub(super) fn role(self, rule: RuleName, key: &Key) -> Role {
        match self {
            Self::Enforce => Role::Enforced,
            Self::EnforceFor(share) if share.includes(rule, key) => Role::Enforced,
            Self::EnforceFor(_) | Self::Shadow => Role::Shadow,
        }
    }
}
