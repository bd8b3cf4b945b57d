//! A request whose counters live in several slots of a cluster, or in one that is moving from one node to
//! another.
//!
//! No script sees all of them. So each part is charged separately, and if one denies, the others are given
//! back. For a moment too little may be admitted, and never too much. A part that is answered too late is
//! given back when the answer comes, if the request was denied (`whole.rs`).
//!
//! If a part fails and none denies, what the others have charged stays charged, as the request's rules may
//! let it through. Otherwise a rule whose node works would not be enforced while the node of another fails.
//!
//! The parts are the slots. While a slot is moving, some of its counters are on one node and some on the
//! other, and a node does none of a call that is about both. Then each counter is a part.
//!
//! A place in the queue of a leaky bucket can be given back only by the last in line. So a part that has one
//! is only peeked at along with the others, and charged once none of these has denied. If the peek says that it
//! denies, it is charged nevertheless, and before any other such part: a peek changes nothing, and it is the
//! denial that brings a counter to a changed quota or clock.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ratekeeper_core::algorithm::{self, Counter};
use ratekeeper_core::{Algorithm, Decision, Outcome, RuleName, StoreError, Timestamp};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::cluster::{PendingReply, make};
use crate::request::late_parts::Whole;
use crate::request::totals::FEW;
use crate::request::verdict::Verdict;
use crate::request::{Apart, Ask, Charges, Decided, Kind, OwnCharge, Told};
use crate::store::Links;

/// The parts of a request.
#[derive(Debug)]
pub(crate) struct MultiSlot {
    parts: Vec<Part>,
    /// For each charge, its part and its place there.
    order: Vec<(usize, usize)>,
    /// Where to ask, and where to give back.
    links: Links,
    /// For parts that answer too late.
    whole: Arc<Whole>,
    /// When the caller stops waiting.
    deadline: Instant,
    /// Whether nothing is charged.
    peek: bool,
}

/// The charges of one slot, or of one counter.
#[derive(Debug)]
struct Part {
    charges: Charges,
    state: State,
    /// The question that charges them, if so far they were only peeked at.
    next: Option<(Ask, PendingReply<Told>)>,
}

#[derive(Debug)]
enum State {
    Pending(PendingReply<Told>),
    Answered(Result<Decided, StoreError>),
    /// Passed on, or given back.
    Done,
}

/// Whether these charges are made only after all others.
fn go_last(charges: &Charges) -> bool {
    charges.iter().any(|charge| charge.quota.algorithm() == Algorithm::LeakyBucket)
}

impl Part {
    fn decided(&self) -> Option<&Decided> {
        match &self.state {
            State::Answered(Ok(decided)) => Some(decided),
            _ => None,
        }
    }

    fn failed(&self) -> Option<&StoreError> {
        match &self.state {
            State::Answered(Err(error)) => Some(error),
            _ => None,
        }
    }

    /// The outcome of one of the charges, and when it was decided.
    fn told(&self, place: usize, admitted: bool, at: Timestamp) -> Option<(RuleName, Outcome, Timestamp)> {
        let Some(decided) = self.decided() else {
            // Unknown. Another part has denied, so it matters little.
            let charge = self.charges.get(place)?.by_ref();
            let outcome = Counter::new(charge.quota).peek(charge.quota, algorithm::Ask::of(&charge), at);
            return Some((charge.rule, outcome, at));
        };
        // A denial reports budgets as they were, because what was taken from them is given back.
        if let Some(before) = decided.before.as_ref().filter(|_| !admitted) {
            return before.outcomes().nth(place).map(|(rule, outcome)| (rule, *outcome, before.at()));
        }
        decided.verdict.outcome(place).map(|(rule, outcome)| (rule, outcome, decided.verdict.at()))
    }
}

impl MultiSlot {
    /// Asks about the parts of a request. `order`: for each charge, its part and its place there.
    pub(crate) fn ask(
        groups: Vec<Charges>,
        order: Vec<(usize, usize)>,
        links: Links,
        deadline: Instant,
        peek: bool,
    ) -> Self {
        let whole = Arc::new(Whole::new());
        let mut several =
            Self { parts: Vec::with_capacity(groups.len()), order, links, whole, deadline, peek };
        for charges in groups {
            let part = several.part(charges);
            several.parts.push(part);
        }
        several
    }

    /// Asks about each counter of a request separately.
    pub(crate) fn divided(Apart { charges, deadline, peek }: Apart, links: Links) -> Self {
        let (groups, order) = by(charges, |charge| charge.counter);
        Self::ask(groups, order, links, deadline, peek)
    }

    /// Asks about a part. One that goes last is peeked at now, and charged later.
    fn part(&self, charges: Charges) -> Part {
        let about = |peek: bool| {
            let (charges, whole) = (charges.clone(), Arc::clone(&self.whole));
            make(self.deadline, |reply| Kind::about(charges, peek, Some(whole), reply))
        };
        let goes_last = !self.peek && go_last(&charges);
        let (ask, asking) = about(self.peek || goes_last);
        let next = goes_last.then(|| about(false));
        self.links.put(ask);
        Part { charges, state: State::Pending(asking), next }
    }

    /// Replaces a part by one part for each of its counters.
    fn divide(&mut self, part: usize, charges: Charges) {
        let (groups, places) = by(charges, |charge| charge.counter);
        // The first takes the place of the divided part, the others go to the end.
        let after = self.parts.len() - 1;
        for (of, place) in self.order.iter_mut().filter(|(of, _)| *of == part) {
            let (group, within) = places[*place];
            (*of, *place) = (if group == 0 { part } else { after + group }, within);
        }
        for (group, charges) in groups.into_iter().enumerate() {
            let new = self.part(charges);
            if group == 0 {
                self.parts[part] = new;
            } else {
                self.parts.push(new);
            }
        }
    }

    fn is_admitted(&self) -> bool {
        self.parts.iter().all(|part| part.decided().is_some_and(|decided| decided.verdict.is_admitted()))
    }

    /// Charges the parts that were only peeked at, if none of the others has denied. Returns whether there
    /// were any.
    fn go_on(&mut self) -> bool {
        let denies = |part: &Part| part.decided().is_some_and(|decided| !decided.verdict.is_admitted());
        let is_over = |part: &Part| part.next.is_none() && denies(part);
        if self.peek || self.parts.iter().any(is_over) {
            return false;
        }
        // A part that failed because its time was up leaves none for another question.
        if self.parts.iter().any(|part| part.failed().is_some()) && Instant::now() >= self.deadline {
            return false;
        }
        let any_denies = self.parts.iter().any(denies);
        let goes_now = |part: &&mut Part| part.decided().is_some() && (!any_denies || denies(part));
        let mut goes_on = false;
        for part in self.parts.iter_mut().filter(goes_now) {
            if let Some((ask, asking)) = part.next.take() {
                self.links.put(ask);
                part.state = State::Pending(asking);
                goes_on = true;
            }
        }
        goes_on
    }

    /// Combines the answers of the parts. If one denies a charge, that is a denial, whatever happened to the
    /// others. If none does and one fails, the request may be let through, and stays charged where it was.
    fn finish(&mut self) -> Result<Decision, StoreError> {
        let decided = || self.parts.iter().filter_map(Part::decided).map(|decided| &decided.verdict);
        let (admitted, denied) = (self.is_admitted(), decided().any(|verdict| !verdict.is_admitted()));
        let failed = self.parts.iter().find_map(Part::failed).filter(|_| self.peek || !denied).cloned();
        let at = decided().map(Verdict::at).max().unwrap_or_default();
        let mut decision = Decision::new(at);
        for (part, place) in &self.order {
            if let Some((rule, outcome, at)) = self.parts[*part].told(*place, admitted, at) {
                decision.push_at(rule, outcome, at);
            }
        }
        if admitted || failed.is_some() {
            self.whole.is_over();
            self.parts.iter_mut().for_each(|part| part.state = State::Done);
        } else {
            self.give_back();
        }
        failed.map_or(Ok(decision), Err)
    }

    /// Gives back what was charged, including what was answered too late or never looked at.
    fn give_back(&mut self) {
        self.whole.undo().into_iter().for_each(|ask| self.links.put(ask));
        for part in &mut self.parts {
            let answer = match std::mem::replace(&mut part.state, State::Done) {
                State::Pending(asking) => match asking.cancel() {
                    Some(Told::Decided(decided)) => Some(decided),
                    Some(Told::Apart(_)) | None => None,
                },
                State::Answered(answer) => answer.ok(),
                State::Done => None,
            };
            if let Some(decided) = answer {
                decided.give_back().into_iter().for_each(|ask| self.links.put(ask));
            }
        }
    }
}

impl Future for MultiSlot {
    type Output = Result<Decision, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let mut waiting = false;
            let mut next = 0;
            // Dividing a part appends more of them.
            while let Some(part) = self.parts.get_mut(next) {
                if let State::Pending(asking) = &mut part.state {
                    match Pin::new(asking).poll(cx) {
                        Poll::Ready(Ok(Told::Decided(decided))) => part.state = State::Answered(Ok(decided)),
                        Poll::Ready(Ok(Told::Apart(apart))) => {
                            self.divide(next, apart.charges);
                            continue;
                        }
                        Poll::Ready(Err(error)) => part.state = State::Answered(Err(error)),
                        Poll::Pending => waiting = true,
                    }
                }
                next += 1;
            }
            if waiting {
                return Poll::Pending;
            }
            if !self.go_on() {
                return Poll::Ready(self.finish());
            }
        }
    }
}

impl Drop for MultiSlot {
    fn drop(&mut self) {
        // Charges that are not answered yet are given back where their answer arrives.
        self.give_back();
    }
}

/// Groups charges that may be asked together, and returns where each has gone.
pub(crate) fn by<K: Copy + Eq + Hash>(
    charges: Charges,
    group: impl Fn(&OwnCharge) -> K,
) -> (Vec<Charges>, Vec<(usize, usize)>) {
    let mut groups: SmallVec<[(K, Charges); 2]> = SmallVec::new();
    let mut order = Vec::with_capacity(charges.len());
    let mut many = (charges.len() > FEW).then(HashMap::new);
    for charge in charges {
        let (key, next) = (group(&charge), groups.len());
        let at = match &mut many {
            Some(many) => *many.entry(key).or_insert(next),
            None => groups.iter().position(|(known, _)| *known == key).unwrap_or(next),
        };
        if at == next {
            groups.push((key, Charges::new()));
        }
        order.push((at, groups[at].1.len()));
        groups[at].1.push(charge);
    }
    (groups.into_iter().map(|(_, charges)| charges).collect(), order)
}
