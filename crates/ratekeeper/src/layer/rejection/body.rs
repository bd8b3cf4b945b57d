//! The two bodies that come with the crate.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};
use ratekeeper_core::RuleName;

use super::grpc::{Call, NO_MESSAGE};
use super::{Rejection, RejectionReason};
use crate::layer::headers::push_number;
use crate::request::RequestHead;

/// A JSON body: `{"error":"rate_limited","retry_after_seconds":37,…}`. The default.
///
/// gRPC and gRPC-Web requests get a gRPC status instead, as from [`GrpcRejection`](crate::rejection::GrpcRejection).
#[derive(Clone, Copy, Debug, Default)]
pub struct JsonRejection;

impl<B: From<Bytes>> Rejection<B> for JsonRejection {
    fn reject(&self, head: &RequestHead<'_>, reason: &RejectionReason<'_>) -> Response<B> {
        respond(head, reason, json, "application/json")
    }
}

fn json(reason: &RejectionReason<'_>) -> Bytes {
    let mut body = String::with_capacity(128);
    body.push_str(match reason {
        RejectionReason::Limited(_) => r#"{"error":"rate_limited","message":"Too many requests.""#,
        RejectionReason::Unavailable { .. } => {
            r#"{"error":"unavailable","message":"Whether this request may be served cannot be told now.""#
        }
        RejectionReason::Overloaded => {
            r#"{"error":"unavailable","message":"This request would have to wait, and cannot now.""#
        }
    });
    let rule = match reason {
        RejectionReason::Limited(decision) => decision.tightest().map(|(rule, _)| rule),
        RejectionReason::Unavailable { rule, .. } => Some(*rule),
        RejectionReason::Overloaded => None,
    };
    if let Some(rule) = rule {
        body.push_str(r#","rule":"#);
        push_name(&mut body, rule);
    }
    if let Some(wait) = reason.retry_after_seconds() {
        body.push_str(r#","retry_after_seconds":"#);
        push_number(&mut body, wait);
    }
    body.push('}');
    body.into()
}

/// A problem document (RFC 9457), with the types from the IETF draft for rate-limit fields.
///
/// gRPC and gRPC-Web requests get a gRPC status instead, as from [`GrpcRejection`](crate::rejection::GrpcRejection).
#[derive(Clone, Copy, Debug, Default)]
pub struct ProblemRejection;

impl<B: From<Bytes>> Rejection<B> for ProblemRejection {
    fn reject(&self, head: &RequestHead<'_>, reason: &RejectionReason<'_>) -> Response<B> {
        respond(head, reason, problem, "application/problem+json")
    }
}

fn problem(reason: &RejectionReason<'_>) -> Bytes {
    let (kind, title) = match reason {
        RejectionReason::Limited(_) => ("quota-exceeded", "Quota exceeded"),
        RejectionReason::Unavailable { .. } | RejectionReason::Overloaded => {
            ("temporary-reduced-capacity", "Temporarily reduced capacity")
        }
    };
    let mut body = format!(
        r#"{{"type":"https://iana.org/assignments/http-problem-types#{kind}","title":"{title}","status":{}"#,
        reason.status().as_u16()
    );
    if let Some(wait) = reason.retry_after_seconds() {
        body.push_str(&format!(r#","detail":"Try again in {wait} s.","retry_after_seconds":{wait}"#));
    }
    body.push_str(r#","violated-policies":["#);
    match reason {
        RejectionReason::Limited(decision) => {
            for (i, rule) in decision.denied_by().enumerate() {
                if i > 0 {
                    body.push(',');
                }
                push_name(&mut body, rule);
            }
        }
        RejectionReason::Unavailable { rule, .. } => push_name(&mut body, *rule),
        RejectionReason::Overloaded => {}
    }
    body.push_str("]}");
    body.into()
}

/// A rule's name contains only characters that need no escaping in a JSON string.
fn push_name(body: &mut String, rule: RuleName) {
    body.push('"');
    body.push_str(rule.as_str());
    body.push('"');
}

/// The response without the layer's fields: a gRPC status, or this body.
fn respond<B: From<Bytes>>(
    head: &RequestHead<'_>,
    reason: &RejectionReason<'_>,
    body: fn(&RejectionReason<'_>) -> Bytes,
    content_type: &'static str,
) -> Response<B> {
    if let Some(call) = Call::of(head) {
        return call.reject(reason, B::from(NO_MESSAGE));
    }
    let mut response = Response::new(B::from(body(reason)));
    *response.status_mut() = reason.status();
    // With room for the layer's fields.
    *response.headers_mut() = HeaderMap::with_capacity(8);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
