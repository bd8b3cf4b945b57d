//! A gRPC service that counts how often it is called, behind the layer, and clients for it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use ratekeeper::{Limiter, ManualClock, MemoryStore, RateLimitLayer, Rule, Timestamp};
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::transport::server::{Router, TcpIncoming};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_types::StatusExt;
use tower::{Layer, Service};

/// The time at which the clock stands.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_700_000_000_250_000);

/// An in-memory limiter, on a clock that stands still.
pub(crate) fn limiter(rules: impl IntoIterator<Item = Rule>) -> (Limiter, ManualClock) {
    let clock = ManualClock::new(START);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    (Limiter::builder().store(store).rules(rules).build().expect("good rules"), clock)
}

pub(crate) fn layer(rules: impl IntoIterator<Item = Rule>) -> (RateLimitLayer, ManualClock) {
    let (limiter, clock) = limiter(rules);
    (RateLimitLayer::new(limiter), clock)
}

/// The health service, which has one unary method and one that answers with a stream.
#[derive(Clone, Default)]
pub(crate) struct Counting(Arc<AtomicUsize>);

impl Counting {
    pub(crate) fn service(&self) -> HealthServer<Self> {
        HealthServer::new(self.clone())
    }

    /// How often it was called.
    pub(crate) fn calls(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn serving() -> HealthCheckResponse {
    HealthCheckResponse { status: ServingStatus::Serving.into() }
}

#[tonic::async_trait]
impl Health for Counting {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        self.0.fetch_add(1, Ordering::SeqCst);
        match request.into_inner().service.as_str() {
            "" => Ok(Response::new(serving())),
            unknown => Err(Status::not_found(format!("there is no {unknown}"))),
        }
    }

    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Response::new(stream::repeat(Ok(serving())).take(3).boxed()))
    }
}

/// A socket to listen on, and its address.
pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

/// Serves with tonic until the test ends.
pub(crate) async fn serve<L, B>(router: Router<L>) -> SocketAddr
where
    L: Layer<tonic::service::Routes> + Clone + Send + 'static,
    L::Service: Service<http::Request<Body>, Response = http::Response<B>> + Clone + Send + 'static,
    <L::Service as Service<http::Request<Body>>>::Future: Send,
    <L::Service as Service<http::Request<Body>>>::Error:
        Into<Box<dyn std::error::Error + Send + Sync>> + Send,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (listener, address) = listen().await;
    tokio::spawn(router.serve_with_incoming(TcpIncoming::from(listener)));
    address
}

/// A server with these rules that serves only gRPC.
pub(crate) struct App {
    pub(crate) clock: ManualClock,
    pub(crate) address: SocketAddr,
    pub(crate) inner: Counting,
}

impl App {
    pub(crate) async fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self::with(rules, |layer| layer).await
    }

    /// Configures the layer.
    pub(crate) async fn with(
        rules: impl IntoIterator<Item = Rule>,
        options: impl FnOnce(RateLimitLayer) -> RateLimitLayer,
    ) -> Self {
        let (layer, clock) = layer(rules);
        let inner = Counting::default();
        let layer = options(layer).rejection(ratekeeper::rejection::GrpcRejection);
        let address = serve(Server::builder().layer(layer).add_service(inner.service())).await;
        Self { clock, address, inner }
    }

    pub(crate) fn client(&self) -> Client {
        Client(HealthClient::new(channel(self.address, None)))
    }
}

/// A channel, which connects on the first request, from an address.
pub(crate) fn channel(to: SocketAddr, from: Option<IpAddr>) -> Channel {
    Endpoint::from_shared(format!("http://{to}")).expect("an address").local_address(from).connect_lazy()
}

/// A client of the health service.
#[derive(Clone)]
pub(crate) struct Client<T = Channel>(pub(crate) HealthClient<T>);

impl<T, B> Client<T>
where
    T: tonic::client::GrpcService<Body, ResponseBody = B>,
    T::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
{
    pub(crate) async fn check(&mut self) -> Result<Response<HealthCheckResponse>, Status> {
        self.0.check(HealthCheckRequest::default()).await
    }

    pub(crate) async fn watch(&mut self) -> Result<Response<tonic::Streaming<HealthCheckResponse>>, Status> {
        self.0.watch(HealthCheckRequest::default()).await
    }

    /// The status of a request that is denied.
    pub(crate) async fn denied(&mut self) -> Status {
        self.check().await.expect_err("it is denied")
    }
}

/// What the tests read from a status.
pub(crate) trait StatusAsked {
    /// The one line of a field, if present.
    fn field(&self, name: &str) -> Option<&str>;
    /// The delay of `RetryInfo`, if present.
    fn delay(&self) -> Option<Duration>;
    /// The rules that `QuotaFailure` names, each with its limit.
    fn violated(&self) -> Vec<(String, i64)>;
}

impl StatusAsked for Status {
    fn field(&self, name: &str) -> Option<&str> {
        assert!(self.metadata().get_all(name).iter().count() <= 1, "{name}: {self:?}");
        self.metadata().get(name).map(|value| value.to_str().expect("text"))
    }

    fn delay(&self) -> Option<Duration> {
        let details = self.check_error_details().expect("details that can be read");
        details.retry_info().map(|info| info.retry_delay.expect("a delay"))
    }

    fn violated(&self) -> Vec<(String, i64)> {
        let details = self.check_error_details().expect("details that can be read");
        let violations = details.quota_failure().map(|failure| failure.violations.clone());
        violations.unwrap_or_default().into_iter().map(|one| (one.quota_id, one.quota_value)).collect()
    }
}

/// Asserts that a limit denied the call.
pub(crate) fn assert_exhausted(status: &Status) {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
}
