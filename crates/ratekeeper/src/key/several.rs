//! Keys of several parts.

use std::sync::Arc;

use ratekeeper_core::Key;

use super::{Extracted, KeyExtractor};
use crate::request::RequestHead;

/// See [`required`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Required<K>(K);

/// A part without which a key of several parts is missing.
///
/// Otherwise a part that a request does not have is [missing](Key::MISSING) beside those that it has, and only
/// a request that has none of them has no key.
///
/// ```
/// use ratekeeper::{MissingKey, Quota, Rule, key};
///
/// // Each token on each path. A request without a token is denied.
/// let rule = Rule::new("api", Quota::per_second(10))
///     .key((key::required(key::bearer()), key::path()))
///     .on_missing_key(MissingKey::Deny);
/// # let _ = rule;
/// ```
pub fn required<K: KeyExtractor>(key: K) -> Required<K> {
    Required(key)
}

impl<K: KeyExtractor> KeyExtractor for Required<K> {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        self.0.extract(head)
    }

    fn is_required(&self) -> bool {
        true
    }

    fn path_params<'a>(&'a self, names: &mut Vec<&'a str>) {
        self.0.path_params(names);
    }
}

/// A key of several parts, while they are added.
struct Parts {
    key: Key,
    /// Whether a part was found that adds something to the key, and whether a part was missing.
    found: bool,
    missing: bool,
}

/// A part, and whether it is required.
type Part = (Extracted, bool);

impl Parts {
    const NONE: Self = Self { key: Key::GLOBAL, found: false, missing: false };

    /// Adds the next part. `None` if it is missing and required.
    fn add(self, part: Option<Key>, is_required: bool) -> Option<Self> {
        match part {
            Some(part) => {
                Some(Self { key: self.key.and(part), found: self.found || part != Key::GLOBAL, ..self })
            }
            None if is_required => None,
            None => Some(Self { key: self.key.and(Key::MISSING), missing: true, ..self }),
        }
    }

    /// The key, unless all parts are missing.
    fn key(self) -> Option<Key> {
        (self.found || !self.missing).then_some(self.key)
    }
}

/// Combines parts, in order. Those from the first one that has to be looked up are combined later.
fn combine(parts: impl IntoIterator<Item = Part>) -> Extracted {
    let (mut combined, mut parts) = (Parts::NONE, parts.into_iter());
    while let Some((part, is_required)) = parts.next() {
        let part = match part {
            Extracted::Key(key) => Some(key),
            Extracted::Missing => None,
            Extracted::Later(_) => {
                let later: Vec<Part> = std::iter::once((part, is_required)).chain(parts).collect();
                return combine_later(combined, later);
            }
        };
        match combined.add(part, is_required) {
            Some(more) => combined = more,
            None => return Extracted::Missing,
        }
    }
    combined.key().into()
}

fn combine_later(mut combined: Parts, later: Vec<Part>) -> Extracted {
    // If a required part is missing, nothing needs to be waited for.
    if later.iter().any(|part| matches!(part, (Extracted::Missing, true))) {
        return Extracted::Missing;
    }
    Extracted::Later(Box::pin(async move {
        for (part, is_required) in later {
            combined = combined.add(part.wait().await, is_required)?;
        }
        combined.key()
    }))
}

fn part(key: &impl KeyExtractor, head: &RequestHead<'_>) -> Part {
    (key.extract(head), key.is_required())
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for (A, B) {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        combine([part(&self.0, head), part(&self.1, head)])
    }

    fn is_required(&self) -> bool {
        self.0.is_required() || self.1.is_required()
    }

    fn path_params<'a>(&'a self, names: &mut Vec<&'a str>) {
        self.0.path_params(names);
        self.1.path_params(names);
    }
}

impl<A: KeyExtractor, B: KeyExtractor, C: KeyExtractor> KeyExtractor for (A, B, C) {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        combine([part(&self.0, head), part(&self.1, head), part(&self.2, head)])
    }

    fn is_required(&self) -> bool {
        self.0.is_required() || self.1.is_required() || self.2.is_required()
    }

    fn path_params<'a>(&'a self, names: &mut Vec<&'a str>) {
        self.0.path_params(names);
        self.1.path_params(names);
        self.2.path_params(names);
    }
}

impl<A: KeyExtractor, B: KeyExtractor, C: KeyExtractor, D: KeyExtractor> KeyExtractor for (A, B, C, D) {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        combine([part(&self.0, head), part(&self.1, head), part(&self.2, head), part(&self.3, head)])
    }

    fn is_required(&self) -> bool {
        self.0.is_required() || self.1.is_required() || self.2.is_required() || self.3.is_required()
    }

    fn path_params<'a>(&'a self, names: &mut Vec<&'a str>) {
        self.0.path_params(names);
        self.1.path_params(names);
        self.2.path_params(names);
        self.3.path_params(names);
    }
}

/// The same key as that of a tuple, for parts that are known only at run time.
impl KeyExtractor for Vec<Arc<dyn KeyExtractor>> {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        combine(self.iter().map(|key| part(key, head)))
    }

    fn is_required(&self) -> bool {
        self.iter().any(KeyExtractor::is_required)
    }

    fn path_params<'a>(&'a self, names: &mut Vec<&'a str>) {
        self.iter().for_each(|key| key.path_params(names));
    }
}
