//! Services to limit, and what was recorded about them.

pub(crate) mod script;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, Once};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use metrics::LocalRecorderGuard;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use ratekeeper::key::PeerAddr;
use ratekeeper::{Limiter, ManualClock, MemoryStore, RateLimitLayer, Rule, Timestamp};
use tower::{Layer, ServiceExt, service_fn};
use tracing::subscriber::DefaultGuard;

pub(crate) const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// An in-memory limiter, on a clock that stands still.
pub(crate) fn limiter(rules: impl IntoIterator<Item = Rule>) -> (Limiter, ManualClock) {
    let clock = ManualClock::new(START);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    (Limiter::builder().store(store).rules(rules).build().expect("good rules"), clock)
}

/// A request to a path from some address.
pub(crate) fn get(path: &str) -> Request<()> {
    let mut request = anonymous(path);
    request.extensions_mut().insert(PeerAddr("192.0.2.7:4711".parse().expect("an address")));
    request
}

/// A request from an unknown peer.
pub(crate) fn anonymous(path: &str) -> Request<()> {
    Request::get(path).body(()).expect("a request")
}

pub(crate) async fn answer(_: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::default())
}

/// The status that a service behind a layer of the limiter answers.
pub(crate) async fn send(limiter: &Limiter, request: Request<()>) -> StatusCode {
    let layer = RateLimitLayer::new(limiter.clone());
    let Ok(response) = layer.layer(service_fn(answer)).oneshot(request).await;
    response.status()
}

/// The buckets that the documentation recommends.
pub(crate) fn exporter() -> PrometheusBuilder {
    let of = |name: &str| Matcher::Full(name.to_owned());
    PrometheusBuilder::new()
        .set_buckets_for_metric(of("ratekeeper_store_seconds"), &[0.000_1, 0.001, 0.005, 0.025, 0.1, 1.0])
        .and_then(|builder| {
            builder.set_buckets_for_metric(of("ratekeeper_redis_batch_size"), &[1.0, 8.0, 64.0, 256.0])
        })
        .expect("buckets")
}

/// A recorder for everything that happens on this thread from here on.
pub(crate) struct Recorded {
    pub(crate) handle: PrometheusHandle,
    _guard: LocalRecorderGuard<'static>,
}

impl Recorded {
    pub(crate) fn start() -> Self {
        // It lives as long as the test process, so that handles do not outlive it.
        let recorder: &'static PrometheusRecorder = Box::leak(Box::new(exporter().build_recorder()));
        Self { handle: recorder.handle(), _guard: metrics::set_default_local_recorder(recorder) }
    }

    /// Everything that was recorded, as `name{label="value"}` with sorted labels, and its value.
    pub(crate) fn all(&self) -> BTreeMap<String, f64> {
        let text = self.handle.render();
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        lines
            .map(|line| {
                let (series, value) = line.rsplit_once(' ').expect("a value");
                let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
                let mut labels: Vec<&str> =
                    labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty()).collect();
                labels.sort_unstable();
                (format!("{name}{{{}}}", labels.join(",")), value.parse().expect("a number"))
            })
            .collect()
    }

    /// The value recorded under a name and labels, which are sorted.
    pub(crate) fn value(&self, series: &str) -> f64 {
        let all = self.all();
        *all.get(series).unwrap_or_else(|| panic!("there is no {series} in {all:#?}"))
    }

    /// How often a rule had this outcome.
    pub(crate) fn decisions(&self, rule: &str, mode: &str, outcome: &str) -> f64 {
        let series =
            format!("ratekeeper_decisions_total{{mode=\"{mode}\",outcome=\"{outcome}\",rule=\"{rule}\"}}");
        self.all().get(&series).copied().unwrap_or(0.0)
    }

    /// The names of all metrics, with the names of their labels.
    pub(crate) fn names(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for series in self.all().into_keys() {
            let (name, labels) = series.trim_end_matches('}').split_once('{').expect("braces");
            let part = ["_bucket", "_sum", "_count"].into_iter().find_map(|part| name.strip_suffix(part));
            let labels = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
            let known = names.entry(part.unwrap_or(name).to_owned()).or_default();
            known.extend(labels.filter(|label| label != "le"));
        }
        names
    }
}

/// The events on this thread from here on, one line each.
pub(crate) struct Told {
    lines: Lines,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panicked").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Told {
    pub(crate) fn start() -> Self {
        // An event on a thread without a subscriber must not disable its callsite for threads that have one.
        static SOMEBODY: Once = Once::new();
        SOMEBODY.call_once(|| {
            let nowhere = tracing_subscriber::fmt().with_writer(std::io::sink).finish();
            tracing::subscriber::set_global_default(nowhere).expect("nobody else has done so");
        });
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_ansi(false)
            .without_time()
            .with_writer(move || writer.clone())
            .finish();
        Self { lines, _guard: tracing::subscriber::set_default(subscriber) }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let bytes = self.lines.0.lock().expect("nobody panicked").clone();
        String::from_utf8(bytes).expect("text").lines().map(|line| line.trim().to_owned()).collect()
    }

    /// The lines that contain this.
    pub(crate) fn with(&self, part: &str) -> Vec<String> {
        self.lines().into_iter().filter(|line| line.contains(part)).collect()
    }
}
