//! Keys that the request carries in its head.

use std::borrow::Cow;

use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderName, Method};
use tollgate_core::Key;

use super::{Extracted, KeyExtractor};
use crate::RequestHead;
use crate::rule::decode;

/// See [`header`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Header(HeaderName);

/// The value of a header field.
///
/// A request may carry several fields of one name, and which of them the application looks at is not known here. If their
/// values differ, all such requests are counted together, under [`Key::UNCLEAR`]: otherwise whoever has a key could put
/// another beside it in each request, and be somebody else each time. That is still one budget besides its own, so have whatever
/// checks the value refuse more than one. White space around a value is no part of it.
///
/// Callers can send whatever they like. A value that nobody has checked, as that of an API key before it is looked up, is as many
/// callers as somebody cares to make up: limit those by their address as well.
///
/// # Panics
///
/// When the name is not a lower-case name of a field.
pub fn header(name: &'static str) -> Header {
    Header(HeaderName::from_static(name))
}

/// The value of the field of this name, for names that are not known before the program runs.
impl From<HeaderName> for Header {
    fn from(name: HeaderName) -> Self {
        Self(name)
    }
}

impl Header {
    /// The value is a secret: it is never shown, only a digest of it.
    pub fn secret(self) -> Secret<Self> {
        Secret(self)
    }
}

impl KeyExtractor for Header {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        // White space around a value is no part of it. In HTTP/1 it is gone by now, in HTTP/2 it is not.
        the_one(head.headers().get_all(&self.0).iter().map(|value| value.as_bytes().trim_ascii()))
    }
}

/// What is said once, or several times alike. If what is said differs, it is not known which of it counts.
#[inline]
fn the_one<V: AsRef<[u8]> + PartialEq>(mut values: impl Iterator<Item = V>) -> Extracted {
    let Some(first) = values.next() else { return Extracted::Missing };
    match values.all(|other| other == first) {
        true => Extracted::Key(Key::from(first.as_ref())),
        false => Extracted::Key(Key::UNCLEAR),
    }
}

/// A key that is never shown, only a digest of it.
#[derive(Clone, Debug)]
#[must_use]
pub struct Secret<K>(K);

impl<K: KeyExtractor> KeyExtractor for Secret<K> {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        match self.0.extract(head) {
            Extracted::Key(key) => Extracted::Key(key.into_secret()),
            Extracted::Missing => Extracted::Missing,
            Extracted::Later(key) => {
                Extracted::Later(Box::pin(async move { key.await.map(Key::into_secret) }))
            }
        }
    }
}

/// See [`bearer`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Bearer;

/// The bearer token in `Authorization`, which is a secret.
///
/// Fields of other schemes beside it make no difference. Requests with several tokens that differ are counted together, as
/// those are with several fields of a [`header`].
pub fn bearer() -> Secret<Bearer> {
    Secret(Bearer)
}

impl KeyExtractor for Bearer {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        the_one(head.headers().get_all(AUTHORIZATION).iter().filter_map(token))
    }
}

/// The token, if these are credentials of a bearer: with whatever white space is around its parts, as for a [`Header`].
fn token(credentials: &http::HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = credentials.as_bytes().trim_ascii().split_at_checked(b"bearer".len())?;
    let is_apart = token.first().is_some_and(u8::is_ascii_whitespace);
    (scheme.eq_ignore_ascii_case(b"bearer") && is_apart).then(|| token.trim_ascii())
}

/// See [`cookie`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Cookie(Cow<'static, str>);

/// The value of a cookie, percent-decoded and without quotes around it: however a session is spelled, it is one key. Its
/// name is found percent-encoded as well, as there are readers of cookies that decode it.
///
/// A request may carry several cookies of one name, and which of them the application looks at is not known here. If their
/// values differ, all such requests are counted together, under [`Key::UNCLEAR`]: otherwise whoever has a session could put
/// another cookie beside it in each request, and be somebody else each time. That is still one budget besides its own, so have
/// whatever checks the session refuse more than one.
pub fn cookie(name: impl Into<Cow<'static, str>>) -> Cookie {
    Cookie(name.into())
}

impl Cookie {
    /// The value is a secret, such as a session's: it is never shown, only a digest of it.
    pub fn secret(self) -> Secret<Self> {
        Secret(self)
    }
}

impl KeyExtractor for Cookie {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        let lines = head.headers().get_all(COOKIE).into_iter();
        let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
        the_one(pairs.filter_map(|pair| self.value(pair)))
    }
}

impl Cookie {
    /// The value, if this is the cookie: without what those who read cookies take off, or may.
    fn value<'a>(&self, pair: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
        let quoted = || value.strip_prefix(b"\"")?.strip_suffix(b"\"");
        // Some readers decode names, some do not, and either may be the application's.
        let is_it = name == self.0.as_bytes() || *decode(name) == *self.0.as_bytes();
        is_it.then(|| decode(quoted().unwrap_or(value)))
    }
}

/// See [`path`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Path;

/// The path, percent-decoded and without the query: adding `?x=1` or spelling a letter as `%61` does not
/// make it another.
///
/// Callers can make up as many paths as they like; where that matters, count by [`route`]. It does where the service takes
/// several paths for one, as `ServeDir` does with `//`, `/./` and a slash at the end: each of them is a key of its own here. See
/// [`Rule::on`](crate::Rule::on).
pub fn path() -> Path {
    Path
}

impl KeyExtractor for Path {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        Extracted::Key(Key::from(decode(head.path()).as_ref()))
    }
}

/// See [`path_param`].
#[derive(Clone, Debug)]
#[must_use]
pub struct PathParam(Cow<'static, str>);

/// A path parameter, percent-decoded: of the pattern by which the rule matched, or of any of them if it did by several, else
/// (with the `axum` feature) of the matched route. A service that is nested by `Router::nest_service` has none of these: there, have
/// the rule match by patterns, of which it takes three: `/tenants/{tenant}`, `/tenants/{tenant}/` and
/// `/tenants/{tenant}/{*rest}`.
///
/// It is text here. To a handler that parses it, `7`, `07` and `+7` are one number; to this they are three keys, and who guesses
/// at an account has as many budgets as there are spellings. Where it is parsed, count by what was: by what an outer layer
/// puts into the [extensions](super::extension), or by a [closure](super::from_fn) that parses it as well.
pub fn path_param(name: impl Into<Cow<'static, str>>) -> PathParam {
    PathParam(name.into())
}

impl KeyExtractor for PathParam {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        head.path_param(&self.0).as_deref().into()
    }
}

/// See [`route`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Route;

/// The pattern of the route that matched, such as `/users/{id}`. There is one with the `axum` feature, for
/// layers that are added with `Router::layer` or `route_layer`.
pub fn route() -> Route {
    Route
}

impl KeyExtractor for Route {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        #[cfg(feature = "axum")]
        return crate::axum::route(head.extensions()).into();
        #[cfg(not(feature = "axum"))]
        {
            let _ = head;
            Extracted::Missing
        }
    }
}

/// See [`method`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct RequestMethod;

/// The method; of HEAD it is GET, as the same handler serves both.
///
/// Callers can make up as many methods as they like, and each is a key of its own: have the rule
/// [match](crate::Rule::on_method) those that are served.
pub fn method() -> RequestMethod {
    RequestMethod
}

impl KeyExtractor for RequestMethod {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        let method = if head.method() == Method::HEAD { &Method::GET } else { head.method() };
        Extracted::Key(Key::from(method.as_str()))
    }
}
