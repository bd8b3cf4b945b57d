//! What a layer adds to a request in an axum router: instructions, counted by callgrind, and allocations.
//!
//! The router is called in process, without a socket. Each subject is a layer on the same router, and runs in
//! its own process.
//!
//! A router that is called directly applies its layers again for each request; `axum::serve` applies them
//! once. So there are two tables.

use std::alloc::System;
use std::convert::Infallible;
use std::env;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use axum::routing::get;
use ratekeeper::{IetfDraft, Limiter, Quota, RateLimitLayer, Rule, RuleSet};
use ratekeeper_bench::callgrind;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tower::Service;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const REQUESTS: usize = 1_000;
const ROWS: [(&str, &str); 19] = [
    ("bare", "the router without a layer"),
    ("nothing", "a layer that does nothing"),
    ("fields", "a layer that adds three constant header fields"),
    ("exposing", "the same, and a number in the extensions of request and response"),
    ("governor", "tower_governor 0.8 with headers, admitted"),
    ("ours", "Ratekeeper, admitted"),
    ("unexposed", "Ratekeeper, admitted, decision not exposed"),
    ("swapped", "Ratekeeper, admitted, decision not exposed, rules swapped before"),
    ("ietf", "Ratekeeper, admitted, IETF fields as well"),
    ("three", "Ratekeeper, admitted, three rules"),
    ("other", "Ratekeeper, admitted, and 1 rule that does not match"),
    ("others", "Ratekeeper, admitted, and 100 rules that do not match"),
    ("unmatched", "Ratekeeper, 100 rules, none of which matches"),
    ("holding", "Ratekeeper, admitted, by a rule that would hold it back"),
    ("kept", "Ratekeeper, admitted, and settled by the response, at what it was"),
    ("free", "Ratekeeper, admitted, and given back by the response"),
    ("governor denied", "tower_governor 0.8 with headers, denied"),
    ("ours denied", "Ratekeeper, denied"),
    ("unexposed denied", "Ratekeeper, denied, decision not exposed"),
];

/// Follows the name of a subject whose layers are applied once.
const SERVED: &str = ", served";

fn main() {
    if let Some(name) = env::args().nth(1) {
        run(&name);
        return;
    }
    println!("Called as it is:\n");
    table("");
    println!("\nAs `axum::serve` has it:\n");
    table(SERVED);
}

fn table(how: &str) {
    let counts = ROWS.map(|(name, what)| {
        let subject = format!("{name}{how}");
        let instructions = callgrind::instructions(&subject, "counted_loop") / REQUESTS as f64;
        (name, what, instructions, run(&subject))
    });
    let of = |wanted| counts.iter().find(|(name, ..)| *name == wanted).map_or(0.0, |count| count.2);
    println!("| | instructions per request | more than bare | of tower_governor's | allocations |");
    println!("|---|---|---|---|---|");
    for (name, what, instructions, allocations) in counts {
        let added = instructions - of("bare");
        let peer = if name.ends_with("denied") { of("governor denied") } else { of("governor") } - of("bare");
        println!("| {what} | {instructions:.0} | {added:.0} | {:.2}× | {allocations:.1} |", added / peer);
    }
}

/// Sends the requests, after a few that warm up, and returns the allocations per request.
fn run(subject: &str) -> f64 {
    let name = subject.trim_end_matches(SERVED);
    let quota =
        if name.ends_with("denied") { Quota::per_hour(1) } else { Quota::per_second(1_000).burst(1_020) };
    let router = Router::new().route("/", get(|| async { "hello" }));
    let ours = || RateLimitLayer::new(quota);
    let router = match name.trim_end_matches(" denied") {
        "bare" => router,
        "nothing" => router.layer(tower::layer::layer_fn(|inner| inner)),
        "fields" => router.layer(tower::util::MapResponseLayer::new(add_fields)),
        "exposing" => router.layer((
            tower::util::MapRequestLayer::new(add_extension_to_request),
            tower::util::MapResponseLayer::new(add_extension),
            tower::util::MapResponseLayer::new(add_fields),
        )),
        "governor" => {
            let mut config = GovernorConfigBuilder::default();
            let config = match name.ends_with("denied") {
                true => config.per_second(3_600).burst_size(1).use_headers().finish(),
                false => config.per_millisecond(1).burst_size(1_020).use_headers().finish(),
            };
            router.layer(GovernorLayer::new(Arc::new(config.expect("a rate and a burst"))))
        }
        "ours" => router.layer(ours()),
        "unexposed" => router.layer(ours().expose_decision(false)),
        "swapped" => {
            let layer = ours().expose_decision(false);
            let rules = RuleSet::new([Rule::new("default", quota)]);
            layer.limiter().swap(rules.expect("rules that fit together"));
            router.layer(layer)
        }
        "ietf" => router.layer(ours().ietf_headers(IetfDraft::Draft11)),
        "three" => {
            router.layer(RateLimitLayer::new(limiter(["a", "b", "c"].map(|name| Rule::new(name, quota)))))
        }
        "other" | "others" => {
            let others = if name == "other" { 1 } else { 100 };
            let rules = elsewhere(quota, others).chain([Rule::new("here", quota)]);
            router.layer(RateLimitLayer::new(limiter(rules)))
        }
        "holding" => {
            let rule = Rule::new("held", quota).hold_up_to(Duration::from_secs(1));
            router.layer(RateLimitLayer::new(limiter([rule])))
        }
        "kept" | "free" => {
            let is_free = name == "free";
            let rule = Rule::new("settled", quota).free_when(move |_| is_free);
            router.layer(RateLimitLayer::new(limiter([rule])))
        }
        "unmatched" => router.layer(RateLimitLayer::new(limiter(elsewhere(quota, 100)))),
        other => panic!("there is no {other}"),
    };
    let router: Router = if subject == name { router } else { router.with_state(()) };
    let mut router = router.into_service();
    (0..10).for_each(|_| _ = call(&mut router));
    let region = Region::new(ALLOCATOR);
    let admitted = counted_loop(&mut router);
    let allocations = region.change().allocations as f64 / REQUESTS as f64;
    assert_eq!(admitted, if name.ends_with("denied") { 0 } else { REQUESTS }, "{name}");
    allocations
}

/// The least that a limiter with the usual header fields can do.
fn add_fields(mut response: Response<Body>) -> Response<Body> {
    const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
    const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
    const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
    let headers = response.headers_mut();
    headers.insert(LIMIT, HeaderValue::from_static("1020"));
    headers.insert(REMAINING, HeaderValue::from_static("1019"));
    headers.insert(RESET, HeaderValue::from_static("1790000000"));
    response
}

/// The least that it takes to pass something to handlers and outer layers.
fn add_extension_to_request(mut request: Request<Body>) -> Request<Body> {
    request.extensions_mut().insert(7_u64);
    request
}

fn add_extension(mut response: Response<Body>) -> Response<Body> {
    response.extensions_mut().insert(7_u64);
    response
}

fn limiter(rules: impl IntoIterator<Item = Rule>) -> Limiter {
    Limiter::builder().rules(rules).build().expect("rules that fit together")
}

/// Rules for other paths.
fn elsewhere(quota: Quota, count: usize) -> impl Iterator<Item = Rule> {
    (0..count).map(move |i| Rule::new(format!("rule-{i}"), quota).on_path(format!("/elsewhere/{i}")))
}

#[inline(never)]
fn counted_loop<S>(router: &mut S) -> usize
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    (0..REQUESTS).filter(|_| call(router).status() == StatusCode::OK).count()
}

fn call<S>(router: &mut S) -> Response<Body>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let mut request = Request::new(Body::empty());
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([192, 0, 2, 7], 4711))));
    let Poll::Ready(Ok(response)) = pin!(router.call(request)).poll(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("the handler answers at once")
    };
    response
}
