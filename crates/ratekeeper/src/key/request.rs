//! Keys that the request carries in its head.

use std::borrow::Cow;

use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderName, Method};
use ratekeeper_core::Key;

use super::{Extracted, KeyExtractor};
use crate::request::RequestHead;
use crate::request::pattern::decode;

/// See [`header`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Header(HeaderName);

/// The value of a header field.
///
/// A request may carry several fields of one name, and which of them the application reads is not known here.
/// If their values differ, all such requests are counted together, under [`Key::AMBIGUOUS`]: otherwise whoever
/// has a key could add another one to each request, and be a different caller each time. That is still one
/// budget besides the caller's own, so whatever checks the value should refuse more than one. White space
/// around a value is ignored, and an empty value is a missing one.
///
/// Callers can send whatever they like. With a value that nobody has checked, such as an API key before it is
/// looked up, one caller can pose as any number of callers: limit these by their address as well.
///
/// The case of the name makes no difference.
///
/// # Panics
///
/// If it is not the name of a header field. To have an error instead, make a [`Header`] from a `HeaderName`.
#[track_caller]
pub fn header(name: &str) -> Header {
    Header(field_name(name))
}

/// The name of a field, whatever its case.
#[track_caller]
pub(super) fn field_name(name: &str) -> HeaderName {
    match HeaderName::from_bytes(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("`{name}` is not the name of a header field"),
    }
}

/// For names that are known only at run time.
impl From<HeaderName> for Header {
    fn from(name: HeaderName) -> Self {
        Self(name)
    }
}

impl Header {
    /// Treats the value as a secret: it is never shown, only a digest of it.
    pub fn secret(self) -> Secret<Self> {
        Secret(self)
    }
}

impl KeyExtractor for Header {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        // White space around a value is not part of it. HTTP/1 has removed it by now, HTTP/2 has not.
        the_one(head.headers().get_all(&self.0).iter().map(|value| value.as_bytes().trim_ascii()))
    }
}

/// The value, if all values are equal. If they differ, it is not known which of them counts.
#[inline]
fn the_one<V: AsRef<[u8]> + PartialEq>(mut values: impl Iterator<Item = V>) -> Extracted {
    let Some(first) = values.next() else { return Extracted::Missing };
    match values.all(|other| other == first) {
        true => Some(first.as_ref()).into(),
        false => Extracted::Key(Key::AMBIGUOUS),
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

    fn is_required(&self) -> bool {
        self.0.is_required()
    }

    fn path_params<'a>(&'a self, names: &mut Vec<&'a str>) {
        self.0.path_params(names);
    }
}

/// See [`bearer`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Bearer;

/// The bearer token in `Authorization`, treated as a secret.
///
/// Fields with other schemes are ignored. Requests with several tokens that differ are counted together, like
/// those with several fields of a [`header`].
pub fn bearer() -> Secret<Bearer> {
    Secret(Bearer)
}

impl KeyExtractor for Bearer {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        the_one(head.headers().get_all(AUTHORIZATION).iter().filter_map(token))
    }
}

/// The token, if these are bearer credentials. White space around its parts is ignored, as for a [`Header`].
fn token(credentials: &http::HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = credentials.as_bytes().trim_ascii().split_at_checked(b"bearer".len())?;
    let is_apart = token.first().is_some_and(u8::is_ascii_whitespace);
    (scheme.eq_ignore_ascii_case(b"bearer") && is_apart).then(|| token.trim_ascii())
}

/// See [`cookie`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Cookie(Cow<'static, str>);

/// The value of a cookie, percent-decoded and without quotes around it.
///
/// So a session is one key however it is spelled. A percent-encoded name is found as well, because some
/// cookie readers decode it.
///
/// A request may carry several cookies of one name, and which of them the application reads is not known
/// here. If their values differ, all such requests are counted together, under [`Key::AMBIGUOUS`]: otherwise
/// whoever has a session could add another cookie to each request, and be a different caller each time. That
/// is still one budget besides the caller's own, so whatever checks the session should refuse more than one.
pub fn cookie(name: impl Into<Cow<'static, str>>) -> Cookie {
    Cookie(name.into())
}

impl Cookie {
    /// Treats the value as a secret, such as a session's: it is never shown, only a digest of it.
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
    /// The value, if this is the cookie, without anything that readers of cookies remove, or may remove.
    fn value<'a>(&self, pair: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
        // Some readers decode names and some do not, and the application may use either kind.
        let is_it = name == self.0.as_bytes() || *decode(name) == *self.0.as_bytes();
        is_it.then(|| {
            let decoded = decode(unquoted(value));
            // Quotes may have been encoded, and some readers decode first.
            match unquoted(&decoded).len() == decoded.len() {
                true => decoded,
                false => Cow::Owned(unquoted(&decoded).to_vec()),
            }
        })
    }
}

/// The value without the quotes around it, if it has any.
fn unquoted(value: &[u8]) -> &[u8] {
    let inside = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    inside.unwrap_or(value)
}

/// See [`path`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Path;

/// The path, percent-decoded and without the query.
///
/// Adding `?x=1` or spelling a letter as `%61` does not make it another key.
///
/// Callers can make up as many paths as they like. If that matters, count by [`route`]. It matters if the
/// service treats several paths as one, as `ServeDir` does with `//`, `/./` and a trailing slash: each of
/// them is a separate key here. See [`Rule::on`](crate::Rule::on).
pub fn path() -> Path {
    Path
}

impl KeyExtractor for Path {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        Some(decode(head.path()).as_ref()).into()
    }
}

/// See [`path_param`].
#[derive(Clone, Debug)]
#[must_use]
pub struct PathParam(Cow<'static, str>);

/// The value of a path parameter, percent-decoded.
///
/// The parameter is one of the pattern by which the rule matched, or of any of them if it matched by several.
/// Otherwise it is one of the matched route (with the `axum` feature): of a rule without paths, or with one
/// that ends in `{*rest}`. For any other rule, a parameter that none of its paths has is an error. A service nested with
/// `Router::nest_service` has no route parameters. There, have the rule match by patterns, of which it takes
/// three: `/tenants/{tenant}`, `/tenants/{tenant}/` and `/tenants/{tenant}/{*rest}`.
///
/// The value is text here. To a handler that parses it, `7`, `07` and `+7` are one number; here they are
/// three keys, and somebody who guesses at an account has as many budgets as there are spellings. If the
/// value is parsed, count by the parsed value: by what an outer layer puts into the
/// [extensions](super::extension), or by a [closure](super::from_fn) that parses it as well.
pub fn path_param(name: impl Into<Cow<'static, str>>) -> PathParam {
    PathParam(name.into())
}

impl KeyExtractor for PathParam {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        head.path_param(&self.0).as_deref().into()
    }

    fn path_params<'a>(&'a self, names: &mut Vec<&'a str>) {
        names.push(&self.0);
    }
}

/// See [`route`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Route;

/// The pattern of the matched route, such as `/users/{id}`.
///
/// It is available with the `axum` feature, in layers that are added with `Router::layer` or `route_layer`.
pub fn route() -> Route {
    Route
}

impl KeyExtractor for Route {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        #[cfg(feature = "axum")]
        return crate::request::axum::route(head.extensions()).into();
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

/// The method. HEAD counts as GET, because the same handler serves both.
///
/// Callers can make up as many methods as they like, and each is a separate key: have the rule
/// [match](crate::Rule::on_method) only those that are served.
pub fn method() -> RequestMethod {
    RequestMethod
}

impl KeyExtractor for RequestMethod {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        let method = if head.method() == Method::HEAD { &Method::GET } else { head.method() };
        Extracted::Key(Key::from(method.as_str()))
    }
}
