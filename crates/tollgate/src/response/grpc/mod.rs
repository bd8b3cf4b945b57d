//! What a gRPC request that does not go on is answered: a status, and no message.
//!
//! gRPC has its status beside that of HTTP, which is 200, and in the trailers. A response without a message has its
//! trailers where others have their header fields ("Trailers-Only"), also in gRPC-Web.

mod status;
mod wire;

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use self::status::Status;
use super::{Refusal, Rejection};
use crate::RequestHead;

const GRPC: &str = "application/grpc";
const WEB: &str = "-web";
const WEB_TEXT: &str = "-web-text";

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// What a message cannot have as it is: all but visible ASCII and the space, and the percent sign.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// A gRPC status, for servers that speak nothing else, such as tonic's.
///
/// It needs no more of a body than that it can be empty. [`JsonRejection`](crate::JsonRejection) and
/// [`ProblemRejection`](crate::ProblemRejection) answer gRPC requests in the same way by themselves, but for
/// bodies that can be made from bytes, as others are answered with such; tonic's cannot.
///
/// A request is one of gRPC if it is a `POST`, as every call is, and its content type begins with `application/grpc`, and of
/// gRPC-Web if with `application/grpc-web`; the response has the same type. It is 200 by HTTP, has no body, and says
///
/// - `grpc-status`: 8, RESOURCE_EXHAUSTED, where others are answered with 429, because a rule denies; and 14, UNAVAILABLE,
///   where others are answered with 503, because the store could not decide, or because nobody more can wait;
/// - `grpc-message`: the same in words, with the name of the rule;
/// - `grpc-retry-pushback-ms`: how long to wait, rounded up to milliseconds, which is what clients that retry by
///   themselves go by; -1, which tells them not to, if it would be in vain;
/// - `grpc-status-details-bin`: a `RetryInfo` with the exact wait, unless it would be in vain, and a `QuotaFailure` with
///   the name and limit of each rule that denies, of which the first is to be waited for longest.
///
/// The layer adds the fields that other responses have. A request that is not one of gRPC is answered with 429 or 503
/// and an empty body.
///
/// ```
/// use tollgate::{GrpcRejection, Quota, RateLimitLayer};
///
/// let layer = RateLimitLayer::new(Quota::per_second(10)).rejection(GrpcRejection);
/// # let _ = layer;
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct GrpcRejection;

impl<B: Default> Rejection<B> for GrpcRejection {
    fn reject(&self, head: &RequestHead<'_>, refusal: &Refusal<'_>) -> Response<B> {
        if let Some(call) = Call::of(head) {
            return call.reject(refusal, B::default());
        }
        let mut response = Response::new(B::default());
        *response.status_mut() = refusal.status();
        response
    }
}

/// A request of gRPC or gRPC-Web, by its method and its content type.
pub(super) struct Call<'a>(&'a HeaderValue);

impl<'a> Call<'a> {
    #[inline]
    pub(super) fn of(head: &RequestHead<'a>) -> Option<Self> {
        let content_type = head.headers().get(CONTENT_TYPE).filter(|_| head.method() == Method::POST)?;
        let begins = content_type.as_bytes().get(..GRPC.len())?.eq_ignore_ascii_case(GRPC.as_bytes());
        begins.then_some(Self(content_type))
    }

    /// The response, without the layer's fields.
    #[cold]
    pub(super) fn reject<B>(&self, refusal: &Refusal<'_>, body: B) -> Response<B> {
        let status = Status::of(refusal);
        let mut response = Response::new(body);
        // With room for the layer's.
        let headers = response.headers_mut();
        *headers = HeaderMap::with_capacity(16);
        headers.insert(CONTENT_TYPE, self.answered_type());
        headers.insert(STATUS, HeaderValue::from_static(status.code.as_str()));
        headers.insert(MESSAGE, text(utf8_percent_encode(&status.message, ENCODED).to_string()));
        headers.insert(PUSHBACK, pushback(refusal.wait()));
        headers.insert(DETAILS, text(wire::base64(&status.encode())));
        response
    }

    /// The type of the response: that of the request, without parameters. A client that asked for another format than
    /// protobuf's may insist on it, though there is no message.
    fn answered_type(&self) -> HeaderValue {
        let asked = self.0.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim_end();
        let rest = asked.get(GRPC.len()..).unwrap_or_default();
        let (kind, format) = rest.split_once('+').unwrap_or((rest, ""));
        let begins = |with: &str| kind.get(..with.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(with));
        let kind = if begins(WEB_TEXT) {
            WEB_TEXT
        } else if begins(WEB) {
            WEB
        } else {
            ""
        };
        let known = format.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        if format.is_empty() || !known {
            return text([GRPC, kind].concat());
        }
        text([GRPC, kind, "+", format].concat())
    }
}

/// The bytes of no message, for bodies that are made from bytes.
pub(super) const NO_MESSAGE: Bytes = Bytes::new();

/// How long a client is to wait before it tries again by itself: in milliseconds, of which there are no more
/// than a signed number of 32 bits can count.
fn pushback(wait: Option<Duration>) -> HeaderValue {
    let Some(wait) = wait else { return HeaderValue::from_static("-1") };
    let millis = wait.as_nanos().div_ceil(1_000_000);
    HeaderValue::from(i32::try_from(millis).unwrap_or(i32::MAX))
}

/// What is made here has only visible ASCII and spaces.
fn text(text: String) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn answered_type(asked: &[u8]) -> Option<String> {
        answered_type_of(Method::POST, asked)
    }

    fn answered_type_of(method: Method, asked: &[u8]) -> Option<String> {
        let mut request = Request::new(());
        *request.method_mut() = method;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_bytes(asked).unwrap());
        let answered = Call::of(&RequestHead::from(&request))?.answered_type();
        Some(answered.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_call_is_answered_in_its_own_type_without_parameters() {
        for (asked, answered) in [
            ("application/grpc", "application/grpc"),
            ("Application/GRPC", "application/grpc"),
            ("application/grpc+proto", "application/grpc+proto"),
            ("application/grpc+json; charset=utf-8", "application/grpc+json"),
            ("application/grpc;x=1", "application/grpc"),
            ("application/grpc ;x=1", "application/grpc"),
            ("application/grpc-web", "application/grpc-web"),
            ("application/grpc-web+proto", "application/grpc-web+proto"),
            ("application/GRPC-Web+proto", "application/grpc-web+proto"),
            ("application/grpc-web-text", "application/grpc-web-text"),
            ("application/grpc-web-text+proto", "application/grpc-web-text+proto"),
            ("application/grpc-web-text-base64", "application/grpc-web-text"),
            // What nobody sends is not repeated.
            ("application/grpcx", "application/grpc"),
            ("application/grpc+", "application/grpc"),
            ("application/grpc+<x>", "application/grpc"),
            ("application/grpc+a b", "application/grpc"),
        ] {
            assert_eq!(answered_type(asked.as_bytes()).as_deref(), Some(answered), "{asked}");
        }
        assert_eq!(answered_type(b"application/grpc+\xff").as_deref(), Some("application/grpc"));
    }

    #[test]
    fn other_types_are_no_calls() {
        for other in ["", "application/json", "application/grp", "text/application/grpc", "grpc"] {
            assert_eq!(answered_type(other.as_bytes()), None, "{other}");
        }
        assert!(Call::of(&RequestHead::from(&Request::new(()))).is_none());
        for method in [Method::GET, Method::HEAD, Method::PUT, Method::OPTIONS] {
            assert_eq!(answered_type_of(method, b"application/grpc"), None);
        }
    }

    #[test]
    fn a_wait_is_rounded_up_to_milliseconds_and_never_is_minus_one() {
        for (wait, millis) in [
            (Duration::ZERO, "0"),
            (Duration::from_micros(1), "1"),
            (Duration::from_micros(999), "1"),
            (Duration::from_millis(1_500), "1500"),
            (Duration::from_micros(1_500_001), "1501"),
            (Duration::from_millis(2_147_483_647), "2147483647"),
            (Duration::from_millis(2_147_483_648), "2147483647"),
            (Duration::MAX, "2147483647"),
        ] {
            assert_eq!(pushback(Some(wait)), millis);
        }
        assert_eq!(pushback(None), "-1");
    }
}
