//! The response to a rejected gRPC request: a status, and no message.
//!
//! The gRPC status is separate from the HTTP status, which is 200, and is in the trailers. A response without
//! a message has its trailers in place of the header fields ("Trailers-Only"), also in gRPC-Web.

mod status;
mod wire;

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, Version};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use self::status::Status;
use super::{Rejection, RejectionReason};
use crate::request::RequestHead;

const GRPC: &str = "application/grpc";
const WEB: &str = "-web";
const WEB_TEXT: &str = "-web-text";

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// What must be encoded in a message: everything except visible ASCII and the space, and the percent sign.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// A gRPC status, for servers that speak nothing else, such as tonic's.
///
/// It only requires that a body can be empty. [`JsonRejection`](crate::rejection::JsonRejection) and
/// [`ProblemRejection`](crate::rejection::ProblemRejection) answer gRPC requests in the same way, but only for bodies
/// that can be made from bytes, because they answer other requests with such bodies; tonic's cannot.
///
/// A gRPC request is a `POST` over HTTP/2, as every call is, whose content type begins with
/// `application/grpc`. For gRPC-Web, over any version, it begins with `application/grpc-web`. Where an outer
/// layer has translated gRPC-Web, the request has `te: trailers`, as every call has. Any other client would
/// take the status for success. The response has the same type. Its HTTP
/// status is 200, it has no body, and its fields are
///
/// - `grpc-status`: 8, RESOURCE_EXHAUSTED, where other requests get 429, because a rule denies; 14,
///   UNAVAILABLE, where other requests get 503, because the store could not decide or there is no room to
///   wait;
/// - `grpc-message`: the same in words, with the name of the rule;
/// - `grpc-retry-pushback-ms`: how long to wait, rounded up to milliseconds, for clients that retry
///   automatically; -1, which tells them not to retry, if waiting would not help;
/// - `grpc-status-details-bin`: a `RetryInfo` with the exact wait, unless waiting would not help, and a
///   `QuotaFailure` with the name and limit of each rule that denies, starting with the one that takes the
///   longest to wait for.
///
/// The layer adds the fields that other responses have. A request that is not a gRPC request is answered with
/// 429 or 503 and an empty body.
///
/// ```
/// use ratekeeper::{rejection::GrpcRejection, Quota, RateLimitLayer};
///
/// let layer = RateLimitLayer::new(Quota::per_second(10)).rejection(GrpcRejection);
/// # let _ = layer;
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct GrpcRejection;

impl<B: Default> Rejection<B> for GrpcRejection {
    fn reject(&self, head: &RequestHead<'_>, reason: &RejectionReason<'_>) -> Response<B> {
        if let Some(call) = Call::of(head) {
            return call.reject(reason, B::default());
        }
        let mut response = Response::new(B::default());
        *response.status_mut() = reason.status();
        response
    }
}

/// A gRPC or gRPC-Web request, recognized by its version, method and content type.
pub(super) struct Call<'a>(&'a HeaderValue);

impl<'a> Call<'a> {
    #[inline]
    pub(super) fn of(head: &RequestHead<'a>) -> Option<Self> {
        let content_type = head.headers().get(CONTENT_TYPE).filter(|_| head.method() == Method::POST)?;
        let begins = |text: &[u8], with: &str| {
            text.get(..with.len()).is_some_and(|text| text.eq_ignore_ascii_case(with.as_bytes()))
        };
        let asked = content_type.as_bytes();
        let is_call = begins(asked, GRPC)
            && (matches!(head.version(), Version::HTTP_2 | Version::HTTP_3)
                || begins(&asked[GRPC.len()..], WEB)
                || head.headers().get(TE).is_some_and(|te| te == "trailers"));
        is_call.then_some(Self(content_type))
    }

    /// The response, without the layer's fields.
    #[cold]
    pub(super) fn reject<B>(&self, reason: &RejectionReason<'_>, body: B) -> Response<B> {
        let status = Status::of(reason);
        let mut response = Response::new(body);
        // With room for the layer's fields.
        let headers = response.headers_mut();
        *headers = HeaderMap::with_capacity(16);
        headers.insert(CONTENT_TYPE, self.answered_type());
        headers.insert(STATUS, HeaderValue::from_static(status.code.as_str()));
        headers.insert(MESSAGE, text(utf8_percent_encode(&status.message, ENCODED).to_string()));
        headers.insert(PUSHBACK, pushback(reason.wait()));
        headers.insert(DETAILS, text(wire::base64(&status.encode())));
        response
    }

    /// The content type of the response: that of the request, without parameters. A client that asked for a
    /// format other than protobuf may insist on it, although there is no message.
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

/// An empty message, for bodies that are made from bytes.
pub(super) const NO_MESSAGE: Bytes = Bytes::new();

/// How long a client that retries automatically is to wait: in milliseconds, capped at the largest signed
/// 32-bit number.
fn pushback(wait: Option<Duration>) -> HeaderValue {
    let Some(wait) = wait else { return HeaderValue::from_static("-1") };
    let millis = wait.as_nanos().div_ceil(1_000_000);
    HeaderValue::from(i32::try_from(millis).unwrap_or(i32::MAX))
}

/// The texts made here contain only visible ASCII and spaces.
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
        answered_type_over(Version::HTTP_2, method, asked)
    }

    fn answered_type_over(version: Version, method: Method, asked: &[u8]) -> Option<String> {
        let mut request = Request::new(());
        *request.version_mut() = version;
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
            // Unusual types are not echoed.
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

    /// gRPC needs HTTP/2. Whoever sends its type over HTTP/1.1 is no gRPC client, and takes 200 for success.
    #[test]
    fn over_http_1_only_grpc_web_is_a_call() {
        for version in [Version::HTTP_10, Version::HTTP_11] {
            for (asked, is_call) in [
                ("application/grpc", false),
                ("application/grpc+proto", false),
                ("application/grpc;x=-web", false),
                ("application/grpcx-web", false),
                ("application/grpc-web", true),
                ("Application/GRPC-Web+proto", true),
                ("application/grpc-web-text; x=1", true),
            ] {
                let answered = answered_type_over(version, Method::POST, asked.as_bytes());
                assert_eq!(answered.is_some(), is_call, "{asked} over {version:?}");
            }
        }
        // As a layer makes it that translates gRPC-Web.
        let translated =
            Request::post("/").header("content-type", "application/grpc").header("te", "trailers");
        assert!(Call::of(&RequestHead::from(&translated.body(()).unwrap())).is_some());
        let answered = answered_type_over(Version::HTTP_3, Method::POST, b"application/grpc");
        assert_eq!(answered.as_deref(), Some("application/grpc"));
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
