//! A service behind the layer that logs when each request passes, on tokio's time.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use ratekeeper::{
    Limiter, LimiterBuilder, MemoryStore, RateLimit, RateLimitLayer, Rule, Timestamp, store::Clock,
};
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{Reply, START, get, ok};

/// Follows tokio's time, which stands still until all tasks wait.
#[derive(Clone, Debug)]
pub(crate) struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        START.saturating_add(self.0.elapsed())
    }
}

pub(crate) type Inner = BoxCloneSyncService<Request<()>, Reply, Infallible>;
pub(crate) type Queue = RateLimit<Inner>;

/// Which request passed when.
pub(crate) type Log = Arc<Mutex<Vec<(String, Duration)>>>;

impl TokioClock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }
}

/// A store on tokio's time.
pub(crate) fn memory() -> MemoryStore<TokioClock> {
    MemoryStore::builder().clock(TokioClock::new()).build()
}

/// A service with these rules.
pub(crate) fn queue(rules: impl IntoIterator<Item = Rule>) -> (Queue, Log) {
    queue_of(Limiter::builder().store(memory()).rules(rules))
}

/// A service with this limiter.
pub(crate) fn queue_of(limiter: LimiterBuilder) -> (Queue, Log) {
    let start = Instant::now();
    let log = Log::default();
    let logged = Arc::clone(&log);
    let inner = service_fn(move |request: Request<()>| {
        logged.lock().unwrap().push((request.uri().path().to_owned(), start.elapsed()));
        std::future::ready(Ok(ok(request)))
    });
    (RateLimitLayer::new(limiter.build().unwrap()).layer(BoxCloneSyncService::new(inner)), log)
}

/// Which requests have passed, and when, in milliseconds.
pub(crate) fn logged(log: &Log) -> Vec<(String, u64)> {
    log.lock().unwrap().iter().map(|(path, at)| (path.clone(), at.as_millis() as u64)).collect()
}

pub(crate) fn entries(entries: &[(&str, u64)]) -> Vec<(String, u64)> {
    entries.iter().map(|(path, at)| ((*path).to_owned(), *at)).collect()
}

pub(crate) async fn call(
    queue: &mut Queue,
    path: &str,
) -> impl Future<Output = Result<Reply, Infallible>> + use<> {
    queue.ready().await.unwrap().call(get(path))
}
