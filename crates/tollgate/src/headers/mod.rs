//! What a response says about budgets.
//!
//! Fields are inserted by a reference to their name, here and in `response/`. Only [`Trio::write`] does not, and says why.

pub(crate) mod ietf;
pub(crate) mod legacy;
mod number;

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use smallvec::SmallVec;
use tollgate_core::Decision;

pub(crate) use self::legacy::Trio;
pub(crate) use self::number::{push_number, wait};

/// Which fields are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeaderFields {
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub(crate) legacy: bool,
    /// `RateLimit` and `RateLimit-Policy`.
    pub(crate) ietf: Option<IetfDraft>,
}

/// A revision of the IETF's draft for rate-limit fields.
///
/// They differ in their names and in what they mean, so each has a name of its own here, and none is "the
/// latest".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IetfDraft {
    /// draft-ietf-httpapi-ratelimit-headers-11, of May 2026.
    Draft11,
}

impl Default for HeaderFields {
    fn default() -> Self {
        Self { legacy: true, ietf: None }
    }
}

/// The lines that a response has of the IETF's fields: of `RateLimit-Policy`, and of `RateLimit`, for each rule.
#[derive(Debug, Default)]
pub(crate) struct Lines(SmallVec<[(HeaderValue, HeaderValue); 1]>);

impl HeaderFields {
    /// The lines for a decision. `policies` are those of its rules, in their order.
    #[inline]
    pub(crate) fn lines(&self, decision: &Decision, policies: impl Iterator<Item = HeaderValue>) -> Lines {
        match self.ietf {
            None => Lines::default(),
            Some(IetfDraft::Draft11) => {
                let limits = decision.outcomes().map(|(rule, outcome)| ietf::limit(rule, outcome));
                Lines(policies.zip(limits).collect())
            }
        }
    }
}

impl Lines {
    /// Writes them beside what an inner layer has written.
    #[inline]
    pub(crate) fn write(self, headers: &mut HeaderMap) {
        for (policy, limit) in self.0 {
            ietf::append(policy, limit, headers);
        }
    }
}

/// A wait in whole seconds: rounded up, as a client that comes too early comes in vain, and at least one.
pub(crate) fn seconds(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1)
}
