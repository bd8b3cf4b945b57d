//! What a response says about budgets.

pub(crate) mod ietf;
mod legacy;
mod number;

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tollgate_core::Decision;

use self::legacy::Trio;
pub(crate) use self::number::{number, push_number};

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

/// The fields of one response, made when it is decided and written when the response is there.
#[derive(Debug)]
pub(crate) struct Written {
    legacy: Option<Trio>,
    /// Lines of `RateLimit-Policy`, and of `RateLimit`.
    ietf: Vec<(HeaderValue, HeaderValue)>,
}

impl HeaderFields {
    /// The fields for a decision. `policies` are those of its rules, in their order.
    #[inline(always)]
    pub(crate) fn of(&self, decision: &Decision, policies: impl Iterator<Item = HeaderValue>) -> Written {
        Written {
            legacy: if self.legacy { Trio::new(decision) } else { None },
            ietf: match self.ietf {
                None => Vec::new(),
                Some(IetfDraft::Draft11) => {
                    let limits = decision.outcomes().map(|(rule, outcome)| ietf::limit(rule, outcome));
                    policies.zip(limits).collect()
                }
            },
        }
    }
}

impl Written {
    /// Writes them beside what an inner layer, which may have denied, has written.
    pub(crate) fn write(self, headers: &mut HeaderMap, denied_within: bool) {
        if let Some(trio) = self.legacy {
            trio.write(headers, denied_within);
        }
        for (policy, limit) in self.ietf {
            ietf::append(policy, limit, headers);
        }
    }
}

/// A wait in whole seconds: rounded up, as a client that comes too early comes in vain, and at least one.
pub(crate) fn seconds(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1)
}
