//! Services to limit, requests to send, and a clock that stands still.

pub(crate) mod held;
pub(crate) mod stores;

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use ratekeeper::key::PeerAddr;
use ratekeeper::{
    Decision, Limiter, ManualClock, MemoryStore, RateLimitLayer, Rule, Timestamp, rejection::JsonRejection,
    rejection::Rejection,
};
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceExt, service_fn};

pub(crate) type Memory = MemoryStore<ManualClock>;
pub(crate) type Layered<R = JsonRejection> = RateLimitLayer<R>;
pub(crate) type Reply = Response<Full<Bytes>>;

/// The time at which the clock stands: a quarter into a second, so that rounding shows.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_700_000_000_250_000);
/// The second in which the clock stands.
pub(crate) const SECOND: u64 = 1_700_000_000;

pub(crate) fn clock() -> ManualClock {
    ManualClock::new(START)
}

pub(crate) fn memory(clock: &ManualClock) -> Memory {
    MemoryStore::builder().clock(clock.clone()).build()
}

/// An in-memory limiter, on a clock that stands still.
pub(crate) fn limiter(rules: impl IntoIterator<Item = Rule>) -> (Limiter, ManualClock) {
    let clock = clock();
    let limiter = Limiter::builder().store(memory(&clock)).rules(rules).build().expect("good rules");
    (limiter, clock)
}

/// A service behind the layer, which counts how often it is called.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) clock: ManualClock,
    service: BoxCloneSyncService<Request<()>, Reply, Infallible>,
    calls: Arc<AtomicUsize>,
}

impl App {
    /// The layer with its defaults.
    pub(crate) fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self::with(rules, |layer| layer)
    }

    /// Configures the layer.
    pub(crate) fn with<R>(
        rules: impl IntoIterator<Item = Rule>,
        options: impl FnOnce(Layered) -> Layered<R>,
    ) -> Self
    where
        R: Rejection<Full<Bytes>> + Clone + Send + Sync + 'static,
    {
        let (limiter, clock) = limiter(rules);
        Self { clock, ..Self::over(&options(RateLimitLayer::new(limiter)), ok) }
    }

    /// A layer over a handler.
    pub(crate) fn over<R>(layer: &RateLimitLayer<R>, handler: fn(Request<()>) -> Reply) -> Self
    where
        R: Rejection<Full<Bytes>> + Clone + Send + Sync + 'static,
    {
        Self::around(layer, service_fn(move |request| std::future::ready(Ok(handler(request)))))
    }

    /// A layer over a service.
    pub(crate) fn around<R, I>(layer: &RateLimitLayer<R>, inner: I) -> Self
    where
        R: Rejection<Full<Bytes>> + Clone + Send + Sync + 'static,
        I: Service<Request<()>, Response = Reply, Error = Infallible> + Clone + Send + Sync + 'static,
        I::Future: Send + 'static,
    {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let inner = tower::util::MapRequest::new(inner, move |request| {
            counted.fetch_add(1, Ordering::SeqCst);
            request
        });
        Self { clock: clock(), service: BoxCloneSyncService::new(layer.layer(inner)), calls }
    }

    /// The same app inside another layer.
    pub(crate) fn within(self, layer: &Layered) -> Self {
        let service = BoxCloneSyncService::new(layer.layer(self.service));
        Self { service, ..self }
    }

    pub(crate) async fn send(&self, request: impl Into<Request<()>>) -> Reply {
        let Ok(reply) = self.service.clone().oneshot(request.into()).await;
        reply
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(get(path)).await
    }

    /// How many of `n` such requests are admitted.
    pub(crate) async fn admitted(&self, n: usize, request: impl Fn() -> Request<()>) -> usize {
        let mut admitted = 0;
        for _ in 0..n {
            let status = self.send(request()).await.status();
            assert!([StatusCode::OK, StatusCode::TOO_MANY_REQUESTS].contains(&status), "{status}");
            admitted += usize::from(status == StatusCode::OK);
        }
        admitted
    }

    /// How often the inner service was called.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

pub(crate) fn ok(_: Request<()>) -> Reply {
    Response::new(Full::from("ok"))
}

pub(crate) fn request(method: Method, path: &str) -> Request<()> {
    Request::builder().method(method).uri(path).body(()).expect("a request")
}

pub(crate) fn get(path: &str) -> Request<()> {
    request(Method::GET, path)
}

/// Additions to a request.
pub(crate) trait RequestExt: Sized {
    fn header(self, name: &'static str, value: impl AsRef<[u8]>) -> Self;
    fn peer(self, address: &str) -> Self;
    fn extension<T: Clone + Send + Sync + 'static>(self, extension: T) -> Self;
}

impl RequestExt for Request<()> {
    fn header(mut self, name: &'static str, value: impl AsRef<[u8]>) -> Self {
        let value = HeaderValue::from_bytes(value.as_ref()).expect("a field's value");
        self.headers_mut().append(name, value);
        self
    }

    fn peer(self, address: &str) -> Self {
        let address: IpAddr = address.parse().expect("an address");
        self.extension(PeerAddr((address, 4711).into()))
    }

    fn extension<T: Clone + Send + Sync + 'static>(mut self, extension: T) -> Self {
        self.extensions_mut().insert(extension);
        self
    }
}

/// What the tests read from a reply.
pub(crate) trait ReplyExt {
    /// The one line of a field, if present.
    fn field(&self, name: &str) -> Option<&str>;
    /// All lines of a field.
    fn lines(&self, name: &str) -> Vec<&str>;
    /// Limit, remaining and reset of `X-RateLimit`.
    fn trio(&self) -> Option<(u32, u32, u64)>;
    fn decision(&self) -> &Decision;
}

impl<B> ReplyExt for Response<B> {
    fn field(&self, name: &str) -> Option<&str> {
        let lines = self.lines(name);
        assert!(lines.len() <= 1, "{name}: {lines:?}");
        lines.first().copied()
    }

    fn lines(&self, name: &str) -> Vec<&str> {
        let lines = HeaderMap::get_all(self.headers(), name).into_iter();
        lines.map(|line| line.to_str().expect("text")).collect()
    }

    fn trio(&self) -> Option<(u32, u32, u64)> {
        let [limit, remaining, reset] = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]
            .map(|name| self.field(name).map(|text| text.parse::<u64>().expect("a number")));
        assert!(limit.is_some() == remaining.is_some() && limit.is_some() == reset.is_some());
        Some((limit?.try_into().expect("a limit"), remaining?.try_into().expect("a rest"), reset?))
    }

    fn decision(&self) -> &Decision {
        self.extensions().get().expect("a decision")
    }
}

pub(crate) async fn body(reply: Reply) -> String {
    let Ok(body) = reply.into_body().collect().await;
    String::from_utf8(body.to_bytes().to_vec()).expect("text")
}

pub(crate) async fn json(reply: Reply) -> serde_json::Value {
    serde_json::from_str(&body(reply).await).expect("JSON")
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
