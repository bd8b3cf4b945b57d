//! What keeps a fixed window at its pace while another quota is in use.

use super::full_at::FullAt;
use super::{Basis, Used, bucket};
use crate::quota::Span;
use crate::{Algorithm, Timestamp};

/// What a fixed window may admit while another quota is in use on the same key.
///
/// At its edge a window forgets everything that was admitted, even if that was a moment ago and under another
/// quota. Combined with a bucket that is used up and cannot count what the window admits, both together would
/// admit twice what each allows, in window after window. So a window is also counted as a bucket. It holds
/// twice the limit, which is what a window by itself admits around an edge, and the limit comes back in a
/// period. If the bucket has no room, the window admits only what the other quota would admit as well.
///
/// There is no guard until both quotas are known. Then it begins as if the window before had admitted all
/// that it may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Guard(pub(super) FullAt);

/// The rate at which a window's limit comes back, not in lowest terms: as many parts make a microsecond as
/// the limit has units.
const fn rate(window: &Basis, limit: u32) -> Basis {
    Basis { algorithm: Algorithm::TokenBucket, units: limit, micros: window.micros }
}

const fn fill(window: &Basis) -> Span {
    Span { micros: 2 * window.period(), parts: 0 }
}

impl Guard {
    pub(super) const fn is_none(self) -> bool {
        self.0.marked().0 == 0
    }

    /// A guard of which `used` is used.
    pub(super) fn seed(window: &Basis, limit: u32, used: Used, now: Timestamp) -> Self {
        let mut full_at = FullAt::default();
        full_at.set(bucket::span_of_used(&rate(window, limit), used).min(fill(window)), now, false);
        Self(full_at)
    }

    fn left(self, window: &Basis, now: Timestamp) -> Span {
        self.0.left(now).min(fill(window))
    }

    /// Remembers that the clock was set back: if it is full only later than possible, it is counted from now.
    pub(super) fn settle(&mut self, window: &Basis, now: Timestamp) {
        if self.0.left(now) > fill(window) {
            self.0.set(fill(window), now, false);
        }
    }

    /// Counts what was admitted, up to what it holds.
    pub(super) fn press(&mut self, window: &Basis, limit: u32, cost: u32, now: Timestamp) {
        if self.is_none() {
            return;
        }
        let more = bucket::span(&rate(window, limit), cost).min(fill(window));
        let after = bucket::add(self.left(window, now), more, limit);
        self.0.set(after.min(fill(window)), now, false);
    }

    /// Gives back what was taken off the window's count.
    pub(super) fn give_back(&mut self, window: &Basis, limit: u32, units: u32, now: Timestamp) {
        if !self.is_none() && units > 0 {
            let left = self.left(window, now);
            let back = bucket::span(&rate(window, limit), units).min(left);
            self.0.set(bucket::sub(left, back, limit), now, false);
        }
    }

    /// How long until `cost` fits, in microseconds.
    pub(super) fn wait(self, window: &Basis, limit: u32, cost: u32, now: Timestamp) -> u64 {
        let after = bucket::add(self.left(window, now), bucket::span(&rate(window, limit), cost), limit);
        if after <= fill(window) { 0 } else { bucket::ceil(bucket::sub(after, fill(window), limit)) }
    }

    /// How much fits.
    pub(super) fn room(self, window: &Basis, limit: u32, now: Timestamp) -> u32 {
        let room = bucket::sub(fill(window), self.left(window, now), limit);
        let parts = u128::from(room.micros) * u128::from(limit) + u128::from(room.parts);
        u32::try_from(parts / u128::from(window.period())).unwrap_or(u32::MAX)
    }
}
