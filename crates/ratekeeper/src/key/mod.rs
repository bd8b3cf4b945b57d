//! Who is counted: how a rule takes its key from a request.
//!
//! | key | what it is |
//! |---|---|
//! | [`peer_ip`] | the address of the peer, the default |
//! | [`client_ip`] | the address of the client behind [trusted proxies](TrustedProxies) |
//! | [`header`], [`bearer`], [`cookie`] | a value that the request carries |
//! | [`path`], [`path_param`], [`route`], [`method`] | what the request is for |
//! | [`grpc_service`], [`grpc_method`] | what a gRPC request calls |
//! | [`extension`] | what an outer layer knows, such as the user |
//! | [`global`] | one budget for all |
//! | [`from_fn`], [`from_async_fn`] | anything else |
//!
//! A tuple of keys is a key: `(key::peer_ip(), key::path())` counts each address on each path. A part that a
//! request does not have is [missing](Key::MISSING) beside the others, unless it is [`required`]. Of keys that
//! stand in for each other, [`first_of`] takes the first one that a request has.
//!
//! A request without the key is not an error. The rule decides what to do with it; see
//! [`MissingKey`](crate::MissingKey). An empty text is no key.

mod address;
mod client_ip;
mod combine;
mod first_of;
mod forwarded;
mod grpc;
mod node;
mod request;
mod several;
mod source;

use std::future::Future;
use std::pin::Pin;

pub use ratekeeper_core::Key;

pub use self::address::{PeerIp, peer_ip};
pub(crate) use self::client_ip::X_FORWARDED_FOR;
pub use self::client_ip::{ClientIp, TrustedProxies, client_ip};
pub use self::combine::{Constant, FromFn, constant, extension, from_async_fn, from_fn, global};
pub use self::first_of::{FirstOf, first_of};
#[doc(hidden)]
pub use self::forwarded::intact_forwarded;
pub use self::grpc::{GrpcMethod, GrpcService, grpc_method, grpc_service};
pub use self::request::{
    Bearer, Cookie, Header, Path, PathParam, RequestMethod, Route, Secret, bearer, cookie, header, method,
    path, path_param, route,
};
pub use self::several::{Required, required};
pub(crate) use self::source::KeySource;
use crate::request::RequestHead;
pub use crate::request::peer::{PeerAddr, canonical_ip};

/// Takes a key from a request.
///
/// For a custom key, [`from_fn`] is usually shorter than an implementation of this trait.
///
/// ```
/// use ratekeeper::key::{Extracted, KeyExtractor};
/// use ratekeeper::{Key, RequestHead};
///
/// #[derive(Clone, Debug)]
/// struct Tenant;
///
/// impl KeyExtractor for Tenant {
///     fn extract(&self, head: &RequestHead<'_>) -> Extracted {
///         // All spellings are one tenant.
///         let tenant = head.host().and_then(|host| host.split('.').next());
///         tenant.map(str::to_ascii_lowercase).into()
///     }
/// }
/// ```
pub trait KeyExtractor: Send + Sync + 'static {
    /// The key of a request.
    fn extract(&self, head: &RequestHead<'_>) -> Extracted;

    /// Whether a key of several parts is missing without this one. It is not, by default; see [`required`].
    fn is_required(&self) -> bool {
        false
    }

    /// Adds the names of the path parameters that it takes, so that a rule can check them against its paths.
    #[doc(hidden)]
    fn path_params<'a>(&'a self, names: &mut Vec<&'a str>) {
        let _ = names;
    }

    /// This key, or another one for requests that do not have it. See [`first_of`].
    fn or<K: KeyExtractor>(self, other: K) -> FirstOf<(Self, K)>
    where
        Self: Sized,
    {
        FirstOf::either(self, other)
    }
}

/// A future of a key.
pub type KeyFuture = Pin<Box<dyn Future<Output = Option<Key>> + Send>>;

/// The key of a request, if it has one.
#[non_exhaustive]
pub enum Extracted {
    /// The key.
    Key(Key),
    /// The request has no such key.
    Missing,
    /// The key has to be looked up.
    Later(KeyFuture),
}

impl Extracted {
    pub(crate) async fn wait(self) -> Option<Key> {
        match self {
            Self::Key(key) => Some(key),
            Self::Missing => None,
            Self::Later(key) => key.await.filter(is_present),
        }
    }
}

/// An empty text is [missing](Extracted::Missing).
impl<K: Into<Key>> From<Option<K>> for Extracted {
    fn from(key: Option<K>) -> Self {
        key.map(Into::into).filter(is_present).map_or(Self::Missing, Self::Key)
    }
}

/// Whether a key is more than an empty text. Whoever sends an empty value has none, and is not one more caller.
fn is_present(key: &Key) -> bool {
    *key != Key::from("") && *key != Key::secret("")
}

impl std::fmt::Debug for Extracted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Key(key) => f.debug_tuple("Key").field(key).finish(),
            Self::Missing => f.write_str("Missing"),
            Self::Later(_) => f.write_str("Later(..)"),
        }
    }
}

#[cfg(test)]
mod tests;
