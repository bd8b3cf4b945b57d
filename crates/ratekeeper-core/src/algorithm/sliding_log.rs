//! The sliding log: every admission is remembered for one period, so that at most the limit is admitted in
//! every trailing period, exactly.

use std::collections::VecDeque;

use super::{Basis, Used};
use crate::decision::Budget;
use crate::{Outcome, Quota, Receipt, Timestamp};

/// A log of at most this many admissions is allocated all at once. A longer one grows as needed, so that
/// callers who come once do not cost the memory of those who come often.
const WHOLE: u32 = 8;

/// How many admissions under another quota a log remembers until somebody asks under its own quota again and
/// it is known how many matter.
const MOST_BESIDE: usize = 1_024;

/// The admissions of the last period, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
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

/// Logs an admission of `cost` if it fits.
pub fn charge(state: &mut State, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
    state.move_to(quota.period_micros(), now);
    let outcome = state.outcome(quota, cost, now);
    if !outcome.is_admitted() || cost == 0 {
        return outcome;
    }
    state.push(quota, cost, now.as_micros());
    Outcome::admit(state.budget(quota, now), 0)
}

/// What [`charge`] would answer.
#[must_use]
pub fn peek(state: &State, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
    state.outcome(quota, cost, now)
}

/// Logs `cost`, whether or not it fits: at the receipt's moment if something is logged there, else now.
pub fn debit(state: &mut State, quota: &Quota, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
    state.move_to(quota.period_micros(), now);
    // A store may keep the cost of the whole log in 32 bits.
    let cost = u64::from(cost).min(u64::from(u32::MAX).saturating_sub(state.total)) as u32;
    if cost == 0 {
        return;
    }
    let at = receipt.map(|receipt| receipt.at().as_micros());
    match state.entries.iter_mut().rfind(|entry| Some(entry.at()) == at) {
        Some(entry) => {
            // This cannot overflow: the cost of the whole log fits.
            entry.cost += cost;
            state.total += u64::from(cost);
        }
        None => state.push(quota, cost, now.as_micros()),
    }
}

/// Removes `cost` from the admissions at the receipt's moment, or from the newest.
pub fn refund(state: &mut State, quota: &Quota, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
    state.refund(&Basis::of(quota), cost, receipt, now);
}

impl State {
    /// Whether an entry is yet to come: then the clock was set back.
    pub(crate) fn is_ahead_of(&self, now: Timestamp) -> bool {
        self.entries.back().is_some_and(|newest| newest.at() > now.as_micros())
    }

    /// Does what a denied charge does.
    pub(crate) fn settle(&mut self, quota: &Quota, now: Timestamp) {
        self.move_to(quota.period_micros(), now);
    }

    /// An entry that is yet to come means that the clock was set back; its moment becomes now.
    fn set_back(&mut self, now: u64) {
        for entry in self.entries.iter_mut().rev().take_while(|entry| entry.at() > now) {
            *entry = Entry::new(now, entry.cost);
        }
    }

    /// Drops what has left the trailing period.
    pub(crate) fn move_to(&mut self, period: u64, now: Timestamp) {
        let now = now.as_micros();
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

    fn count(&self, period: u64, now: u64) -> u64 {
        let gone = self.entries.iter().take_while(|entry| has_left(entry.at(), period, now));
        self.total - gone.map(|entry| u64::from(entry.cost)).sum::<u64>()
    }

    fn budget(&self, quota: &Quota, now: Timestamp) -> Budget {
        let now = now.as_micros();
        let period = quota.period_micros();
        let until_left = |at: u64| leaves_at(at, period) - now;
        let count = self.count(period, now);
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

    fn outcome(&self, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
        let budget = self.budget(quota, now);
        if cost > quota.max() {
            Outcome::never(budget)
        } else if cost <= budget.remaining {
            Outcome::admit(budget, 0)
        } else {
            let now = now.as_micros();
            Outcome::deny(budget, self.retry(quota, self.count(quota.period_micros(), now), cost, now))
        }
    }

    pub(crate) fn seed(quota: &Quota, used: Used, now: Timestamp) -> Self {
        let mut state = Self::default();
        if used.ceil() > 0 {
            state.push(quota, used.ceil(), now.as_micros());
        }
        state
    }

    /// Logs what was admitted under another quota. What is above `max` need not be remembered, as the oldest
    /// leave first. If `max` is unknown, at most [`MOST_BESIDE`] admissions are remembered.
    pub(crate) fn press(&mut self, basis: &Basis, max: u32, cost: u32, now: Timestamp) {
        self.move_to(basis.period(), now);
        let at = now.as_micros();
        let cost = if max == 0 { cost } else { cost.min(max) };
        let most = if max == 0 { u64::from(u32::MAX) } else { u64::from(max) };
        self.drop_oldest((self.total + u64::from(cost)).saturating_sub(most));
        self.total += u64::from(cost);
        match self.entries.back_mut() {
            Some(newest) if newest.at() == at => newest.cost += cost,
            _ => self.entries.push_back(Entry::new(at, cost)),
        }
        if max == 0 && self.entries.len() > MOST_BESIDE {
            let oldest = self.entries.front().map_or(0, |entry| entry.cost);
            self.drop_oldest(oldest.into());
        }
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

    /// Until when anything counts.
    pub(crate) fn counts_until(&self, basis: &Basis) -> u64 {
        self.expires_at(basis)
    }

    pub(crate) fn used(&self, basis: &Basis, now: Timestamp) -> Used {
        Used::units(self.count(basis.period(), now.as_micros()))
    }

    pub(crate) fn expires_at(&self, basis: &Basis) -> u64 {
        self.entries.back().map_or(0, |newest| leaves_at(newest.at(), basis.period()))
    }

    pub(crate) fn refund(&mut self, basis: &Basis, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
        self.move_to(basis.period(), now);
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
        let mut state = State::default();
        for micros in 0..10_000 {
            assert!(charge(&mut state, &quota, 1, Timestamp::from_micros(micros)).is_admitted());
        }
        assert!(state.entries.capacity() >= 10_000);
        for minute in 2..10 {
            assert!(charge(&mut state, &quota, 1, Timestamp::from_secs(minute * 59)).is_admitted());
        }
        assert!(state.entries.capacity() <= 16, "{}", state.entries.capacity());
    }
}
