//! The two bodies that come with the crate.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};
use tollgate_core::RuleName;

use super::{Refusal, Rejection};
use crate::RequestHead;
use crate::headers::push_number;

/// A JSON body: `{"error":"rate_limited","retry_after_seconds":37,…}`. The default.
#[derive(Clone, Copy, Debug, Default)]
pub struct JsonRejection;

impl<B: From<Bytes>> Rejection<B> for JsonRejection {
    fn reject(&self, _: &RequestHead<'_>, refusal: &Refusal<'_>) -> Response<B> {
        let mut body = String::with_capacity(128);
        match refusal {
            Refusal::Limited(decision) => {
                body.push_str(r#"{"error":"rate_limited","message":"Too many requests.""#);
                if let Some((rule, _)) = decision.tightest() {
                    body.push_str(r#","rule":"#);
                    push_name(&mut body, rule);
                }
            }
            Refusal::Unavailable(_) => body.push_str(
                r#"{"error":"unavailable","message":"Whether this request may be served cannot be told now.""#,
            ),
        }
        if let Some(wait) = refusal.retry_after_seconds() {
            body.push_str(r#","retry_after_seconds":"#);
            push_number(&mut body, wait);
        }
        body.push('}');
        response(refusal, "application/json", body)
    }
}

/// A problem document (RFC 9457), of the types that the IETF's draft for rate-limit fields has.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProblemRejection;

impl<B: From<Bytes>> Rejection<B> for ProblemRejection {
    fn reject(&self, _: &RequestHead<'_>, refusal: &Refusal<'_>) -> Response<B> {
        let (kind, title) = match refusal {
            Refusal::Limited(_) => ("quota-exceeded", "Quota exceeded"),
            Refusal::Unavailable(_) => ("temporary-reduced-capacity", "Temporarily reduced capacity"),
        };
        let mut body = format!(
            r#"{{"type":"https://iana.org/assignments/http-problem-types#{kind}","title":"{title}","status":{}"#,
            refusal.status().as_u16()
        );
        if let Some(wait) = refusal.retry_after_seconds() {
            body.push_str(&format!(r#","detail":"Try again in {wait} s.","retry_after_seconds":{wait}"#));
        }
        if let Refusal::Limited(decision) = refusal {
            body.push_str(r#","violated-policies":["#);
            for (i, rule) in decision.denied_by().enumerate() {
                if i > 0 {
                    body.push(',');
                }
                push_name(&mut body, rule);
            }
            body.push(']');
        }
        body.push('}');
        response(refusal, "application/problem+json", body)
    }
}

/// A rule's name has only characters that can stand in a JSON string as they are.
fn push_name(body: &mut String, rule: RuleName) {
    body.push('"');
    body.push_str(rule.as_str());
    body.push('"');
}

fn response<B: From<Bytes>>(refusal: &Refusal<'_>, content_type: &'static str, body: String) -> Response<B> {
    let mut response = Response::new(B::from(Bytes::from(body)));
    *response.status_mut() = refusal.status();
    // For this one, the six that the layer adds, and one more.
    *response.headers_mut() = HeaderMap::with_capacity(8);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
