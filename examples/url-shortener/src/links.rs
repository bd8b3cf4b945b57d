//! The links. They stand for a database table: here they are in this process, and are lost when it exits.

use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};

use axum::http::{HeaderValue, Uri};

/// The longest address that is accepted, in bytes.
pub(crate) const MAX_LENGTH: usize = 2_000;

/// Where a link leads: a web address that can stand in a header field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target(HeaderValue);

impl FromStr for Target {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WHY: &str = "this is not a web address such as https://www.rust-lang.org/\n";
        let text = text.trim();
        let uri: Uri = text.parse().map_err(|_| WHY)?;
        // A relative address would lead back here, and `javascript:` would be unsafe.
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(WHY);
        }
        HeaderValue::from_str(text).map(Self).map_err(|_| WHY)
    }
}

impl From<Target> for HeaderValue {
    fn from(target: Target) -> Self {
        target.0
    }
}

/// All links, numbered. A link's code is its number in letters and digits: short, and easily guessed, so
/// links are not secret.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links(Arc<RwLock<Vec<Target>>>);

impl Links {
    /// Adds a link, and returns its code.
    pub(crate) fn add(&self, target: Target) -> String {
        let mut links = self.0.write().unwrap_or_else(PoisonError::into_inner);
        links.push(target);
        code(links.len())
    }

    /// Where the link with this code leads.
    pub(crate) fn find(&self, code: &str) -> Option<Target> {
        let number = usize::from_str_radix(code, 36).ok()?;
        let links = self.0.read().unwrap_or_else(PoisonError::into_inner);
        links.get(number.checked_sub(1)?).cloned()
    }
}

/// A number in letters and digits.
fn code(mut number: usize) -> String {
    let mut digits = Vec::new();
    while number > 0 {
        digits.push(b"0123456789abcdefghijklmnopqrstuvwxyz"[number % 36]);
        number /= 36;
    }
    digits.iter().rev().map(|digit| char::from(*digit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_added_and_nothing_else() {
        let links = Links::default();
        let target = |number: usize| format!("https://example.com/{number}").parse::<Target>().unwrap();
        let codes: Vec<_> = (1..=1_300).map(|number| links.add(target(number))).collect();
        assert_eq!((&*codes[0], &*codes[35], &*codes[1_295]), ("1", "10", "100"));
        for (number, code) in (1..).zip(&codes) {
            assert_eq!(links.find(code), Some(target(number)));
        }
        for code in ["0", "1001", "", "-1", "ä", "zzzzzzzzzzzzzzzzzzzz"] {
            assert_eq!(links.find(code), None, "{code}");
        }
    }

    #[test]
    fn takes_web_addresses_only() {
        for good in ["https://www.rust-lang.org/", "http://[::1]:8080/a?b=c#d", " https://example.com\n"] {
            assert!(good.parse::<Target>().is_ok(), "{good}");
        }
        let bad = [
            "",
            "/shorten",
            "example.com",
            "javascript:alert(1)",
            "ftp://example.com/",
            "https://",
            "https:///x",
        ];
        for bad in
            bad.into_iter().chain(["https://example.com/a b", "https://example.com/\r\nset-cookie: a=b"])
        {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
