//! The sliding log: every admission is remembered for one period, so that at most the limit is admitted in
//! every trailing period, exactly.

use std::collections::VecDeque;

use super::{Ask, Count};
use crate::decision::Budget;
use crate::{Outcome, Quota, Receipt, Timestamp};

/// A log of at most this many admissions is allocated all at once. A longer one grows as needed, so that
/// callers who come once do not cost the memory of those who come often.
const WHOLE: u32 = 8;

/// The admissions of the last period, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    entries: VecDeque<Entry>,
    /// The cost of all entries.
    total: u64,
}

// Two `u32` halves keep an entry at 12 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: [u32; 2],
    cost: u32,
}

impl Entry {
    const fn new(at: u64, cost: u32) -> Self {
        Self { at: [(at >> 32) as u32, at as u32], cost }
    }

    const fn at(self) -> u64 {
        (self.at[0] as u64) << 32 | self.at[1] as u64
    }
}

impl Log {
    pub(super) fn seed(quota: &Quota, cost: u32, now: Timestamp) -> Self {
        let mut log = Self::default();
        if cost > 0 {
            log.push(quota, cost, now.as_micros());
        }
        log
    }

    /// An entry that is yet to come means that the clock was set back; its moment becomes now.
    fn set_back(&mut self, now: u64) {
        for entry in self.entries.iter_mut().rev().take_while(|entry| entry.at() > now) {
            *entry = Entry::new(now, entry.cost);
        }
    }

    /// Drops what has left the trailing period.
    fn move_to(&mut self, quota: &Quota, now: Timestamp) {
        let (period, now) = (quota.period_micros(), now.as_micros());
        self.set_back(now);
        while let Some(oldest) = self.entries.front().filter(|entry| has_left(entry.at(), period, now)) {
            self.total -= u64::from(oldest.cost);
            self.entries.pop_front();
        }
        // A caller that came often once and has come seldom since does not keep the memory of that time.
        let (len, room) = (self.entries.len(), self.entries.capacity());
        if room > WHOLE as usize && len < room / 4 {
            self.entries.shrink_to(2 * len);
        }
    }

    fn push(&mut self, quota: &Quota, cost: u32, at: u64) {
        self.total += u64::from(cost);
        match self.entries.back_mut() {
            Some(newest) if newest.at() == at && newest.cost.checked_add(cost).is_some() => {
                newest.cost += cost;
            }
            _ => {
                if self.entries.capacity() == 0 && quota.max() <= WHOLE {
                    self.entries.reserve_exact(quota.max() as usize);
                }
                self.entries.push_back(Entry::new(at, cost));
            }
        }
    }

    /// A log of these entries: moments, oldest first, and costs.
    pub(crate) fn from_entries(entries: impl Iterator<Item = (u64, u32)>) -> Self {
        let entries: VecDeque<_> = entries.map(|(at, cost)| Entry::new(at, cost)).collect();
        let total = entries.iter().map(|entry| u64::from(entry.cost)).sum();
        Self { entries, total }
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, u32)> {
        self.entries.iter().map(|entry| (entry.at(), entry.cost))
    }

    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// What counts now, oldest first.
    fn live(&self, period: u64, now: u64) -> impl Iterator<Item = (u64, u32)> {
        self.entries
            .iter()
            .map(move |entry| (entry.at().min(now), entry.cost))
            .skip_while(move |(at, _)| has_left(*at, period, now))
    }

    /// The cost of what counts now.
    fn total_at(&self, period: u64, now: u64) -> u64 {
        let gone = self.entries.iter().take_while(|entry| has_left(entry.at(), period, now));
        self.total - gone.map(|entry| u64::from(entry.cost)).sum::<u64>()
    }

    fn budget(&self, quota: &Quota, now: Timestamp) -> Budget {
        let now = now.as_micros();
        let period = quota.period_micros();
        let until_left = |at: u64| leaves_at(at, period) - now;
        let count = self.total_at(period, now);
        let limit = u64::from(quota.max());
        Budget {
            limit: quota.max(),
            remaining: limit.saturating_sub(count) as u32,
            reset_micros: if count == 0 {
                0
            } else {
                self.entries.back().map_or(0, |newest| until_left(newest.at().min(now)))
            },
            refill_micros: if count > limit {
                self.retry(quota, count, 1, now)
            } else {
                self.live(period, now).next().map_or(0, |(oldest, _)| until_left(oldest))
            },
        }
    }

    /// How long until enough has left for `cost`, which is at most the limit, to fit.
    fn retry(&self, quota: &Quota, count: u64, cost: u32, now: u64) -> u64 {
        let mut excess = (count + u64::from(cost)).saturating_sub(u64::from(quota.max()));
        let period = quota.period_micros();
        for (at, cost) in self.live(period, now) {
            excess = excess.saturating_sub(u64::from(cost));
            if excess == 0 {
                return leaves_at(at, period) - now;
            }
        }
        0
    }

    /// Drops `units` units, the oldest first.
    fn drop_oldest(&mut self, mut units: u64) {
        self.total -= units.min(self.total);
        while let Some(oldest) = self.entries.front_mut().filter(|_| units > 0) {
            let dropped = units.min(oldest.cost.into());
            units -= dropped;
            oldest.cost -= dropped as u32;
            if oldest.cost == 0 {
                self.entries.pop_front();
            }
        }
    }
}

impl Count for Log {
    fn peek(&self, quota: &Quota, ask: Ask, now: Timestamp) -> Outcome {
        Outcome::of(self.budget(quota, now), ask.cost, || {
            let now = now.as_micros();
            self.retry(quota, self.total_at(quota.period_micros(), now), ask.cost, now)
        })
    }

    /// Logs `cost` at the receipt's moment if something is logged there, else now.
    fn debit(&mut self, quota: &Quota, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
        self.move_to(quota, now);
        // A store may keep the cost of the whole log in 32 bits.
        let cost = u64::from(cost).min(u64::from(u32::MAX).saturating_sub(self.total)) as u32;
        if cost == 0 {
            return;
        }
        let at = receipt.map(|receipt| receipt.at().as_micros());
        match self.entries.iter_mut().rfind(|entry| Some(entry.at()) == at) {
            Some(entry) => {
                // This cannot overflow: the cost of the whole log fits.
                entry.cost += cost;
                self.total += u64::from(cost);
            }
            None => self.push(quota, cost, now.as_micros()),
        }
    }

    /// Of what is above the limit, the oldest need not be remembered, as they leave first.
    fn count(&mut self, quota: &Quota, cost: u32, now: Timestamp) {
        self.move_to(quota, now);
        let cost = cost.min(quota.max());
        self.drop_oldest((self.total + u64::from(cost)).saturating_sub(quota.max().into()));
        self.push(quota, cost, now.as_micros());
    }

    /// Removes `cost` from the admissions at the receipt's moment, or from the newest.
    fn refund(&mut self, quota: &Quota, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
        self.move_to(quota, now);
        let mut left = cost;
        let at = receipt.map(|receipt| receipt.at().as_micros());
        for entry in self.entries.iter_mut().rev() {
            if at.is_none_or(|at| entry.at() == at) {
                let struck = left.min(entry.cost);
                entry.cost -= struck;
                self.total -= u64::from(struck);
                left -= struck;
            }
            if left == 0 || at.is_some_and(|at| entry.at() < at) {
                break;
            }
        }
        self.entries.retain(|entry| entry.cost > 0);
    }

    fn settle(&mut self, quota: &Quota, now: Timestamp) {
        if self.entries.back().is_some_and(|newest| newest.at() > now.as_micros()) {
            self.move_to(quota, now);
        }
    }

    fn cut(&mut self, quota: &Quota, now: Timestamp) {
        self.move_to(quota, now);
        self.drop_oldest(self.total.saturating_sub(quota.max().into()));
    }

    fn used(&self, quota: &Quota, now: Timestamp) -> f64 {
        self.total_at(quota.period_micros(), now.as_micros()) as f64
    }

    fn expires_at(&self, quota: &Quota) -> u64 {
        self.entries.back().map_or(0, |newest| leaves_at(newest.at(), quota.period_micros()))
    }
}

const fn has_left(at: u64, period: u64, now: u64) -> bool {
    leaves_at(at, period) <= now
}

/// Saturating, because a live log can be asked under an invalid quota.
const fn leaves_at(at: u64, period: u64) -> u64 {
    at.saturating_add(period)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_comes_seldom_keeps_no_memory_of_having_come_often() {
        let quota = Quota::sliding_log(10_000, Duration::from_secs(60));
        let mut state = Log::default();
        for micros in 0..10_000 {
            assert!(state.charge(&quota, 1.into(), Timestamp::from_micros(micros)).is_admitted());
        }
        assert!(state.entries.capacity() >= 10_000);
        for minute in 2..10 {
            assert!(state.charge(&quota, 1.into(), Timestamp::from_secs(minute * 59)).is_admitted());
        }
        assert!(state.entries.capacity() <= 16, "{}", state.entries.capacity());
    }
}
