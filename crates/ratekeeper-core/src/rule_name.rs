//! The name of a rule, checked once and cheap to pass around.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

/// The longest name a rule can have.
const MAX_LEN: usize = 64;

/// Every name in use. Each name is kept once, for the life of the process. Names come from whoever writes the
/// rules and never from callers, so there are few, and a [`RuleName`] is one pointer that can go into
/// decisions and metrics without reference counting.
static NAMES: Mutex<BTreeMap<&'static str, &'static Interned>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
struct Interned {
    name: &'static str,
    id: u64,
}

/// The name of a rule: 1 to 64 printable ASCII characters other than space, `"` and `\`.
///
/// These characters need no escaping in a header field, in JSON, in a Redis key or in a metric.
///
/// ```
/// use ratekeeper_core::RuleName;
///
/// let name = RuleName::new("per-user")?;
/// assert_eq!(name.as_str(), "per-user");
/// assert!(RuleName::new("näme").is_err());
/// # Ok::<(), ratekeeper_core::RuleNameError>(())
/// ```
#[derive(Clone, Copy)]
pub struct RuleName(&'static Interned);

impl RuleName {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// If the name is empty, longer than 64 bytes, or has a character that is not allowed.
    pub fn new(name: &str) -> Result<Self, RuleNameError> {
        check(name)?;
        // A thread that panicked while holding the lock had not begun to change the map.
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.get(name) {
            return Ok(Self(known));
        }
        let name: &'static str = String::from(name).leak();
        let interned: &'static Interned = Box::leak(Box::new(Interned { name, id: fnv1a(name) }));
        names.insert(name, interned);
        Ok(Self(interned))
    }

    /// The name as text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0.name
    }

    /// A number that depends on the name alone, the same in every process.
    #[must_use]
    pub const fn id(self) -> u64 {
        self.0.id
    }
}

/// FNV-1a. The names of a rule set are checked against each other when it is built, so this hash need not
/// resist attacks.
fn fnv1a(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn check(name: &str) -> Result<(), RuleNameError> {
    let reason = if name.is_empty() {
        Reason::Empty
    } else if name.len() > MAX_LEN {
        Reason::TooLong
    } else if let Some(bad) = name.chars().find(|c| !c.is_ascii_graphic() || matches!(c, '"' | '\\')) {
        Reason::Character(bad)
    } else {
        return Ok(());
    };
    Err(RuleNameError { name: name.chars().take(MAX_LEN).collect(), reason })
}

impl PartialEq for RuleName {
    fn eq(&self, other: &Self) -> bool {
        // Names are interned: each has exactly one address.
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for RuleName {}

impl Hash for RuleName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id.hash(state);
    }
}

impl fmt::Debug for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A name that a rule cannot have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleNameError {
    name: String,
    reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    Empty,
    TooLong,
    Character(char),
}

impl fmt::Display for RuleNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            Reason::Empty => f.write_str("a rule name cannot be empty"),
            Reason::TooLong => {
                write!(f, "the rule name `{}…` is longer than {MAX_LEN} bytes", self.name)
            }
            Reason::Character(bad) => write!(
                f,
                "the rule name {:?} has the character {bad:?}; a name is made of printable ASCII \
                 without spaces, quotes and backslashes",
                self.name
            ),
        }
    }
}

impl Error for RuleNameError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_is_kept_once() {
        let (a, b) = (RuleName::new("same").unwrap(), RuleName::new("same").unwrap());
        assert_eq!(a, b);
        assert!(std::ptr::eq(a.as_str(), b.as_str()));
        assert_ne!(a, RuleName::new("other").unwrap());
    }

    #[test]
    fn a_bad_name_is_refused_and_the_error_says_why() {
        for (name, says) in [
            ("", "cannot be empty"),
            ("a b", "' '"),
            ("say \"hi\"", "printable ASCII"),
            ("back\\slash", "'\\\\'"),
            ("tab\t", "'\\t'"),
            ("ü", "'ü'"),
        ] {
            let error = RuleName::new(name).unwrap_err().to_string();
            assert!(error.contains(says), "{name:?}: {error}");
        }
        assert!(RuleName::new(&"x".repeat(64)).is_ok());
        assert!(RuleName::new(&"x".repeat(65)).unwrap_err().to_string().contains("longer than 64"));
    }
}
