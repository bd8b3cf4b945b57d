//! The gateway's own metrics, beside those of Ratekeeper.
//!
//! The README has the table. Label values are set by the gateway, never by a client or the upstream.

use std::time::Duration;

use http::StatusCode;
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

use crate::failure::Failure;

const REQUESTS: &str = "gateway_requests_total";
const OPEN: &str = "gateway_requests_open";
const RESPONSES: &str = "gateway_upstream_responses_total";
const FAILURES: &str = "gateway_upstream_failures_total";
const RETRIES: &str = "gateway_upstream_retries_total";
const SECONDS: &str = "gateway_upstream_response_seconds";
const UPGRADES: &str = "gateway_upgrades_open";
const CONNECTIONS: &str = "gateway_connections_open";

/// From a quick response of the upstream to the longest that is waited for by default, in seconds.
const UPSTREAM: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

/// For what Ratekeeper measures: a store has some milliseconds to answer.
const STORE: [f64; 12] = [0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.1, 1.0];

/// For the number of requests in a batch.
const SIZES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// How often metrics are compacted, so that they do not pile up while nobody scrapes.
const UPKEEP: Duration = Duration::from_secs(5);

/// Starts collecting metrics, in this runtime and for this process.
///
/// # Errors
///
/// When a recorder is already installed.
pub(crate) fn install() -> Result<PrometheusHandle, BuildError> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(SECONDS.to_owned()), &UPSTREAM)?
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &STORE)?
        .set_buckets_for_metric(Matcher::Suffix("_size".to_owned()), &SIZES)?
        .install_recorder()?;
    describe_counter!(REQUESTS, "Requests answered, by the class of the status");
    describe_gauge!(OPEN, "Requests that are not answered yet, those that are held back among them");
    describe_counter!(RESPONSES, "Answers of the upstream, by the class of the status");
    describe_counter!(FAILURES, "Requests that went on and were not answered by the upstream, by the reason");
    describe_counter!(RETRIES, "Requests sent again because the upstream had closed the connection");
    describe_histogram!(SECONDS, Unit::Seconds, "Time from sending a request on until its answer begins");
    describe_gauge!(UPGRADES, "Connections that have gone over to another protocol");
    describe_gauge!(CONNECTIONS, "Connections of clients, upgraded ones among them");
    let upkeep = handle.clone();
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(UPKEEP);
        loop {
            ticks.tick().await;
            upkeep.run_upkeep();
        }
    });
    Ok(handle)
}

/// Counts an answered request.
pub(crate) fn answered(status: StatusCode) {
    counter!(REQUESTS, "class" => class(status)).increment(1);
}

/// Records that the upstream has begun its response.
pub(crate) fn responded(status: StatusCode, after: Duration) {
    counter!(RESPONSES, "class" => class(status)).increment(1);
    histogram!(SECONDS).record(after);
}

/// Counts a request that the upstream has not answered.
pub(crate) fn failed(failure: &Failure) {
    counter!(FAILURES, "reason" => failure.reason()).increment(1);
}

/// Counts a request that is sent again.
pub(crate) fn retried() {
    counter!(RETRIES).increment(1);
}

fn class(status: StatusCode) -> &'static str {
    match status.as_u16() {
        100..200 => "1xx",
        200..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        500..600 => "5xx",
        _ => "other",
    }
}

/// Counts as open until it is dropped.
#[derive(Debug)]
pub(crate) struct Open(&'static str);

impl Open {
    pub(crate) fn connection() -> Self {
        Self::new(CONNECTIONS)
    }

    pub(crate) fn request() -> Self {
        Self::new(OPEN)
    }

    pub(crate) fn upgrade() -> Self {
        Self::new(UPGRADES)
    }

    fn new(name: &'static str) -> Self {
        gauge!(name).increment(1.0);
        Self(name)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        gauge!(self.0).decrement(1.0);
    }
}
