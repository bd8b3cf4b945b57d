//! What waits for a connection.

use std::collections::{HashMap, VecDeque};

use ratekeeper_core::StoreError;
use tokio::time::Instant;

use crate::name::Counted;
use crate::request::Ask;

/// How many requests may stay behind settlements, and how many settlements there may be for any to do so. One
/// go makes this many settlements.
const FEW: usize = 32;

/// What is taken out of the line.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) first: Vec<Ask>,
    /// Those that are too late.
    pub(crate) late: Vec<Ask>,
    /// How many were left behind settlements that come before them.
    pub(crate) left_behind: usize,
}

/// What waits, in the order in which it is sent.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    asks: VecDeque<Ask>,
    /// Settlements wait separately: no incoming request waits for them, and they are kept while Redis fails.
    settlements: VecDeque<Ask>,
    /// How many of these are about a counter, by its hash.
    unsettled: HashMap<u64, u32>,
    /// No request's time is up before this moment. It may be too early, since it is not updated whenever one
    /// leaves.
    earliest: Option<Instant>,
    /// How many have to wait for the task to be woken. It looks by itself when an answer arrives.
    pub(crate) wake_at: usize,
    /// When the task next looks for requests whose time is up; `None` if it does not. A request with an
    /// earlier deadline has to wake it.
    pub(crate) alarm: Option<Instant>,
    /// Whether the task is to be woken for a settlement.
    pub(crate) wake_to_settle: bool,
    /// Nothing more arrives.
    pub(crate) closed: bool,
    /// The task has ended, and nothing takes what waits.
    pub(crate) ended: bool,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.asks.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.asks.is_empty()
    }

    pub(crate) fn push_back(&mut self, ask: Ask) {
        if let Some(settlement) = ask.settlement() {
            *self.unsettled.entry(settlement.counter.hash).or_default() += 1;
            return self.settlements.push_back(ask);
        }
        self.note(ask.deadline);
        self.asks.push_back(ask);
    }

    pub(crate) fn push_front(&mut self, ask: Ask) {
        if let Some(settlement) = ask.settlement() {
            *self.unsettled.entry(settlement.counter.hash).or_default() += 1;
            return self.settlements.push_front(ask);
        }
        self.note(ask.deadline);
        self.asks.push_front(ask);
    }

    /// How many settlements wait.
    pub(crate) fn unsettled(&self) -> usize {
        self.settlements.len()
    }

    /// Takes the first settlements, at most `most`.
    pub(crate) fn take_settlements(&mut self, most: usize) -> Vec<Ask> {
        let count = self.settlements.len().min(most);
        let taken: Vec<_> = self.settlements.drain(..count).collect();
        for settlement in taken.iter().filter_map(Ask::settlement) {
            let hash = settlement.counter.hash;
            match self.unsettled.get_mut(&hash) {
                Some(others @ 2..) => *others -= 1,
                _ => drop(self.unsettled.remove(&hash)),
            }
        }
        taken
    }

    /// Whether it is about a counter for which a settlement waits.
    fn is_behind(&self, ask: &Ask) -> bool {
        if self.unsettled.is_empty() {
            return false;
        }
        let waits = |counter: &Counted| self.unsettled.contains_key(&counter.hash);
        ask.changed().is_some_and(waits)
            || ask.charges().is_some_and(|charges| charges.iter().any(|charge| waits(&charge.counter)))
    }

    /// Tells callers that wait for a settlement that it is not made yet. It is kept nevertheless.
    pub(crate) fn put_off(&mut self, error: &StoreError) {
        self.settlements.iter_mut().for_each(|ask| ask.expire(error));
    }

    /// Forgets how often settlements were sent without being made.
    pub(crate) fn reset_attempts(&mut self) {
        self.settlements.iter_mut().for_each(|ask| ask.attempts = 0);
    }

    /// Takes the first requests, at most `most`. Separately returns those among them whose time is up at
    /// `by`. Requests whose caller has gone are dropped, and not charged at all.
    ///
    /// A request about a counter for which a settlement waits stays behind it, unless its time is up before
    /// `hurry`. But only a few requests do so, and only while there are few settlements, all of which go
    /// next. Where there are many, no request is to fail for the sake of the order.
    pub(crate) fn take(&mut self, most: usize, by: Instant, hurry: Instant) -> Taken {
        let may_stay = if self.settlements.len() <= FEW { FEW } else { 0 };
        let mut taken = Taken { first: Vec::with_capacity(self.asks.len().min(most)), ..Taken::default() };
        let mut behind = Vec::new();
        while taken.first.len() < most {
            match self.asks.pop_front() {
                Some(ask) if ask.deadline <= by => taken.late.push(ask),
                Some(ask) if ask.is_abandoned() => {}
                Some(ask) if behind.len() < may_stay && ask.deadline > hurry && self.is_behind(&ask) => {
                    behind.push(ask);
                }
                Some(ask) => taken.first.push(ask),
                None => break,
            }
        }
        taken.left_behind = behind.len();
        behind.into_iter().rev().for_each(|ask| self.asks.push_front(ask));
        taken
    }

    pub(crate) fn take_all(&mut self) -> VecDeque<Ask> {
        self.earliest = None;
        std::mem::take(&mut self.asks)
    }

    /// Takes those whose time is up, wherever they are: a reset may wait for longer than a charge behind it.
    pub(crate) fn take_late(&mut self, now: Instant) -> Vec<Ask> {
        if self.earliest.is_none_or(|earliest| earliest > now) {
            return Vec::new();
        }
        let (late, in_time): (Vec<_>, Vec<_>) =
            self.take_all().into_iter().partition(|ask| ask.deadline <= now);
        self.earliest = in_time.iter().map(|ask| ask.deadline).min();
        self.asks = VecDeque::from(in_time);
        late
    }

    /// Whether the task would look too late for a request with this deadline.
    pub(crate) fn is_before_alarm(&self, deadline: Instant) -> bool {
        self.alarm.is_some_and(|alarm| deadline < alarm)
    }

    /// When to look for requests whose time is up; `None` if none wait.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.earliest.filter(|_| !self.asks.is_empty())
    }

    fn note(&mut self, deadline: Instant) {
        if self.asks.is_empty() || self.earliest.is_none_or(|earliest| deadline < earliest) {
            self.earliest = Some(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratekeeper_core::{Key, KeyRef, RuleName};

    use super::*;
    use crate::name::Names;
    use crate::request::Kind;
    use crate::request::settlement::{Settlement, What};

    #[test]
    fn whoever_is_late_is_found_wherever_it_stands() {
        let (key, rule) = (Key::from("key"), RuleName::new("rule").unwrap());
        let names = Names::new("test", false);
        let ask = |millis| {
            let counter = Box::new(names.counted(rule, KeyRef::from(&key)));
            Ask::new(Kind::Reset { counter, reply: None }, Instant::now() + Duration::from_millis(millis))
        };
        let mut queue = Queue::default();
        assert_eq!(queue.next_deadline(), None);
        queue.push_back(ask(1_000_000));
        queue.push_back(ask(1_000));
        queue.push_front(ask(3_000_000));
        let now = Instant::now();
        assert!(queue.take_late(now).is_empty());
        assert!(queue.next_deadline().unwrap() <= now + Duration::from_secs(1));
        assert_eq!(queue.take_late(now + Duration::from_secs(1)).len(), 1);
        let Taken { first, late, .. } = queue.take(1, now, now);
        assert!(first.len() == 1 && first[0].deadline > now + Duration::from_secs(2_000) && late.is_empty());
        let Taken { first, late, .. } = queue.take(1, now + Duration::from_secs(2_000), now);
        assert!(first.is_empty() && late.len() == 1);
        assert_eq!(queue.next_deadline(), None);
        // Those that have left no longer matter.
        queue.push_back(ask(5_000_000));
        assert!(queue.next_deadline().unwrap() > now + Duration::from_secs(4_000));
    }

    #[test]
    fn whoever_asks_about_a_counter_stays_behind_what_is_settled_before() {
        let rule = RuleName::new("rule").unwrap();
        let names = Names::new("test", false);
        let counter = |key: &str| Box::new(names.counted(rule, KeyRef::from(&Key::from(key))));
        let now = Instant::now();
        let deadline = now + Duration::from_secs(10);
        let reset = |key| Ask::new(Kind::Reset { counter: counter(key), reply: None }, deadline);
        let refund = |key| {
            let what = What::Refund { cost: 1, receipt: None };
            let settlement = Box::new(Settlement { counter: *counter(key), what });
            Ask::new(Kind::Settle { settlement, reply: None }, deadline)
        };
        let mut queue = Queue::default();
        ["a", "b", "a"].into_iter().for_each(|key| queue.push_back(refund(key)));
        ["a", "c", "b", "a"].into_iter().for_each(|key| queue.push_back(reset(key)));
        let keys = |taken: &Taken| -> Vec<Key> {
            taken.first.iter().filter_map(|ask| Some(ask.changed()?.key)).collect()
        };
        let taken = queue.take(10, now, now);
        assert_eq!((keys(&taken), taken.left_behind, queue.len()), (vec![Key::from("c")], 3, 3));
        // Two are settled, one of which was the only one of its counter.
        assert_eq!(queue.take_settlements(2).len(), 2);
        let taken = queue.take(10, now, now);
        assert_eq!((keys(&taken), taken.left_behind), (vec![Key::from("b")], 2));
        // A request that has no time to lose does not wait for it.
        let first = queue.take(1, now, deadline);
        assert_eq!((keys(&first), queue.len()), (vec![Key::from("a")], 1));
        assert_eq!(queue.take_settlements(10).len(), 1);
        let taken = queue.take(10, now, now);
        assert_eq!((keys(&taken), taken.left_behind), (vec![Key::from("a")], 0));
        // Nor does any request if many are settled, or many ask.
        (0..=FEW).for_each(|_| queue.push_back(refund("a")));
        queue.push_back(reset("a"));
        assert_eq!(queue.take(10, now, now).first.len(), 1);
        assert_eq!(queue.take_settlements(FEW).len(), FEW);
        (0..FEW + 5).for_each(|_| queue.push_back(reset("a")));
        let taken = queue.take(100, now, now);
        assert_eq!((taken.first.len(), taken.left_behind, queue.len()), (5, FEW, FEW));
    }
}
