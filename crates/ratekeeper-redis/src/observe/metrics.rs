//! Counters, gauges and histograms, through the `metrics` facade.
//!
//! A handle taken before the application has installed its recorder counts nothing. So handles are taken on
//! first use, once there is a recorder, and a gauge is decremented through the handle that incremented it.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram, with_recorder,
};
use ratekeeper_core::{StoreError, StoreErrorKind};

const SECONDS: &str = "ratekeeper_store_seconds";
const ERRORS: &str = "ratekeeper_store_errors_total";
const DENIED: &str = "ratekeeper_denied_from_memory_total";
const OPEN: &str = "ratekeeper_redis_breakers_open";
const CHANGES: &str = "ratekeeper_redis_breaker_changes_total";
const BATCH: &str = "ratekeeper_redis_batch_size";
const WAITING: &str = "ratekeeper_redis_waiting";

fn describe() {
    describe_histogram!(
        SECONDS,
        Unit::Seconds,
        "How long a store took that was asked, by store and outcome."
    );
    describe_counter!(ERRORS, Unit::Count, "Decisions that a store could not make, by store and kind.");
    describe_counter!(DENIED, Unit::Count, "Denials that the store was not asked about, being known.");
    describe_gauge!(OPEN, Unit::Count, "Redis servers that are not asked because they fail.");
    describe_counter!(CHANGES, Unit::Count, "How often breakers opened and closed.");
    describe_histogram!(BATCH, Unit::Count, "Requests that went to Redis together.");
    describe_gauge!(WAITING, Unit::Count, "Requests that wait for Redis to take them.");
}

/// Whether the application has installed a recorder.
///
/// Until then there is a recorder without state, and any recorder that counts has state.
fn has_recorder() -> bool {
    with_recorder(|recorder| size_of_val(recorder) > 0)
}

/// A handle, once there is a recorder to take it from.
fn once<T>(handle: &OnceLock<T>, take: impl FnOnce() -> T) -> Option<&T> {
    match handle.get() {
        Some(handle) => Some(handle),
        None if has_recorder() => Some(handle.get_or_init(take)),
        None => None,
    }
}

/// The handles used for each request.
#[derive(Debug, Default)]
pub(super) struct Handles {
    answered: OnceLock<Histogram>,
    denied: OnceLock<Counter>,
    batch: OnceLock<Histogram>,
}

impl Handles {
    #[inline]
    pub(super) fn denied_from_memory(&self) {
        if let Some(denied) = once(&self.denied, || counter!(DENIED, "store" => "redis")) {
            denied.increment(1);
        }
    }

    pub(super) fn sent(&self, requests: usize) {
        let take = || {
            describe();
            histogram!(BATCH)
        };
        if let Some(batch) = once(&self.batch, take) {
            batch.record(requests as f64);
        }
    }

    pub(super) fn answered(&self, took: Duration, error: Option<&StoreError>) {
        let of = |outcome: &'static str| histogram!(SECONDS, "store" => "redis", "outcome" => outcome);
        match error.map(kind) {
            None => once(&self.answered, || of("answered")).into_iter().for_each(|all| all.record(took)),
            Some(kind) => {
                of(kind).record(took);
                self::error(kind);
            }
        }
    }
}

pub(super) fn error(kind: &'static str) {
    counter!(ERRORS, "store" => "redis", "kind" => kind).increment(1);
}

fn kind(error: &StoreError) -> &'static str {
    match error.kind() {
        StoreErrorKind::Timeout => "timeout",
        StoreErrorKind::Protocol => "protocol",
        _ => "unavailable",
    }
}

/// An open breaker.
#[derive(Debug)]
pub(super) struct Open(Gauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

pub(super) fn opened(open: &mut Option<Open>, is_new: bool) {
    if is_new {
        counter!(CHANGES, "to" => "open").increment(1);
    }
    // A breaker that opened before there was a recorder is reported as soon as there is one.
    if open.is_none() && has_recorder() {
        let gauge = gauge!(OPEN);
        gauge.increment(1);
        *open = Some(Open(gauge));
    }
}

pub(super) fn closed(open: &mut Option<Open>) {
    *open = None;
    // So that the gauge exists, and is zero, where all is well.
    gauge!(OPEN).increment(0);
    counter!(CHANGES, "to" => "closed").increment(1);
}

/// What has been reported of a queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    gauge: Option<Gauge>,
    told: usize,
}

impl Queue {
    pub(super) fn waiting(&mut self, waiting: usize) {
        if self.gauge.is_none() && has_recorder() {
            self.gauge = Some(gauge!(WAITING));
            self.told = 0;
        }
        if let Some(gauge) = &self.gauge {
            gauge.increment(waiting as f64 - self.told as f64);
            self.told = waiting;
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.waiting(0);
    }
}
