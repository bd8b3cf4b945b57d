//! Metrics and events. Without the features, nothing.
//!
//! No label contains a host or a key: their number is not bounded.

use std::time::Duration;

use crate::queue::Unsent;

#[cfg(feature = "metrics")]
const REQUESTS: &str = "ratekeeper_client_requests_total";

/// A request was sent after this wait.
pub(crate) fn sent(waited: Duration, is_retry: bool) {
    #[cfg(feature = "metrics")]
    {
        let kind = if is_retry { "retried" } else { "sent" };
        metrics::counter!(REQUESTS, "outcome" => kind).increment(1);
        metrics::histogram!("ratekeeper_client_wait_seconds").record(waited.as_secs_f64());
    }
    let _ = (waited, is_retry);
}

/// The server refused a request.
pub(crate) fn refused() {
    #[cfg(feature = "metrics")]
    metrics::counter!(REQUESTS, "outcome" => "refused").increment(1);
}

/// Everyone who uses a budget waits this long.
pub(crate) fn paused(wait: Duration) {
    #[cfg(feature = "metrics")]
    metrics::counter!("ratekeeper_client_pauses_total").increment(1);
    #[cfg(feature = "tracing")]
    tracing::info!(target: "ratekeeper_client", wait_ms = wait.as_millis() as u64, "paused");
    let _ = wait;
}

/// The shared store failed, so this process keeps to the quota by itself.
#[cfg(feature = "fleet")]
pub(crate) fn store_failed(error: &ratekeeper_core::StoreError) {
    #[cfg(feature = "metrics")]
    metrics::counter!("ratekeeper_client_store_failures_total").increment(1);
    #[cfg(feature = "tracing")]
    {
        let error = error as &dyn std::error::Error;
        tracing::warn!(target: "ratekeeper_client", error, "the store failed");
    }
    let _ = error;
}

/// A request was not sent.
pub(crate) fn unsent(unsent: Unsent) {
    #[cfg(feature = "metrics")]
    {
        let outcome = match unsent {
            Unsent::TooLong(_) => "wait_too_long",
            Unsent::Full => "queue_full",
        };
        metrics::counter!(REQUESTS, "outcome" => outcome).increment(1);
    }
    #[cfg(feature = "tracing")]
    match unsent {
        Unsent::TooLong(wait) => {
            tracing::warn!(target: "ratekeeper_client", wait_ms = wait.as_millis() as u64, "not sent: the wait is too long");
        }
        Unsent::Full => {
            tracing::warn!(target: "ratekeeper_client", "not sent: too many requests are waiting");
        }
    }
    let _ = unsent;
}
