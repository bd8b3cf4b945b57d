//! Keys of gRPC requests: the called service and method.

use ratekeeper_core::Key;

use super::{Extracted, KeyExtractor};
use crate::request::RequestHead;
use crate::request::pattern::decode;

/// See [`grpc_service`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct GrpcService;

/// The service that a gRPC request calls, such as `shop.v1.Orders`: the first of the two segments of its
/// path.
///
/// A path that does not have two segments is not a gRPC path and has no such key. Callers can make up as many
/// services as they like. If that matters, have the rule match the existing ones with
/// [`Rule::on_path`](crate::Rule::on_path).
pub fn grpc_service() -> GrpcService {
    GrpcService
}

impl KeyExtractor for GrpcService {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        call(head.path()).and_then(|call| call.split('/').next()).map(key).into()
    }
}

/// See [`grpc_method`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct GrpcMethod;

/// The method that a gRPC request calls, with its service, such as `shop.v1.Orders/Place`.
///
/// Methods of the same name in two services are two keys.
///
/// A path that does not have two segments is not a gRPC path and has no such key. Callers can make up as many
/// methods as they like; see [`grpc_service`].
///
/// ```
/// use ratekeeper::{Quota, Rule, key};
///
/// // Each caller may call each method of this service ten times a second.
/// let rule = Rule::new("orders", Quota::per_second(10))
///     .on_path("/shop.v1.Orders/{method}")
///     .key((key::peer_ip(), key::grpc_method()));
/// # let _ = rule;
/// ```
pub fn grpc_method() -> GrpcMethod {
    GrpcMethod
}

impl KeyExtractor for GrpcMethod {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        call(head.path()).map(key).into()
    }
}

/// What a gRPC path calls: a service, a slash and a method.
fn call(path: &str) -> Option<&str> {
    let call = path.strip_prefix('/')?;
    let (service, method) = call.split_once('/')?;
    (!service.is_empty() && !method.is_empty() && !method.contains('/')).then_some(call)
}

/// A name as a key. Names need no percent-encoding, but a server may decode it, and then an encoded spelling
/// is the same name.
fn key(name: &str) -> Key {
    Key::from(decode(name).as_ref())
}
