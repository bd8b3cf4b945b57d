//! The parameter names of the IETF draft, by revision.

/// A revision of the IETF draft for rate-limit fields, draft-ietf-httpapi-ratelimit-headers.
///
/// Revisions differ in the names and meanings of parameters, so each has its own variant, and none is "the
/// latest". Servers write the fields of one revision. Clients read all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IetfDraft {
    /// draft-ietf-httpapi-ratelimit-headers-11, of May 2026.
    Draft11,
    /// The editors' proposal of August 2026 (pull request 166), which renames the parameters of `RateLimit`:
    /// `r` becomes `a`, `t` becomes `w`.
    Pull166,
}

impl IetfDraft {
    /// All revisions, in the order of their publication.
    pub const ALL: [Self; 2] = [Self::Draft11, Self::Pull166];

    /// The parameter of a `RateLimit` member for the available quota.
    #[must_use]
    pub const fn available(self) -> &'static str {
        match self {
            Self::Draft11 => "r",
            Self::Pull166 => "a",
        }
    }

    /// The parameter of a `RateLimit` member for the effective window, in seconds.
    #[must_use]
    pub const fn effective_window(self) -> &'static str {
        match self {
            Self::Draft11 => "t",
            Self::Pull166 => "w",
        }
    }
}
