//! The two bodies that come with the crate.

use std::cell::RefCell;
use std::sync::LazyLock;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use ratekeeper_core::RuleName;

use super::grpc::{Call, NO_MESSAGE};
use super::template::Template;
use super::{Fields, Refusal, Rejection};
use crate::RequestHead;
use crate::headers::push_number;

/// A JSON body: `{"error":"rate_limited","retry_after_seconds":37,…}`. The default.
///
/// gRPC and gRPC-Web requests get a gRPC status instead, as from [`GrpcRejection`](crate::GrpcRejection).
#[derive(Clone, Copy, Debug, Default)]
pub struct JsonRejection;

impl<B: From<Bytes>> Rejection<B> for JsonRejection {
    fn reject(&self, head: &RequestHead<'_>, refusal: &Refusal<'_>) -> Response<B> {
        match Call::of(head) {
            Some(call) => call.reject(refusal, B::from(NO_MESSAGE)),
            None => plain(refusal, json(refusal, refusal.retry_after_seconds()), "application/json"),
        }
    }

    fn respond(&self, head: &RequestHead<'_>, refusal: &Refusal<'_>, fields: &Fields) -> Response<B> {
        if let Some(call) = Call::of(head) {
            return fields.add_to(call.reject(refusal, B::from(NO_MESSAGE)));
        }
        static FIELDS: LazyLock<Template> = LazyLock::new(|| Template::new("application/json"));
        let mut response = Response::new(B::from(json(refusal, fields.retry_after)));
        fill(&mut response, refusal, fields, &FIELDS, "application/json");
        response
    }
}

/// How many bodies each thread remembers.
const REMEMBERED: usize = 32;

thread_local! {
    /// Bodies by rule and wait. In a flood the same ones recur again and again.
    static BODIES: RefCell<[Option<(RuleName, u64, Bytes)>; REMEMBERED]> =
        const { RefCell::new([const { None }; REMEMBERED]) };
}

fn json(refusal: &Refusal<'_>, wait: Option<u64>) -> Bytes {
    let rule = match refusal {
        Refusal::Limited(decision) => decision.tightest().map(|(rule, _)| rule),
        Refusal::Unavailable { rule, .. } => return write_json(refusal, Some(*rule), wait),
        Refusal::NoRoom => return write_json(refusal, None, wait),
    };
    let (Some(rule), Some(wait)) = (rule, wait) else {
        return write_json(refusal, rule, wait);
    };
    let place = (wait ^ rule.id()) as usize % REMEMBERED;
    let known = BODIES.try_with(|bodies| match &bodies.try_borrow().ok()?[place] {
        Some((of, seconds, body)) if *of == rule && *seconds == wait => Some(body.clone()),
        _ => None,
    });
    if let Ok(Some(body)) = known {
        return body;
    }
    let body = write_json(refusal, Some(rule), Some(wait));
    // If it cannot be remembered, the thread is about to end.
    let _ = BODIES.try_with(|bodies| {
        if let Ok(mut bodies) = bodies.try_borrow_mut() {
            bodies[place] = Some((rule, wait, body.clone()));
        }
    });
    body
}

#[inline(never)]
fn write_json(refusal: &Refusal<'_>, rule: Option<RuleName>, wait: Option<u64>) -> Bytes {
    let mut body = String::with_capacity(128);
    body.push_str(match refusal {
        Refusal::Limited(_) => r#"{"error":"rate_limited","message":"Too many requests.""#,
        Refusal::Unavailable { .. } => {
            r#"{"error":"unavailable","message":"Whether this request may be served cannot be told now.""#
        }
        Refusal::NoRoom => {
            r#"{"error":"unavailable","message":"This request would have to wait, and cannot now.""#
        }
    });
    if let Some(rule) = rule {
        body.push_str(r#","rule":"#);
        push_name(&mut body, rule);
    }
    if let Some(wait) = wait {
        body.push_str(r#","retry_after_seconds":"#);
        push_number(&mut body, wait);
    }
    body.push('}');
    body.into()
}

/// A problem document (RFC 9457), with the types from the IETF draft for rate-limit fields.
///
/// gRPC and gRPC-Web requests get a gRPC status instead, as from [`GrpcRejection`](crate::GrpcRejection).
#[derive(Clone, Copy, Debug, Default)]
pub struct ProblemRejection;

impl<B: From<Bytes>> Rejection<B> for ProblemRejection {
    fn reject(&self, head: &RequestHead<'_>, refusal: &Refusal<'_>) -> Response<B> {
        match Call::of(head) {
            Some(call) => call.reject(refusal, B::from(NO_MESSAGE)),
            None => plain(refusal, problem(refusal), "application/problem+json"),
        }
    }

    fn respond(&self, head: &RequestHead<'_>, refusal: &Refusal<'_>, fields: &Fields) -> Response<B> {
        if let Some(call) = Call::of(head) {
            return fields.add_to(call.reject(refusal, B::from(NO_MESSAGE)));
        }
        static FIELDS: LazyLock<Template> = LazyLock::new(|| Template::new("application/problem+json"));
        let mut response = Response::new(B::from(problem(refusal)));
        fill(&mut response, refusal, fields, &FIELDS, "application/problem+json");
        response
    }
}

fn problem(refusal: &Refusal<'_>) -> Bytes {
    let (kind, title) = match refusal {
        Refusal::Limited(_) => ("quota-exceeded", "Quota exceeded"),
        Refusal::Unavailable { .. } | Refusal::NoRoom => {
            ("temporary-reduced-capacity", "Temporarily reduced capacity")
        }
    };
    let mut body = format!(
        r#"{{"type":"https://iana.org/assignments/http-problem-types#{kind}","title":"{title}","status":{}"#,
        refusal.status().as_u16()
    );
    if let Some(wait) = refusal.retry_after_seconds() {
        body.push_str(&format!(r#","detail":"Try again in {wait} s.","retry_after_seconds":{wait}"#));
    }
    body.push_str(r#","violated-policies":["#);
    match refusal {
        Refusal::Limited(decision) => {
            for (i, rule) in decision.denied_by().enumerate() {
                if i > 0 {
                    body.push(',');
                }
                push_name(&mut body, rule);
            }
        }
        Refusal::Unavailable { rule, .. } => push_name(&mut body, *rule),
        Refusal::NoRoom => {}
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

/// The response without the layer's fields.
fn plain<B: From<Bytes>>(refusal: &Refusal<'_>, body: Bytes, content_type: &'static str) -> Response<B> {
    let mut response = Response::new(B::from(body));
    *response.status_mut() = refusal.status();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Adds status and fields to a body.
#[inline]
fn fill<B>(
    response: &mut Response<B>,
    refusal: &Refusal<'_>,
    fields: &Fields,
    template: &Template,
    content_type: &'static str,
) {
    *response.status_mut() = refusal.status();
    let headers = response.headers_mut();
    if !template.fill(fields, headers) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        fields.write(headers);
    }
}
