//! Whether a rule is enforced.

use ratekeeper_core::{Key, RuleName, Share};

use crate::observe::Role;

/// Whether a rule is enforced, or only counts.
///
/// A rule in shadow counts as if it were enforced, and reports that in metrics and logs. It never denies a
/// request, never holds one back, and nothing waits for it. Requests that the enforced rules deny are not
/// counted by rules in shadow either, because they would not have been forwarded.
///
/// ```
/// use ratekeeper::{Mode, Quota, Rule, Share};
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
    /// The rule is enforced.
    #[default]
    Enforce,
    /// The rule is counted and reported in metrics and logs, with no other effect.
    Shadow,
    /// The rule is enforced for this share of all keys, and in shadow for the others. See
    /// [`Share::includes`].
    ///
    /// Requests without the key all belong to the same share, that of [`Key::GLOBAL`], however [they are
    /// treated](crate::MissingKey).
    EnforceFor(Share),
}

impl Mode {
    pub(super) fn role(self, rule: RuleName, key: &Key) -> Role {
        match self {
            Self::Enforce => Role::Enforced,
            Self::EnforceFor(share) if share.includes(rule, key) => Role::Enforced,
            Self::EnforceFor(_) | Self::Shadow => Role::Shadow,
        }
    }
}
