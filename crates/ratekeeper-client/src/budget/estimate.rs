//! The rate of a server that refuses requests, but never says what its limits are.
//!
//! After a refusal, the rate is what the server admitted since the refusal before it. From there it rises
//! slowly, so a limit that was raised is found, and refusals are rare.

use std::time::Duration;

use tokio::time::Instant;

/// The share of the admitted rate that is used after a refusal.
const SHARE: f64 = 0.9;
/// By how much the rate rises in the time that the server asked to wait, as a share of it.
const RISE: f64 = 0.02;

#[derive(Debug, Default)]
pub(super) struct Estimate {
    known: Option<Known>,
    /// Since when `admitted` counts.
    since: Option<Instant>,
    admitted: u64,
    /// Spreads requests, so that several processes do not keep in step. Around one.
    jitter: f64,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    /// How many were admitted before the refusal.
    admitted: f64,
    /// In which time, in seconds, including the wait.
    span: f64,
    /// When the pause after the refusal ends.
    from: Instant,
    /// Seconds that the server asked to wait.
    wait: f64,
}

impl Known {
    /// Requests a second. If nothing was admitted, one in the time that passed.
    fn rate(&self) -> f64 {
        let admitted = if self.admitted > 0.0 { self.admitted } else { 1.0 };
        SHARE * admitted / self.span.max(0.001)
    }
}

impl Estimate {
    pub(super) fn sent(&mut self, random: f64) {
        self.jitter = 0.75 + 0.5 * random;
    }

    pub(super) fn admitted(&mut self, now: Instant) {
        match &mut self.known {
            // It was in flight when the pause began.
            Some(known) if now < known.from => known.admitted += 1.0,
            _ => {
                self.since.get_or_insert(now);
                self.admitted += 1;
            }
        }
    }

    pub(super) fn refused(&mut self, now: Instant, wait: Duration) {
        let from = now + wait;
        let span = from.duration_since(self.since.unwrap_or(now)).as_secs_f64();
        let admitted = match (self.admitted, &self.known) {
            // Half as fast as before.
            (0, Some(known)) => known.rate() * span / (2.0 * SHARE),
            (admitted, _) => admitted as f64,
        };
        self.known = Some(Known { admitted, span, from, wait: wait.as_secs_f64() });
        self.since = Some(from);
        self.admitted = 0;
    }

    /// Requests a second. `None` if the server has refused nothing.
    pub(super) fn rate(&self, now: Instant) -> Option<f64> {
        let known = self.known?;
        let waits = now.saturating_duration_since(known.from).as_secs_f64() / known.wait.max(0.001);
        Some(known.rate() * (1.0 + RISE * waits) / self.jitter.max(0.5))
    }

    pub(super) fn is_known(&self) -> bool {
        self.known.is_some()
    }
}
