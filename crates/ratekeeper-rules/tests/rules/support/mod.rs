//! Requests, and what becomes of them under rules from files and from code.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use ratekeeper::key::{self, PeerAddr};
use ratekeeper::{DAY, Decision, Key, Limiter, MemoryStore, Outcome, Quota, RateLimitLayer, Rule};
use ratekeeper_rules::{Format, Registry, RuleFile};
use tower::{Layer, ServiceExt, service_fn};

pub(crate) type Req = Request<Full<Bytes>>;

/// What an authentication layer knows.
#[derive(Clone)]
pub(crate) struct User(pub(crate) u64);

pub(crate) fn registry() -> Registry {
    let tenant = key::from_async_fn(|head| {
        let tenant = head.headers().get("x-tenant").map(|tenant| Key::from(tenant.as_bytes()));
        async move { tenant }
    });
    Registry::new()
        .extension("user", |user: &User| user.0)
        .key("tenant", tenant)
        .tier("plan", |head| head.headers().contains_key("x-pro").then_some("pro"))
        .tier_async("plan-later", |head| {
            let is_pro = head.headers().contains_key("x-pro");
            async move { is_pro.then_some("pro") }
        })
        .cost("by-method", |head| if head.method() == Method::GET { 1 } else { 5 })
        .predicate("is-beta", |head| head.headers().contains_key("x-beta"))
        .predicate("is-get", |head| head.method() == Method::GET)
        .settle("by-status", |response| if response.status() == 201 { Some(7) } else { None })
}

/// The quota of all rules here, with a period so long that no test sees its end.
pub(crate) const QUOTA: &str = "100/day";

pub(crate) fn file(text: &str) -> RuleFile {
    RuleFile::parse("rules.toml", text, Format::Toml, &registry()).unwrap_or_else(|error| panic!("{error}"))
}

/// A rule named `r` from a file, with these fields.
pub(crate) fn rule(fields: &str) -> Rule {
    file(&format!("[[rules]]\nname = \"r\"\nquota = \"{QUOTA}\"\n{fields}")).into_rules().remove(0)
}

/// The same rule from code, without any fields.
pub(crate) fn code() -> Rule {
    Rule::new("r", Quota::token_bucket(100, DAY))
}

/// A limiter of one rule, that counts in this store.
pub(crate) fn limiter(rule: Rule, store: &MemoryStore) -> Limiter {
    Limiter::builder().rule(rule).store(store.clone()).build().unwrap()
}

/// A limiter of one rule from a file.
pub(crate) fn of_file(fields: &str) -> Limiter {
    limiter(rule(fields), &MemoryStore::new())
}

/// A request that has everything that a key can be taken from.
pub(crate) fn request(method: Method, path: &str) -> Req {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("x-api-key", "secret")
        .header("authorization", "Bearer token")
        .header("cookie", "session=abc")
        .header("x-forwarded-for", "203.0.113.9")
        .header("forwarded", "for=203.0.113.10")
        .header("x-real-ip", "203.0.113.11")
        .header("x-tenant", "acme")
        .body(Full::default())
        .unwrap();
    request.extensions_mut().insert(User(7));
    from(request, "10.0.0.1:1234")
}

pub(crate) fn get(path: &str) -> Req {
    request(Method::GET, path)
}

/// The request with another value of a header field.
pub(crate) fn with(mut request: Req, name: &'static str, value: &'static str) -> Req {
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

/// The request from another peer.
pub(crate) fn from(mut request: Req, peer: &str) -> Req {
    request.extensions_mut().insert(PeerAddr(peer.parse::<SocketAddr>().unwrap()));
    request
}

/// The decision on a request, if a rule counted it.
pub(crate) async fn send(limiter: &Limiter, request: Req) -> Option<Decision> {
    let ok = service_fn(|_: Req| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) });
    let response = RateLimitLayer::new(limiter.clone()).layer(ok).oneshot(request).await.unwrap();
    response.extensions().get::<Decision>().cloned()
}

/// What is left of the rule after a request; `None` if the rule did not count it.
pub(crate) async fn left(limiter: &Limiter, request: Req) -> Option<u32> {
    send(limiter, request).await?.outcome("r").map(Outcome::remaining)
}

/// What a rule shows of itself: everything but its key, its cost, its tier lookup and how it settles.
pub(crate) fn shown(rule: &Rule) -> String {
    format!("{rule:?}")
}
