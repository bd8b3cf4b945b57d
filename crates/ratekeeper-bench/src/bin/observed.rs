//! What metrics and events add to the layer: instructions, counted by callgrind, and allocations.
//!
//! The features are off or on when this is built, so the binary counts without them, and then has cargo build
//! and run it again with them:
//!
//! - off: without the features, the default;
//! - on: with both features, and nobody listening;
//! - seen: with a Prometheus recorder and a subscriber at INFO whose output is discarded.
//!
//! Requests go through a router as `axum::serve` uses it, as in the `layer` binary.

use std::alloc::System;
use std::convert::Infallible;
use std::env;
use std::future::{Future, IntoFuture};
use std::net::SocketAddr;
use std::pin::pin;
use std::process::Command;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, Response, StatusCode};
use axum::routing::get;
use ratekeeper::{Limiter, Mode, Quota, RateLimitLayer, Rule};
use ratekeeper_bench::callgrind;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tower::Service;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const REQUESTS: usize = 1_000;
const ROWS: [(&str, &str); 6] = [
    ("one", "one rule, admitted"),
    ("near", "one rule, admitted, near its limit"),
    ("three", "three rules, admitted"),
    ("holding", "a rule that would hold it back, admitted"),
    ("shadow", "one rule, and one in shadow, admitted"),
    ("denied", "one rule, denied"),
];
/// How much more may be added, in per cent.
const MOST: f64 = 15.0;
const IS_OBSERVED: bool = cfg!(feature = "observed");
/// The first argument of the binary with the features; what was counted without them follows.
const COMPARE: &str = "compare";

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.split_first() {
        None if IS_OBSERVED => panic!("run it without the feature: it builds itself with it"),
        None => {
            let off: Vec<String> =
                count("off").map(|(count, allocations)| format!("{count}/{allocations}")).collect();
            let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
            let status = Command::new(cargo)
                .args(["run", "--release", "-q", "-p", "ratekeeper-bench", "--features", "observed", "--bin"])
                .args(["observed", "--", COMPARE])
                .args(off)
                .status();
            assert!(status.expect("cargo runs").success());
        }
        Some((first, off)) if first == COMPARE => print(off),
        Some((subject, _)) => println!("{}", run(subject)),
    }
}

/// Instructions and allocations for each row, first those of a router without a layer.
fn count(how: &str) -> impl Iterator<Item = (f64, f64)> {
    let names = ["bare"].into_iter().chain(ROWS.iter().map(|(name, _)| *name));
    names.map(move |name| {
        let subject = format!("{name} {how}");
        let instructions = callgrind::instructions(&subject, "counted_loop") / REQUESTS as f64;
        // In its own process: a recorder, once installed, stays.
        let output =
            Command::new(env::current_exe().expect("the path of this binary")).arg(&subject).output();
        let allocations = String::from_utf8(output.expect("it runs").stdout).expect("text");
        (instructions, allocations.trim().parse().expect("a number"))
    })
}

fn print(off: &[String]) {
    let parse = |text: &String| {
        let (count, allocations) = text.split_once('/').expect("two figures");
        (count.parse().expect("a number"), allocations.parse().expect("a number"))
    };
    let off: Vec<(f64, f64)> = off.iter().map(parse).collect();
    let (on, seen): (Vec<_>, Vec<_>) = (count("on").collect(), count("seen").collect());
    println!(
        "| what the layer adds | off | on, nobody listens | | recorder and subscriber | | allocations: off | on | seen |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (i, (_, what)) in ROWS.iter().enumerate() {
        let added = |counts: &[(f64, f64)]| (counts[i + 1].0 - counts[0].0, counts[i + 1].1 - counts[0].1);
        let (off, on, seen) = (added(&off), added(&on), added(&seen));
        let more = |than: f64| 100.0 * (than - off.0) / off.0;
        println!(
            "| {what} | {:.0} | {:.0} | {:+.1} % | {:.0} | {:+.1} % | {:.1} | {:.1} | {:.1} |",
            off.0,
            on.0,
            more(on.0),
            seen.0,
            more(seen.0),
            off.1,
            on.1,
            seen.1
        );
        assert!(more(seen.0) <= MOST, "{what}: {:.1} % more is too much", more(seen.0));
        // Now and then a request collects figures and hints, and may allocate.
        assert!(seen.1 - off.1 < 0.1, "{what}: {:.3} more allocations", seen.1 - off.1);
    }
}

/// Sends the requests, after a few that warm up, and returns the allocations per request.
fn run(subject: &str) -> f64 {
    let (name, how) = subject.split_once(' ').expect("a subject, and how");
    if how == "seen" {
        listen();
    }
    let quota = match name {
        "denied" => Quota::per_hour(1),
        "near" => Quota::per_hour(1).burst(100_000),
        _ => Quota::per_second(1_000).burst(1_020),
    };
    let rule = |name: &str| Rule::new(name, quota);
    let router = Router::new().route("/", get(|| async { "hello" }));
    let limited = |rules: Vec<Rule>| {
        RateLimitLayer::new(Limiter::builder().rules(rules).build().expect("rules that fit together"))
    };
    let router = match name {
        "bare" => router,
        "one" | "denied" => router.layer(limited(vec![rule("one")])),
        "near" => {
            let layer = limited(vec![rule("one").key(ratekeeper::key::constant("all"))]);
            // Nine tenths are used before counting starts.
            let charging = layer.limiter().charge("one", "all").cost(95_000).into_future();
            assert!(matches!(poll(charging), Poll::Ready(Ok(decision)) if decision.is_admitted()));
            router.layer(layer)
        }
        "three" => router.layer(limited(["a", "b", "c"].map(rule).into())),
        "holding" => router.layer(limited(vec![rule("held").hold_up_to(Duration::from_secs(1))])),
        "shadow" => router.layer(limited(vec![rule("one"), rule("other").mode(Mode::Shadow)])),
        other => panic!("there is no {other}"),
    };
    let router: Router = router.with_state(());
    let mut router = router.into_service();
    (0..10).for_each(|_| _ = call(&mut router));
    let region = Region::new(ALLOCATOR);
    let admitted = counted_loop(&mut router);
    let allocations = region.change().allocations as f64 / REQUESTS as f64;
    assert_eq!(admitted, if name == "denied" { 0 } else { REQUESTS }, "{name}");
    allocations
}

#[cfg(feature = "observed")]
fn listen() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new();
    drop(recorder.install_recorder().expect("no other recorder"));
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::INFO);
    subscriber.with_writer(std::io::sink).init();
}

#[cfg(not(feature = "observed"))]
fn listen() {
    panic!("there is nothing to listen to");
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
    let Poll::Ready(Ok(response)) = poll(router.call(request)) else { panic!("the handler answers at once") };
    response
}

fn poll<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}
