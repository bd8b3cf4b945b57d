//! A thousand calls by clients that are refused: what they send, how often they are refused, and how long it takes.
//!
//! Fifty callers make the calls, and each call is made until it succeeds. Each client has its own server, which admits
//! 100 a second.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use ratekeeper::{IetfDraft, Limiter, Quota, RateLimitLayer, Rule, key};
use ratekeeper_client::{Pacer, PacingMiddleware};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;
use tokio::net::TcpListener;

const CALLS: usize = 1_000;
const CALLERS: usize = 50;

/// What a server has answered.
#[derive(Debug, Default)]
struct Totals {
    requests: AtomicUsize,
    refused: AtomicUsize,
}

#[tokio::main]
async fn main() {
    println!("| client | fields | requests | refused | calls that failed | seconds |");
    println!("|---|---|---|---|---|---|");
    for fields in [Fields::RateLimit, Fields::RetryAfter] {
        let plain = reqwest::Client::new();
        row("reqwest, in a loop without a pause", fields, plain.clone().into()).await;
        row("reqwest, in a loop that sleeps for `Retry-After`", fields, plain.clone().into()).await;
        let backoff = ExponentialBackoff::builder().build_with_max_retries(10);
        let retrying =
            ClientBuilder::new(plain.clone()).with(RetryTransientMiddleware::new_with_policy(backoff));
        row("reqwest-retry 0.9, up to 10 retries", fields, retrying.build()).await;
        let paced = ClientBuilder::new(plain).with(PacingMiddleware::new(Pacer::new()));
        row("ratekeeper-client", fields, paced.build()).await;
    }
}

/// What the server says about its limit.
#[derive(Clone, Copy)]
enum Fields {
    RateLimit,
    RetryAfter,
}

async fn row(name: &str, fields: Fields, client: ClientWithMiddleware) {
    let (server, totals) = serve(fields).await;
    let started = Instant::now();
    let failed = match name {
        name if name.contains("without a pause") => {
            calls(|| until_admitted(&client, server, |_| Duration::ZERO)).await
        }
        name if name.contains("sleeps") => calls(|| until_admitted(&client, server, retry_after)).await,
        // These two make their own retries.
        _ => calls(|| once(&client, server)).await,
    };
    let took = started.elapsed().as_secs_f64();
    let fields = match fields {
        Fields::RateLimit => "`RateLimit`, `Retry-After`",
        Fields::RetryAfter => "`Retry-After`",
    };
    let (requests, refused) =
        (totals.requests.load(Ordering::Relaxed), totals.refused.load(Ordering::Relaxed));
    println!("| {name} | {fields} | {requests} | {refused} | {failed} | {took:.1} |");
}

/// A server that admits 100 a second to all callers together.
async fn serve(fields: Fields) -> (SocketAddr, Arc<Totals>) {
    let rule = Rule::new("all", Quota::per_second(100)).key(key::global());
    let layer = RateLimitLayer::new(Limiter::builder().rule(rule).build().expect("a rule"));
    let layer = match fields {
        Fields::RateLimit => layer.ietf_headers(IetfDraft::Draft11),
        Fields::RetryAfter => layer.x_ratelimit_headers(false),
    };
    let totals = Arc::new(Totals::default());
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(layer)
        .layer(middleware::from_fn_with_state(Arc::clone(&totals), count));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, totals)
}

async fn count(
    State(totals): State<Arc<Totals>>,
    request: Request<axum::body::Body>,
    next: Next,
) -> Response {
    let response = next.run(request).await;
    totals.requests.fetch_add(1, Ordering::Relaxed);
    totals.refused.fetch_add(usize::from(response.status() != StatusCode::OK), Ordering::Relaxed);
    response
}

/// Makes all calls, and returns how many failed.
async fn calls<F>(call: impl Fn() -> F) -> usize
where
    F: Future<Output = bool>,
{
    let left = AtomicUsize::new(CALLS);
    let failed = AtomicUsize::new(0);
    let caller = || async {
        while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            failed.fetch_add(usize::from(!call().await), Ordering::Relaxed);
        }
    };
    futures_util::future::join_all((0..CALLERS).map(|_| caller())).await;
    failed.load(Ordering::Relaxed)
}

async fn once(client: &ClientWithMiddleware, server: SocketAddr) -> bool {
    let response = client.get(format!("http://{server}/")).send().await;
    response.is_ok_and(|response| response.status() == StatusCode::OK)
}

/// Sends until it is admitted, with a pause after each refusal.
async fn until_admitted(
    client: &ClientWithMiddleware,
    server: SocketAddr,
    pause: fn(&reqwest::Response) -> Duration,
) -> bool {
    loop {
        match client.get(format!("http://{server}/")).send().await {
            Ok(response) if response.status() == StatusCode::OK => return true,
            Ok(response) => tokio::time::sleep(pause(&response)).await,
            Err(_) => return false,
        }
    }
}

fn retry_after(response: &reqwest::Response) -> Duration {
    let seconds = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    Duration::from_secs(seconds.unwrap_or(1))
}
