//! The question that a call asks of the script, as bytes. `charge.lua` says what they mean.

use ratekeeper_core::{Algorithm, Charge, Quota, Timestamp, codec};

use crate::batch::call::{Call, Run};
use crate::request::OwnCharge;

/// The limit from which on a sliding log may be so long that the script reads it in parts.
const LONG: u32 = 32;

/// A quota with a cost, and how long the caller will wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Term {
    pub(crate) quota: Quota,
    pub(crate) cost: u32,
    /// In microseconds.
    wait_up_to: Option<u64>,
}

impl Term {
    pub(crate) fn of(charge: &OwnCharge) -> Self {
        let wait = charge.wait_up_to.map(|wait| wait.min(Charge::MAX_WAIT).as_micros() as u64);
        Self { quota: charge.quota, cost: charge.cost, wait_up_to: wait }
    }

    fn is_long(&self) -> bool {
        self.quota.algorithm() == Algorithm::SlidingLog && self.quota.max() > LONG
    }

    /// How long the cost, the whole budget and one unit take to come back, if the script may charge a bucket in
    /// one step. It may not where a place in a queue would be taken too late.
    fn in_whole_micros(&self) -> Option<[u64; 3]> {
        let (algorithm, max) = (self.quota.algorithm(), self.quota.max());
        let is_bucket = match algorithm {
            Algorithm::TokenBucket => true,
            Algorithm::LeakyBucket => self.wait_up_to.is_none(),
            _ => false,
        };
        let (units, _) = self.quota.rate();
        let fits = is_bucket && units == 1 && self.cost <= max;
        fits.then(|| [self.cost, max, 1].map(|cost| self.quota.time_of(cost).0))
    }

    fn pack(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.cost.to_le_bytes());
        push(bytes, self.wait_up_to.map_or(-1.0, |wait| wait as f64));
        for number in self.in_whole_micros().unwrap_or_default() {
            push(bytes, number as f64);
        }
        let head = head(&self.quota);
        let form = format!("<c{}I7", head.len());
        push_text(bytes, form.as_bytes());
        push_text(bytes, &head);
    }
}

impl Call {
    /// The packed question. `now` is the time to decide at, if it is not to be the server's.
    pub(crate) fn pack(&self, deadline: Option<Timestamp>, now: Option<Timestamp>) -> Vec<u8> {
        let grouped = &self.groups[self.in_runs..];
        let mut bytes =
            Vec::with_capacity(32 + 32 * self.terms.len() + 8 * self.runs.len() + 16 * grouped.len());
        push_times(&mut bytes, deadline, now);
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.push(self.terms.iter().any(Term::is_long).into());
        for count in [self.terms.len(), self.runs.len(), grouped.len()] {
            push_u16(&mut bytes, count);
        }
        for term in &self.terms {
            term.pack(&mut bytes);
        }
        for run in &self.runs {
            let times = self.times(run);
            // Lua counts from one.
            push_u16(&mut bytes, usize::from(run.term) + 1);
            push_u16(&mut bytes, run.first + 1);
            push_u16(&mut bytes, run.first + run.groups.len());
            bytes.push(times.is_some().into());
            times.into_iter().flatten().for_each(|times| push_u16(&mut bytes, times));
        }
        for group in grouped {
            push_u16(&mut bytes, group.members.len());
            push_u16(&mut bytes, group.charges.len());
            for (counter, term) in &group.charges {
                push_u16(&mut bytes, usize::from(*counter) + 1);
                push_u16(&mut bytes, usize::from(*term) + 1);
            }
        }
        bytes
    }

    /// How many requests there are in each group of a run, if any group has several.
    fn times(&self, run: &Run) -> Option<impl ExactSizeIterator<Item = usize>> {
        let groups = &self.groups[run.groups.clone()];
        let several = groups.iter().any(|group| group.members.len() > 1);
        several.then(|| groups.iter().map(|group| group.members.len()))
    }
}

/// What every question begins with.
pub(crate) fn push_times(bytes: &mut Vec<u8>, deadline: Option<Timestamp>, now: Option<Timestamp>) {
    for moment in [deadline, now] {
        push(bytes, moment.map_or(0.0, |moment| moment.as_micros() as f64));
    }
}

/// The identity of a quota. An invalid quota has none.
pub(crate) fn head(quota: &Quota) -> Vec<u8> {
    if quota.max() == 0 { Vec::new() } else { codec::head(quota) }
}

/// A text with its length.
pub(crate) fn push_text(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.push(text.len() as u8);
    bytes.extend_from_slice(text);
}

pub(crate) fn push(bytes: &mut Vec<u8>, number: f64) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

pub(crate) fn push_u16(bytes: &mut Vec<u8>, number: usize) {
    bytes.extend_from_slice(&(number as u16).to_le_bytes());
}
