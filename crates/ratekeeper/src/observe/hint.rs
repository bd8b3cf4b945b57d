//! Signs of misuse.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// A sign that a limiter does not do what was intended.
///
/// See [`guide::hints`](crate::guide::hints) for all hints and how to fix their causes.
///
/// ```
/// use ratekeeper::{Limiter, Quota, Rule};
///
/// # fn main() -> Result<(), ratekeeper::ConfigError> {
/// let limiter = Limiter::builder().rule(Rule::new("api", Quota::per_second(10))).build()?;
/// for hint in limiter.hints() {
///     eprintln!("{hint}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    code: HintCode,
    message: String,
}

/// The kind of a [`Hint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HintCode {
    /// `RK001`: requests come with forwarding fields, but no proxy is trusted.
    NoTrustedProxy,
    /// `RK002`: a request is counted twice, by two nested layers of the same limiter.
    CountedTwice,
    /// `RK003`: a rule has matched nothing for an hour.
    NeverMatched,
    /// `RK004`: a rule counts by the address of the peer, which is not known.
    NoPeer,
    /// `RK005`: two limiters share a store, and have rules with the same name but different quotas.
    SharedStore,
}

impl HintCode {
    const ALL: [Self; 5] =
        [Self::NoTrustedProxy, Self::CountedTwice, Self::NeverMatched, Self::NoPeer, Self::SharedStore];

    /// The code, such as `RK001`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoTrustedProxy => "RK001",
            Self::CountedTwice => "RK002",
            Self::NeverMatched => "RK003",
            Self::NoPeer => "RK004",
            Self::SharedStore => "RK005",
        }
    }

    /// The page that explains the hint and how to fix its cause.
    #[must_use]
    pub const fn page(self) -> &'static str {
        match self {
            Self::NoTrustedProxy => {
                "https://docs.rs/ratekeeper/latest/ratekeeper/guide/hints/index.html#rk001"
            }
            Self::CountedTwice => "https://docs.rs/ratekeeper/latest/ratekeeper/guide/hints/index.html#rk002",
            Self::NeverMatched => "https://docs.rs/ratekeeper/latest/ratekeeper/guide/hints/index.html#rk003",
            Self::NoPeer => "https://docs.rs/ratekeeper/latest/ratekeeper/guide/hints/index.html#rk004",
            Self::SharedStore => "https://docs.rs/ratekeeper/latest/ratekeeper/guide/hints/index.html#rk005",
        }
    }
}

impl Hint {
    /// The kind of hint.
    #[must_use]
    pub const fn code(&self) -> HintCode {
        self.code
    }

    /// What was observed.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (see {})", self.code.as_str(), self.message, self.code.page())
    }
}

/// The hints that a limiter has given, each once.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    is_given: [AtomicBool; HintCode::ALL.len()],
    given: Mutex<Vec<Hint>>,
}

impl Hints {
    pub(crate) fn is_given(&self, code: HintCode) -> bool {
        self.is_given[code as usize].load(Ordering::Relaxed)
    }

    /// Gives a hint, unless it was given before.
    #[cold]
    pub(crate) fn give(&self, code: HintCode, message: String) {
        if self.is_given[code as usize].swap(true, Ordering::Relaxed) {
            return;
        }
        let hint = Hint { code, message };
        super::hinted(&hint);
        self.given.lock().unwrap_or_else(PoisonError::into_inner).push(hint);
    }

    pub(crate) fn all(&self) -> Vec<Hint> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hint_has_a_place_on_the_page_that_it_names() {
        let page = include_str!("../../docs/hints.md");
        for code in HintCode::ALL {
            assert!(page.contains(&format!("\n# {}\n", code.as_str())), "{code:?}");
            let anchor = format!("guide/hints/index.html#{}", code.as_str().to_lowercase());
            assert!(code.page().ends_with(&anchor), "{code:?}");
        }
    }

    #[test]
    fn each_is_given_once() {
        let hints = Hints::default();
        hints.give(HintCode::NoPeer, "first".to_owned());
        hints.give(HintCode::NoPeer, "second".to_owned());
        assert!(hints.is_given(HintCode::NoPeer) && !hints.is_given(HintCode::NeverMatched));
        let [hint] = &*hints.all() else { panic!("{:?}", hints.all()) };
        assert_eq!(hint.to_string(), format!("RK004: first (see {})", HintCode::NoPeer.page()));
    }
}
