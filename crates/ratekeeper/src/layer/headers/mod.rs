//! The header fields in which a response reports budgets.

pub(crate) mod ietf;
pub(crate) mod legacy;
mod number;

pub(crate) use self::number::{number, push_number};
use http::{HeaderMap, HeaderValue};
use ratekeeper_core::{Decision, IetfDraft};
use smallvec::SmallVec;

/// Which fields are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeaderFields {
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub(crate) legacy: bool,
    /// `RateLimit` and `RateLimit-Policy`.
    pub(crate) ietf: Option<IetfDraft>,
}

impl Default for HeaderFields {
    fn default() -> Self {
        Self { legacy: true, ietf: None }
    }
}

/// The lines of the IETF fields in a response: `RateLimit-Policy` and `RateLimit`, for each rule.
#[derive(Debug, Default)]
pub(crate) struct Lines(SmallVec<[(HeaderValue, HeaderValue); 1]>);

impl HeaderFields {
    /// The lines for a decision. `policies` are those of its rules, in order.
    pub(crate) fn lines<P>(&self, decision: &Decision, policies: impl FnOnce() -> P) -> Lines
    where
        P: Iterator<Item = HeaderValue>,
    {
        match self.ietf {
            None => Lines::default(),
            Some(draft) => {
                let limits = decision.outcomes().map(|(rule, outcome)| ietf::limit(draft, rule, outcome));
                Lines(policies().zip(limits).collect())
            }
        }
    }
}

impl Lines {
    /// How many lines there are, of both fields.
    pub(crate) fn fields(&self) -> usize {
        2 * self.0.len()
    }

    /// Writes them in addition to what an inner layer has written.
    pub(crate) fn write(self, headers: &mut HeaderMap) {
        if !self.0.is_empty() {
            ietf::remove_other_forms(headers);
        }
        for (policy, limit) in self.0 {
            ietf::append(policy, limit, headers);
        }
    }
}
