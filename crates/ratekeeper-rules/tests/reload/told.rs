//! What the log and the metrics report about reloads.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use ratekeeper_rules::FileSource;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};

use crate::support::{NEVER, Reloaded, rename_over, rules, wrong_rules};

/// Keeps what is recorded, by name and labels.
#[derive(Default)]
struct Metrics(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Metrics {
    fn cell(&self, key: &Key) -> Arc<AtomicU64> {
        let mut labels: Vec<_> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        labels.sort();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        Arc::clone(self.0.lock().unwrap().entry(name).or_default())
    }

    /// If a counter appears only once it has counted, its increase cannot be seen.
    fn counter(&self, name: &str) -> Option<u64> {
        self.0.lock().unwrap().get(name).map(|cell| cell.load(Ordering::Relaxed))
    }

    fn gauge(&self, name: &str) -> Option<f64> {
        self.0.lock().unwrap().get(name).map(|cell| f64::from_bits(cell.load(Ordering::Relaxed)))
    }
}

impl Recorder for Metrics {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// Keeps what the rules crate logs, one line per event.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(Level, String)>>>);

impl Log {
    /// Everything that was logged since the last call.
    fn take(&self) -> Vec<(Level, String)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("ratekeeper_rules")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push((*event.metadata().level(), line.0));
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

const OTHER: &str = "\n[[rules]]\nname = \"other\"\nquota = \"1/s\"\n";

#[tokio::test]
async fn reloads_are_counted_and_the_version_in_force_is_known() {
    let metrics = Metrics::default();
    let _guard = metrics::set_default_local_recorder(&metrics);
    let outcome = |outcome: &str| {
        metrics.counter(&format!("ratekeeper_reloads_total{{outcome={outcome},source=file}}"))
    };
    let is_failing = || metrics.gauge("ratekeeper_reload_failing{source=file}");
    let info = |version: &str| metrics.gauge(&format!("ratekeeper_rule_set_info{{version={version}}}"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.toml");
    rename_over(&path, &rules(10));

    let reloaded = Reloaded::start(FileSource::new(&path).poll_every(NEVER)).await;
    let first = reloaded.handle.status().version().to_owned();
    assert_eq!([outcome("applied"), outcome("refused"), outcome("unread")], [Some(1), Some(0), Some(0)]);
    assert_eq!((metrics.gauge("ratekeeper_rules{}"), info(&first)), (Some(1.0), Some(1.0)));

    assert_eq!(is_failing(), Some(0.0));
    rename_over(&path, &(rules(20) + OTHER));
    let second = reloaded.until_limit(20).await.version().to_owned();
    assert_eq!(metrics.gauge("ratekeeper_rules{}"), Some(2.0));
    assert_eq!((info(&first), info(&second)), (Some(0.0), Some(1.0)));

    rename_over(&path, &wrong_rules());
    let status = reloaded.until_refused().await;
    let refused = status.problem().unwrap().error().refused_version().unwrap();
    assert_eq!((info(refused), info(&second), is_failing()), (None, Some(1.0), Some(1.0)));
    fs::remove_file(&path).unwrap();
    reloaded.until_unread().await;
    assert_eq!([outcome("applied"), outcome("refused"), outcome("unread")], [Some(2), Some(1), Some(1)]);
    assert_eq!(is_failing(), Some(1.0));

    // The rules in force come back.
    rename_over(&path, &(rules(20) + OTHER));
    reloaded.handle.reload().await;
    assert_eq!((is_failing(), outcome("applied")), (Some(0.0), Some(2)));
}

#[tokio::test]
async fn what_happens_is_logged_once() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.toml");
    rename_over(&path, &rules(10));
    let one = |expected: Level, parts: &[&str]| {
        let lines = log.take();
        let [(level, line)] = &*lines else { panic!("one line, and not {lines:#?}") };
        assert_eq!(*level, expected, "{line}");
        for part in parts {
            assert!(line.contains(part), "no {part} in {line}");
        }
    };

    let reloaded = Reloaded::start(FileSource::new(&path).poll_every(NEVER)).await;
    let version = reloaded.handle.status().version().to_owned();
    one(Level::INFO, &["rules are in force", &version, "source=\"file\"", "rules=1"]);

    rename_over(&path, &wrong_rules());
    reloaded.until_refused().await;
    one(Level::ERROR, &["rules are refused", &version, "rule `login`, `quota`", "rules.toml:8:9"]);
    reloaded.handle.reload().await;
    assert_eq!(log.take(), [], "it is refused still");

    fs::remove_file(&path).unwrap();
    reloaded.until_unread().await;
    one(Level::WARN, &["rules cannot be read", &version, "No such file"]);
    reloaded.handle.reload().await;
    assert_eq!(log.take(), [], "it is gone still");

    rename_over(&path, &rules(10));
    reloaded.until_right().await;
    one(Level::INFO, &["are those of the source again", &version]);

    rename_over(&path, &format!("[layer]\ncharge-preflights = true\n{}", rules(20)));
    reloaded.until_limit(20).await;
    reloaded.until_right().await;
    let lines = log.take();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(
        lines[1].1.contains("next start") && lines[1].1.contains("layer.charge-preflights"),
        "{}",
        lines[1].1
    );
}
