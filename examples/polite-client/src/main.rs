//! A plain client and one that paces itself, beside each other.
//!
//! ```text
//! cargo run -p polite-client
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{Request, Response, StatusCode};
use axum::routing::get;
use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ratekeeper::{IetfDraft, Quota, RateLimitLayer};
use ratekeeper_client::{Pacer, PacingLayer};
use tokio::net::TcpListener;
use tower::util::MapResponseLayer;
use tower::{Layer, Service, ServiceExt};

const CALLERS: usize = 20;

fn app(quota: Quota) -> Router {
    // `RateLimit` and `RateLimit-Policy` say what the limit is, so that clients can keep to it.
    let limit = RateLimitLayer::new(quota).ietf_headers(IetfDraft::Draft11);
    Router::new().route("/", get(|| async { "hello\n" })).layer(limit)
}

/// Serves on a free port for as long as the program runs.
async fn serve(app: Router) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

/// How many requests were sent, and how many of them were refused.
#[derive(Clone, Debug, Default)]
struct Totals {
    sent: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
}

impl Totals {
    fn count<B>(&self, response: Response<B>) -> Response<B> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let is_refused = response.status() == StatusCode::TOO_MANY_REQUESTS;
        self.refused.fetch_add(usize::from(is_refused), Ordering::Relaxed);
        response
    }
}

/// Makes calls from several callers at once. Each tries until it succeeds.
async fn run<S, R>(client: S, server: SocketAddr, calls: usize) -> anyhow::Result<Duration>
where
    S: Service<Request<Empty<Bytes>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: std::error::Error + Send + Sync + 'static,
    R: Send + 'static,
{
    let started = Instant::now();
    let mut callers = Vec::new();
    for _ in 0..CALLERS {
        let client = client.clone();
        callers.push(tokio::spawn(async move {
            for _ in 0..calls / CALLERS {
                loop {
                    let request = Request::get(format!("http://{server}/")).body(Empty::new())?;
                    if client.clone().oneshot(request).await?.status() == StatusCode::OK {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            anyhow::Ok(())
        }));
    }
    for caller in callers {
        caller.await??;
    }
    Ok(started.elapsed())
}

/// Makes the same calls with a plain client and with one that paces itself, each to its own server.
async fn compare(quota: Quota, calls: usize) -> anyhow::Result<[(&'static str, Totals, Duration); 2]> {
    let (plain, paced) = (Totals::default(), Totals::default());
    let http = || Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();

    let totals = plain.clone();
    let client = MapResponseLayer::new(move |response| totals.count(response)).layer(http());
    let plain_took = run(client, serve(app(quota)).await?, calls).await?;

    let totals = paced.clone();
    let client = MapResponseLayer::new(move |response| totals.count(response)).layer(http());
    // All that it takes:
    let client = PacingLayer::new(Pacer::new()).layer(client);
    let paced_took = run(client, serve(app(quota)).await?, calls).await?;

    Ok([("plain", plain, plain_took), ("paced", paced, paced_took)])
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    println!("{:15} {:>6} {:>8} {:>8}", "client", "sent", "refused", "seconds");
    for (name, totals, took) in compare(Quota::per_second(50), 200).await? {
        let (sent, refused) = (totals.sent.load(Ordering::Relaxed), totals.refused.load(Ordering::Relaxed));
        println!("{name:15} {sent:6} {refused:8} {:8.1}", took.as_secs_f64());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_plain_client_is_refused_and_the_paced_one_is_not() {
        let [(_, plain, _), (_, paced, _)] = compare(Quota::per_second(20), 40).await.unwrap();
        assert!(plain.refused.load(Ordering::Relaxed) > 0);
        assert_eq!(paced.refused.load(Ordering::Relaxed), 0);
        assert_eq!(paced.sent.load(Ordering::Relaxed), 40);
    }
}
