//! What is known of one budget, and when the next request may be sent.
//!
//! Pure state: time and randomness are arguments.

mod estimate;
mod limit;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::time::Instant;

use self::estimate::Estimate;
use self::limit::{Limit, duration};
use crate::field::{MAX_LIMITS, Report};

/// How long the other callers wait for the first response, or for the first one after a pause. It usually
/// says what the limits are, or that there are none.
pub(crate) const PROBE_WAIT: Duration = Duration::from_millis(250);
/// The longest jitter at the end of a pause.
const MAX_JITTER: Duration = Duration::from_secs(1);

/// One budget of a server, as far as its responses describe it.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: Vec<Limit>,
    /// For a server that refuses without describing its limits.
    estimate: Estimate,
    paused_until: Option<Instant>,
    probe: Probe,
    /// When the last request was due, which is at or before the moment at which it was sent.
    due: Option<Instant>,
    sends: Sends,
    /// How long responses usually take, in seconds: a moving average.
    latency: Option<f64>,
}

/// How many requests were sent and finished.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sends {
    sent: u64,
    done: u64,
    last: Option<Instant>,
}

/// Whether one request has to go ahead of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    Needed,
    Sent { seq: u64, at: Instant },
    Done,
}

/// When the next request may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Now,
    /// At this time, to keep the pace. The budget would allow it now.
    Paced(Instant),
    /// Not before this time, unless a response says otherwise.
    Blocked(Instant),
}

/// A request that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// The number of the request.
    seq: u64,
    at: Instant,
    /// How many requests had finished when it was sent. The server has counted these before it.
    done: u64,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self {
            limits: Vec::new(),
            estimate: Estimate::default(),
            paused_until: None,
            probe: Probe::Needed,
            due: None,
            sends: Sends::default(),
            latency: None,
        }
    }

    /// Whether nothing holds requests back: the server has answered, and described no limits.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.probe == Probe::Done && self.limits.is_empty() && !self.estimate.is_known()
    }

    /// When the next request may be sent.
    pub(crate) fn turn(&self, now: Instant) -> Turn {
        if let Some(until) = self.paused_until.filter(|until| *until > now) {
            return Turn::Blocked(until);
        }
        if let Probe::Sent { at, .. } = self.probe
            && now < at + PROBE_WAIT
        {
            return Turn::Blocked(at + PROBE_WAIT);
        }
        let blocked = self.limits.iter().filter_map(|limit| limit.blocked_until(now, &self.sends)).max();
        if let Some(until) = blocked {
            return Turn::Blocked(until);
        }
        match self.due {
            Some(due) if due + self.interval(now) > now => Turn::Paced(due + self.interval(now)),
            _ => Turn::Now,
        }
    }

    /// How long a request waits at least, if `ahead` others are sent before it.
    pub(crate) fn expected_wait(&self, now: Instant, ahead: usize) -> Duration {
        let pause = self.paused_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        let budget = self.limits.iter().map(|limit| limit.wait_for(ahead + 1, now, &self.sends)).max();
        pause.max(budget.unwrap_or_default())
    }

    /// Counts a request that is sent now.
    pub(crate) fn sent(&mut self, now: Instant, random: f64) -> Sent {
        let interval = self.interval(now);
        let earliest = now.checked_sub(self.slack(now)).unwrap_or(now);
        self.due = Some(self.due.map_or(earliest, |due| (due + interval).max(earliest)));
        for limit in &mut self.limits {
            limit.sent(now, interval);
        }
        self.estimate.sent(random);
        let sent = Sent { seq: self.sends.sent, at: now, done: self.sends.done };
        self.sends.sent += 1;
        self.sends.last = Some(now);
        if self.probe == Probe::Needed {
            self.probe = Probe::Sent { seq: sent.seq, at: now };
        }
        sent
    }

    /// Takes in what a response says. If it refuses the request, `pause` is how long everyone waits. Returns
    /// whether that starts or extends a pause.
    pub(crate) fn received(
        &mut self,
        sent: Sent,
        report: &Report,
        pause: Option<Duration>,
        now: Instant,
        random: f64,
    ) -> bool {
        self.finished(sent);
        self.measure(sent, now);
        for report in &report.limits {
            if let Some(limit) = self.limits.iter_mut().find(|limit| limit.name() == report.name) {
                limit.update(report, sent, now);
            } else if self.limits.len() < MAX_LIMITS {
                self.limits.push(Limit::new(report, sent, &self.sends, now));
            }
        }
        let Some(pause) = pause else {
            if report.refusal.is_none() {
                self.estimate.admitted(now);
            }
            return false;
        };
        // Requests that were in flight when the pause began say nothing new about the rate.
        let is_new = self.paused_until.is_none_or(|until| sent.at >= until);
        if is_new {
            self.estimate.refused(now, pause);
        }
        self.pause(pause, now, random)
    }

    /// Stops everyone for this long, plus jitter. Returns whether that starts or extends a pause.
    pub(crate) fn pause(&mut self, pause: Duration, now: Instant, random: f64) -> bool {
        let until = now + pause + (pause / 10).min(MAX_JITTER).mul_f64(random);
        if self.paused_until.is_some_and(|paused| paused >= until) {
            return false;
        }
        self.paused_until = Some(until);
        self.probe = Probe::Needed;
        true
    }

    /// Counts a request that ended without a response.
    pub(crate) fn abandoned(&mut self, sent: Sent) {
        let is_probe = matches!(self.probe, Probe::Sent { seq, .. } if seq == sent.seq);
        self.sends.done += 1;
        if is_probe {
            self.probe = Probe::Needed;
        }
    }

    fn finished(&mut self, sent: Sent) {
        self.sends.done += 1;
        if matches!(self.probe, Probe::Sent { seq, .. } if sent.seq >= seq) {
            self.probe = Probe::Done;
        }
    }

    /// Takes in how long a response took.
    fn measure(&mut self, sent: Sent, now: Instant) {
        let took = now.duration_since(sent.at).as_secs_f64();
        let usual = self.latency.unwrap_or(took);
        self.latency = Some(usual + (took - usual) / 16.0);
        for limit in &mut self.limits {
            limit.late(now, took - usual);
        }
    }

    /// The time between two requests.
    fn interval(&self, now: Instant) -> Duration {
        let rate = if self.limits.is_empty() {
            self.estimate.rate(now)
        } else {
            self.limits.iter().filter_map(|limit| limit.rate(now, &self.sends)).reduce(f64::min)
        };
        rate.map_or(Duration::ZERO, |rate| duration(1.0 / rate))
    }

    /// By how much a request may be late and the next one still keep its due time.
    fn slack(&self, now: Instant) -> Duration {
        self.limits.iter().filter_map(|limit| limit.slack(now)).min().unwrap_or_default()
    }
}
