//! Keys made from constants and closures.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use ratekeeper_core::Key;

use super::{Extracted, KeyExtractor};
use crate::request::RequestHead;

/// See [`constant`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Constant(Key);

/// The same key for all requests.
pub fn constant(key: impl Into<Key>) -> Constant {
    Constant(key.into())
}

/// One budget for all requests.
pub fn global() -> Constant {
    Constant(Key::GLOBAL)
}

impl KeyExtractor for Constant {
    fn extract(&self, _: &RequestHead<'_>) -> Extracted {
        Extracted::Key(self.0)
    }
}

/// See [`from_fn`], [`from_async_fn`] and [`extension`].
#[derive(Clone)]
#[must_use]
pub struct FromFn(Arc<dyn Fn(&RequestHead<'_>) -> Extracted + Send + Sync>);

/// The key that a closure takes from the request.
///
/// ```
/// use ratekeeper::key;
///
/// // Host names are case-insensitive.
/// let tenant = key::from_fn(|head| Some(head.host()?.to_ascii_lowercase()));
/// ```
pub fn from_fn<F, K>(f: F) -> FromFn
where
    F: Fn(&RequestHead<'_>) -> Option<K> + Send + Sync + 'static,
    K: Into<Key>,
{
    FromFn(Arc::new(move |head| f(head).into()))
}

/// A value that an outer layer put into the request's extensions, such as the authenticated user.
///
/// ```
/// use ratekeeper::key;
///
/// #[derive(Clone)]
/// struct User { id: u64 }
///
/// let by_user = key::extension(|user: &User| user.id);
/// ```
pub fn extension<T, K>(f: impl Fn(&T) -> K + Send + Sync + 'static) -> FromFn
where
    T: Send + Sync + 'static,
    K: Into<Key>,
{
    from_fn(move |head| head.extension::<T>().map(&f))
}

/// The key that an async lookup returns for the request.
///
/// The closure takes what it needs from the head before it waits.
///
/// ```
/// use ratekeeper::key;
/// # async fn account_of(token: String) -> Option<u64> { Some(token.len() as u64) }
///
/// let account = key::from_async_fn(|head| {
///     let token = head.headers().get("x-token").and_then(|token| token.to_str().ok()).map(String::from);
///     async move { account_of(token?).await }
/// });
/// ```
pub fn from_async_fn<F, U, K>(f: F) -> FromFn
where
    F: Fn(&RequestHead<'_>) -> U + Send + Sync + 'static,
    U: Future<Output = Option<K>> + Send + 'static,
    K: Into<Key>,
{
    FromFn(Arc::new(move |head| {
        let key = f(head);
        Extracted::Later(Box::pin(async move { key.await.map(Into::into) }))
    }))
}

impl KeyExtractor for FromFn {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        (self.0)(head)
    }
}

impl fmt::Debug for FromFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FromFn(..)")
    }
}

impl KeyExtractor for Arc<dyn KeyExtractor> {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        (**self).extract(head)
    }

    fn is_required(&self) -> bool {
        (**self).is_required()
    }

    fn path_params<'a>(&'a self, names: &mut Vec<&'a str>) {
        (**self).path_params(names);
    }
}
