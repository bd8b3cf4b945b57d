//! Servers, clients, and a record of what was sent.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::any;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ratekeeper::{IetfDraft, Limiter, RateLimitLayer, Rule, key};
use ratekeeper_client::{CloneAny, Pacer, Pacing, PacingLayer};
use tokio::net::TcpListener;
use tower::{Layer, Service, ServiceExt};

pub(crate) type Body = Full<Bytes>;
pub(crate) type Http = Client<HttpConnector, Body>;
pub(crate) type Paced = Pacing<Recording<Http>, CloneAny>;

/// Serves until the test ends.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// A service behind our own layer, which describes its limits as draft 11 has it.
pub(crate) async fn serve_limited(limiter: Limiter) -> SocketAddr {
    let layer = RateLimitLayer::new(limiter).ietf_headers(IetfDraft::Draft11);
    serve(hello().layer(layer)).await
}

pub(crate) fn hello() -> Router {
    Router::new().fallback(any(|| async { "hello" }))
}

/// A rule with one budget for everyone.
pub(crate) fn rule(name: &str, quota: ratekeeper::Quota) -> Rule {
    Rule::new(name, quota).key(key::global())
}

/// What was sent and answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record(Arc<Mutex<Vec<Exchange>>>);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    pub(crate) sent: Instant,
    pub(crate) received: Instant,
    pub(crate) is_refused: bool,
}

impl Record {
    /// In the order of the responses.
    pub(crate) fn all(&self) -> Vec<Exchange> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn refused(&self) -> usize {
        self.all().iter().filter(|exchange| exchange.is_refused).count()
    }

    pub(crate) fn admitted(&self) -> usize {
        self.all().len() - self.refused()
    }

    /// Refusals of requests that were sent after a refusal, with no success in between.
    pub(crate) fn refused_in_a_row(&self) -> usize {
        let mut last_refused = None;
        let mut count = 0;
        for exchange in self.all() {
            if exchange.is_refused {
                count += usize::from(last_refused.is_some_and(|at| exchange.sent > at));
                last_refused = Some(exchange.received);
            } else {
                last_refused = None;
            }
        }
        count
    }
}

/// Records what an HTTP client does.
#[derive(Clone, Debug)]
pub(crate) struct Recording<S> {
    inner: S,
    record: Record,
}

impl<S> Recording<S> {
    pub(crate) fn new(inner: S) -> (Self, Record) {
        let record = Record::default();
        (Self { inner, record: record.clone() }, record)
    }
}

impl<S, B, R> Service<Request<B>> for Recording<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (sent, record) = (Instant::now(), self.record.clone());
        let response = self.inner.call(request);
        Box::pin(async move {
            let response = response.await?;
            let is_refused = matches!(response.status().as_u16(), 403 | 429 | 503)
                || response.headers().get("grpc-status").is_some_and(|status| status == "8");
            record.0.lock().unwrap().push(Exchange { sent, received: Instant::now(), is_refused });
            Ok(response)
        })
    }
}

pub(crate) fn http() -> Http {
    Client::builder(TokioExecutor::new()).build_http()
}

/// A client that paces itself, and the record of what it sends.
pub(crate) fn client(pacer: Pacer) -> (Paced, Record) {
    let (http, record) = Recording::new(http());
    (PacingLayer::new(pacer).clone_body(CloneAny).layer(http), record)
}

pub(crate) fn get(server: SocketAddr) -> Request<Body> {
    Request::get(format!("http://{server}/")).body(Body::default()).unwrap()
}

/// Sends requests from many callers at once, again and again, for a while. Fails if a call does.
pub(crate) async fn load(client: &Paced, server: SocketAddr, callers: usize, span: Duration) {
    let until = Instant::now() + span;
    let callers: Vec<_> = (0..callers)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                while Instant::now() < until {
                    let response = client.clone().oneshot(get(server)).await;
                    assert!(response.unwrap().status() != StatusCode::INTERNAL_SERVER_ERROR);
                }
            })
        })
        .collect();
    for caller in callers {
        // Callers that still wait at the end have nothing to add.
        drop(tokio::time::timeout_at((until + Duration::from_millis(100)).into(), caller).await);
    }
}
