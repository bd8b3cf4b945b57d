//! Events, through `tracing`.

use std::error::Error;
use std::time::{Duration, Instant};

use ratekeeper_core::StoreError;
use tracing::{error, info, warn};

const TARGET: &str = "ratekeeper";
/// How many changes of a breaker are reported in a second.
const PER_SECOND: u32 = 10;

/// Reports that a server evicts counters when its memory is full.
pub(super) fn evicts(policy: &str) {
    warn!(
        target: TARGET,
        store = "redis",
        policy,
        "Redis drives out counters when its memory is full: who is denied may begin anew"
    );
}

/// Reports that the script has decided otherwise than the algorithm. `admitted`: by the script.
pub(super) fn disagrees<'a>(admitted: bool, counters: impl Iterator<Item = &'a [u8]>) {
    let counters: Vec<String> =
        counters.map(|bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    error!(
        target: TARGET,
        store = "redis",
        admitted,
        counters = counters.join(" "),
        "Redis has decided otherwise than the algorithm: its decision stands; please report this"
    );
}

/// Lets a few events of each second through, and counts the others.
#[derive(Debug, Default)]
pub(super) struct Sample {
    since: Option<Instant>,
    told: u32,
    suppressed: u64,
}

impl Sample {
    pub(super) fn opened(&mut self, error: &StoreError) {
        if let Some(suppressed) = self.take() {
            let cause = error.source().map(ToString::to_string);
            warn!(
                target: TARGET,
                store = "redis",
                error = error as &dyn Error,
                cause,
                suppressed,
                "the breaker has opened: Redis fails, and is not asked"
            );
        }
    }

    pub(super) fn closed(&mut self, was_open: Duration) {
        if let Some(suppressed) = self.take() {
            let open_ms = u64::try_from(was_open.as_millis()).unwrap_or(u64::MAX);
            info!(target: TARGET, store = "redis", open_ms, suppressed, "the breaker has closed: Redis works");
        }
    }

    fn take(&mut self) -> Option<u64> {
        let now = Instant::now();
        if self.since.is_none_or(|since| now.duration_since(since) >= Duration::from_secs(1)) {
            (self.since, self.told) = (Some(now), 0);
        }
        if self.told == PER_SECOND {
            self.suppressed += 1;
            return None;
        }
        self.told += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}
