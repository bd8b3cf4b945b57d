//! What it costs to find the one rule among many that matches: instructions, counted by callgrind.
//!
//! Each kind of rule is measured alone and among ten thousand of its kind, each in its own process. Requests
//! match one rule; among many, a different one each time. Names have the same length everywhere, as longer
//! ones take longer.

use std::convert::Infallible;
use std::env;
use std::future::{Future, Ready, ready};
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Method, Request, Response};
use ratekeeper::key::PeerAddr;
use ratekeeper::{Limiter, Quota, RateLimitLayer, Rule};
use ratekeeper_bench::callgrind;
use tower::{Layer, Service, service_fn};

const REQUESTS: usize = 1_000;
const MANY: usize = 10_000;
/// The function that finds the rules that match, by a name that no other function has.
const MATCHING: &str = "Gate<S,R>>::find";
const KINDS: [(&str, &str); 7] = [
    ("path", "`/r01234`"),
    ("param", "`/tenants/{id}/r01234`"),
    ("rest", "`/r01234/{*rest}`"),
    ("method", "`M01234 /`"),
    ("host", "`r01234.example.com`"),
    ("host and path", "`r01234.example.com`, `GET /v1/{id}`"),
    ("below", "`*.r01234.example.com`"),
];

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [subject] = &*arguments {
        let (kind, count) = subject.split_once('/').expect("a kind and a number");
        run(kind, count.parse().expect("a number"));
        return;
    }
    println!("| a rule for | matching, one rule | {MANY} rules | | whole layer, one rule | {MANY} rules | |");
    println!("|---|---|---|---|---|---|---|");
    let bare = callgrind::instructions("bare/1", "counted_loop") / REQUESTS as f64;
    for (kind, what) in KINDS {
        let count = |rules: usize, function| {
            callgrind::instructions(&format!("{kind}/{rules}"), function) / REQUESTS as f64
        };
        // The requests that warm up are counted here, too.
        let [one, many] = [1, MANY].map(|rules| count(rules, MATCHING) / 2.0);
        let [all, all_many] = [1, MANY].map(|rules| count(rules, "counted_loop") - bare);
        println!(
            "| {what} | {one:.0} | {many:.0} | {:.2}× | {all:.0} | {all_many:.0} | {:.2}× |",
            many / one,
            all_many / all
        );
    }
    println!("\n| {MANY} rules for | made in |");
    println!("|---|---|");
    for (kind, what) in KINDS {
        println!("| {what} | {:.0} ms |", making(kind).as_secs_f64() * 1e3);
    }
}

/// The shortest time that it takes to build a limiter of many rules.
fn making(kind: &str) -> Duration {
    let make = || {
        let rules: Vec<Rule> = (0..MANY).map(|number| rule(kind, number)).collect();
        let builder = Limiter::builder().rules(rules);
        let started = Instant::now();
        let limiter = builder.build().expect("rules that fit together");
        let took = started.elapsed();
        drop(black_box(limiter));
        took
    };
    (0..5).map(|_| make()).min().unwrap_or_default()
}

/// A rule of this kind.
fn rule(kind: &str, number: usize) -> Rule {
    let name = name(number);
    let rule = Rule::new(&*name, Quota::per_second(1_000_000));
    match kind {
        "path" => rule.on_path(format!("/{name}")),
        "param" => rule.on_path(format!("/tenants/{{id}}/{name}")),
        "rest" => rule.on_path(format!("/{name}/{{*rest}}")),
        "method" => rule.on(method(number), "/"),
        "host" => rule.on_host(format!("{name}.example.com")),
        "host and path" => rule.on_host(format!("{name}.example.com")).on(Method::GET, "/v1/{id}"),
        "below" => rule.on_host(format!("*.{name}.example.com")),
        other => panic!("there is no {other}"),
    }
}

/// A request that matches the rule and no other.
fn request(kind: &str, number: usize) -> Request<()> {
    let (name, request) = (name(number), Request::builder());
    let request = match kind {
        "path" => request.uri(format!("/{name}")),
        "param" => request.uri(format!("/tenants/4711/{name}")),
        "rest" => request.uri(format!("/{name}/a/b")),
        "method" => request.method(method(number)),
        "host" => request.header("host", format!("{name}.example.com:8080")),
        "host and path" => request.uri("/v1/4711").header("host", format!("{name}.example.com:8080")),
        "below" => request.header("host", format!("www.{name}.example.com")),
        _ => request,
    };
    request.extension(PeerAddr(([192, 0, 2, 7], 4711).into())).body(()).expect("a request")
}

fn name(number: usize) -> String {
    format!("r{number:05}")
}

fn method(number: usize) -> Method {
    Method::from_bytes(format!("M{number:05}").as_bytes()).expect("a method")
}

/// Sends requests that match one of these rules each.
fn run(kind: &str, count: usize) {
    let mut inner = service_fn(answer as fn(Request<()>) -> Ready<Result<Response<Body>, Infallible>>);
    // Spread over all the rules, and the same in every run.
    let requests = || (0..REQUESTS).map(|i| request(kind, i * 7_919 % count)).collect();
    if kind == "bare" {
        return counted_loop(&mut inner, requests());
    }
    let rules = (0..count).map(|number| rule(kind, number));
    let limiter = Limiter::builder().rules(rules).build().expect("rules that fit together");
    let mut limited = RateLimitLayer::new(limiter).expose_decision(false).layer(inner);
    // The store learns the keys.
    warm_up(&mut limited, requests());
    counted_loop(&mut limited, requests());
}

fn answer(_: Request<()>) -> Ready<Result<Response<Body>, Infallible>> {
    ready(Ok(Response::new(Body::empty())))
}

#[inline(never)]
fn counted_loop<S: Limited>(service: &mut S, requests: Vec<Request<()>>) {
    send(service, requests);
}

fn warm_up<S: Limited>(service: &mut S, requests: Vec<Request<()>>) {
    send(service, requests);
}

fn send<S: Limited>(service: &mut S, requests: Vec<Request<()>>) {
    for request in requests {
        let answered = pin!(service.call(request)).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(black_box(answered), Poll::Ready(Ok(_))), "the service answers at once");
    }
}

/// What requests are sent to.
trait Limited: Service<Request<()>, Response = Response<Body>, Error = Infallible> {}

impl<S: Service<Request<()>, Response = Response<Body>, Error = Infallible>> Limited for S {}
