//! One limit of a server: how much is available, and how fast it may be used.

use std::time::Duration;

use tokio::time::Instant;

use super::{Sends, Sent};
use crate::field::LimitReport;

/// The share of a policy's rate that is used. The rest is for requests that arrive closer together than they
/// were sent.
const SHARE: f64 = 0.97;
/// By how much a request may be late and the next one still keep its due time, as a share of the window.
const SLACK: f64 = 0.02;
/// The share of a quota that is not spent ahead of the policy's rate.
const RESERVE: f64 = 0.05;
/// By how much a response may be later than usual and requests still arrive as they were sent, as a share of
/// the window.
const JITTER: f64 = 0.05;
/// The fields count in whole seconds. So does a wait for more.
const SECOND: f64 = 1.0;

#[derive(Debug)]
pub(super) struct Limit {
    name: String,
    quota: Option<f64>,
    /// Seconds.
    window: Option<f64>,
    remaining: Option<Remaining>,
    /// The most that was ever available.
    most: f64,
    /// When requests were last sent faster than the policy's rate, or arrived closer together than they were
    /// sent.
    uneven_at: Option<Instant>,
}

/// How much was available when the server decided on a request.
#[derive(Clone, Copy, Debug)]
struct Remaining {
    amount: f64,
    /// The request.
    seq: u64,
    /// How many requests are contained in `amount` for certain.
    counted: u64,
    /// When the request was sent.
    sent_at: Instant,
    /// When the response arrived.
    at: Instant,
    /// By when more is available.
    grows_at: Option<Instant>,
}

impl Limit {
    pub(super) fn new(report: &LimitReport, sent: Sent, sends: &Sends, now: Instant) -> Self {
        let mut limit = Self {
            name: report.name.clone(),
            quota: None,
            window: None,
            remaining: None,
            most: 0.0,
            uneven_at: None,
        };
        limit.update(report, sent, now);
        // Requests that were sent before the limit was known kept no pace.
        limit.uneven_at = (sends.sent > 1).then_some(now);
        limit
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Takes in what a response says. `remaining` counts only from the request that was sent last.
    pub(super) fn update(&mut self, report: &LimitReport, sent: Sent, now: Instant) {
        self.quota = report.quota.map(|quota| quota as f64).or(self.quota);
        self.window = report.window.map(|window| window.as_secs_f64()).or(self.window);
        let Some(amount) = report.remaining else { return };
        let before = self.remaining;
        if before.is_some_and(|before| before.seq > sent.seq) {
            return;
        }
        let claim = report.reset.map(|reset| now + reset);
        let amount = amount as f64;
        let same = before.filter(|before| amount <= before.amount - (sent.seq - before.seq) as f64);
        let grows_at = match (same.and_then(|before| before.grows_at), claim) {
            // Nothing has come back in between, so these are two roundings of the same moment. Both are upper
            // bounds, and the earlier one holds.
            (Some(before), Some(claim)) if before > now && claim < before + duration(SECOND) => {
                Some(before.min(claim))
            }
            _ => claim,
        };
        self.most = self.most.max(amount);
        let (seq, sent_at, counted) = (sent.seq, sent.at, sent.done + 1);
        self.remaining = Some(Remaining { amount, seq, counted, sent_at, at: now, grows_at });
    }

    /// Counts a request that is sent `interval` after the one before it.
    pub(super) fn sent(&mut self, now: Instant, interval: Duration) {
        if self.sustained().is_some_and(|rate| interval.as_secs_f64() * rate < 0.999) {
            self.uneven_at = Some(now);
        }
    }

    /// Notes that a response was this much later than usual, in seconds.
    pub(super) fn late(&mut self, now: Instant, by: f64) {
        if self.window.is_some_and(|window| by > JITTER * window) {
            self.uneven_at = Some(now);
        }
    }

    /// The policy's rate, in requests a second.
    fn policy(&self) -> Option<f64> {
        let (quota, window) = (self.quota?, self.window?);
        (quota > 0.0 && window > 0.0).then(|| quota / window)
    }

    /// The rate at which the policy can be used forever, in requests a second.
    ///
    /// A sliding window estimates in fractions of a request, and rarely has a whole one left for the last
    /// request. So one is left.
    fn sustained(&self) -> Option<f64> {
        let quota = self.quota?;
        Some(SHARE * self.policy()? * (1.0 - 1.0 / quota).max(0.5))
    }

    /// Seconds until more is available; `None` if that is unknown or has passed.
    fn left(&self, now: Instant) -> Option<f64> {
        let left = self.remaining?.grows_at?.saturating_duration_since(now).as_secs_f64();
        (left > 0.0).then_some(left)
    }

    /// Whether quota comes back bit by bit, as far as fields that count in seconds can say. Otherwise
    /// nothing comes back for a while.
    fn is_gradual(&self, now: Instant) -> bool {
        match (self.left(now), self.policy()) {
            (None, _) => true,
            (Some(left), Some(rate)) => left <= SECOND.max(1.0 / rate),
            (Some(_), None) => false,
        }
    }

    /// How fast quota comes back for certain.
    ///
    /// If requests have arrived at the policy's rate for a window, every algorithm gives back at least at that rate:
    /// a bucket refills, and a window loses what was sent a window ago.
    fn growth(&self, now: Instant) -> Option<f64> {
        let window = self.window?;
        let is_even = self.uneven_at.is_none_or(|at| now.duration_since(at).as_secs_f64() > window);
        self.sustained().filter(|_| is_even && self.is_gradual(now))
    }

    /// How much is available at least, after what was sent since the server reported it. `None` if it did
    /// not report it.
    fn available(&self, now: Instant, sends: &Sends) -> Option<f64> {
        let remaining = self.remaining?;
        let Some(rate) = self.growth(now) else {
            // Any that was in flight at the same time may have arrived after it.
            return Some(remaining.amount - sends.sent.saturating_sub(remaining.counted) as f64);
        };
        // Requests arrive in order, and as long after each other as they were sent.
        let grown = remaining.amount + rate * now.duration_since(remaining.sent_at).as_secs_f64();
        Some(grown.min(self.most) - sends.sent.saturating_sub(remaining.seq + 1) as f64)
    }

    /// Until when nothing may be sent, unless a response says otherwise. `None` if something may.
    pub(super) fn blocked_until(&self, now: Instant, sends: &Sends) -> Option<Instant> {
        let available = self.available(now, sends).filter(|available| *available < 1.0)?;
        let remaining = self.remaining?;
        let grows_at = remaining.grows_at.or_else(|| Some(remaining.at + duration(self.window?)))?;
        let until = if now < grows_at {
            grows_at
        } else if available >= 0.0 && sends.last.is_none_or(|last| last < grows_at) {
            // More has become available, and how much is what the response to one request will say.
            return None;
        } else {
            sends.last? + duration(SECOND)
        };
        let grown = self.growth(now).map(|rate| now + duration((1.0 - available) / rate));
        Some(grown.map_or(until, |grown| grown.min(until))).filter(|until| *until > now)
    }

    /// The rate at which to send, in requests a second. `None` if there is no need to pace.
    pub(super) fn rate(&self, now: Instant, sends: &Sends) -> Option<f64> {
        let available = self.available(now, sends);
        let left = self.left(now);
        // What is available is spread over the time until there is more.
        let spread =
            |amount: f64| Some(SHARE * amount.max(0.0) / left?.max(SECOND)).filter(|rate| *rate > 0.0);
        match self.sustained() {
            Some(rate) if self.is_gradual(now) => {
                let quota = self.quota.unwrap_or(0.0);
                // Only a bucket is half full while it is used at its rate.
                let is_half_full = available.is_some_and(|available| available >= quota / 2.0);
                let rate = if is_half_full { SHARE * self.policy()? } else { rate };
                let surplus = available.map(|available| available - RESERVE * quota);
                Some(surplus.and_then(spread).map_or(rate, |spread| spread.max(rate)))
            }
            sustained => available.and_then(spread).or(sustained),
        }
    }

    /// How long until the last of `count` requests can be sent, at least.
    pub(super) fn wait_for(&self, count: usize, now: Instant, sends: &Sends) -> Duration {
        let Some(available) = self.available(now, sends) else { return Duration::ZERO };
        let missing = count as f64 - available;
        if missing <= 0.0 {
            return Duration::ZERO;
        }
        let left = if self.is_gradual(now) { 0.0 } else { self.left(now).unwrap_or(0.0) };
        // After a reset the whole quota is back, so only what exceeds it takes longer.
        let rest = match self.policy() {
            Some(rate) if left == 0.0 => missing / rate,
            Some(rate) => (missing - self.quota.unwrap_or(0.0)).max(0.0) / rate,
            None => 0.0,
        };
        duration(left + rest)
    }

    /// How late a request may be and the next one still keep its due time.
    pub(super) fn slack(&self, now: Instant) -> Option<Duration> {
        self.window.or_else(|| self.left(now)).map(|span| duration(SLACK * span))
    }
}

/// Seconds as a duration that can be added to the time.
pub(super) fn duration(seconds: f64) -> Duration {
    const DAY: f64 = 86_400.0;
    Duration::from_secs_f64(if seconds.is_finite() { seconds.clamp(0.0, DAY) } else { DAY })
}
