//! Keys that stand in for each other.

use super::{Extracted, KeyExtractor};
use crate::RequestHead;

/// See [`first_of`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct FirstOf<K>(K);

/// The first of up to four keys that a request has.
///
/// ```
/// use ratekeeper::{KeyExtractor, Quota, Rule, key};
///
/// // By the API key, or by the address of those who have none.
/// let rule = Rule::new("api", Quota::per_second(10))
///     .key(key::first_of((key::header("x-api-key").secret(), key::peer_ip())));
/// // The same.
/// let rule = rule.key(key::header("x-api-key").secret().or(key::peer_ip()));
/// # let _ = rule;
/// ```
///
/// Nobody has checked what a caller sends. Whoever makes up an API key with each request has a fresh budget
/// each time: limit callers by their address as well, or count by what an outer layer has checked.
///
/// Equal texts from two of the keys are one key, while a text is never an address or a secret.
pub fn first_of<K>(keys: K) -> FirstOf<K>
where
    FirstOf<K>: KeyExtractor,
{
    FirstOf(keys)
}

impl<A, B> FirstOf<(A, B)> {
    pub(super) const fn either(a: A, b: B) -> Self {
        Self((a, b))
    }
}

/// The first key, or else the second. That is made from the head in any case if the first one has to be looked
/// up, but it is not waited for unless the first one is missing.
fn either(first: Extracted, second: impl FnOnce() -> Extracted) -> Extracted {
    match first {
        Extracted::Key(_) => first,
        Extracted::Missing => second(),
        Extracted::Later(_) => {
            let second = second();
            Extracted::Later(Box::pin(async move {
                match first.wait().await {
                    Some(key) => Some(key),
                    None => second.wait().await,
                }
            }))
        }
    }
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for FirstOf<(A, B)> {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        let (a, b) = &self.0;
        either(a.extract(head), || b.extract(head))
    }

    fn path_params<'a>(&'a self, names: &mut Vec<&'a str>) {
        self.0.path_params(names);
    }
}

impl<A: KeyExtractor, B: KeyExtractor, C: KeyExtractor> KeyExtractor for FirstOf<(A, B, C)> {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        let (a, b, c) = &self.0;
        either(a.extract(head), || either(b.extract(head), || c.extract(head)))
    }

    fn path_params<'a>(&'a self, names: &mut Vec<&'a str>) {
        self.0.path_params(names);
    }
}

impl<A, B, C, D> KeyExtractor for FirstOf<(A, B, C, D)>
where
    A: KeyExtractor,
    B: KeyExtractor,
    C: KeyExtractor,
    D: KeyExtractor,
{
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        let (a, b, c, d) = &self.0;
        either(a.extract(head), || either(b.extract(head), || either(c.extract(head), || d.extract(head))))
    }

    fn path_params<'a>(&'a self, names: &mut Vec<&'a str>) {
        self.0.path_params(names);
    }
}
