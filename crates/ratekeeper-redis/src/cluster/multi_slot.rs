//! A request whose counters live in several slots of a cluster, or in one that is moving from one node to
//! another.
//!
//! No script sees all of them. So each part is charged separately, and if one denies, the others are given
//! back. For a moment too little may be admitted, and never too much. What cannot be given back stays charged:
//! a part whose answer comes too late, and a place in the queue of a leaky bucket that others stand behind.
//!
//! If a part fails and none denies, what the others have charged stays charged, as the request's rules may
//! let it through. Otherwise a rule whose node works would not be enforced while the node of another fails.
//!
//! The parts are the slots. While a slot is moving, some of its counters are on one node and some on the
//! other, and a node does none of a call that is about both. Then each counter is a part.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll};

use ratekeeper_core::algorithm::{self, Counter};
use ratekeeper_core::{Decision, Outcome, RuleName, StoreError, Timestamp};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::connections::Connections;
use crate::request::pending::{PendingReply, make};
use crate::request::{Answer, Charges, Decided, Intent, Kind, OwnCharge, Split};

/// The parts of a request.
#[derive(Debug)]
pub(crate) struct MultiSlot {
    parts: Vec<Part>,
    /// For each charge, its part and its place there.
    order: Vec<(usize, usize)>,
    /// Where to ask, and where to give back.
    connections: Connections,
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
}

#[derive(Debug)]
enum State {
    Pending(PendingReply<Answer>),
    Answered(Result<Decided, StoreError>),
    /// Passed on, or given back.
    Done,
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
        let decision = &decided.decision;
        decision.outcomes().nth(place).map(|(rule, outcome)| (rule, *outcome, decision.at()))
    }
}

impl MultiSlot {
    /// Asks about the parts of a request. `order`: for each charge, its part and its place there.
    pub(crate) fn ask(
        groups: Vec<Charges>,
        order: Vec<(usize, usize)>,
        connections: Connections,
        deadline: Instant,
        peek: bool,
    ) -> Self {
        let mut several =
            Self { parts: Vec::with_capacity(groups.len()), order, connections, deadline, peek };
        for charges in groups {
            let part = several.part(charges);
            several.parts.push(part);
        }
        several
    }

    /// Asks about each counter of a request separately.
    pub(crate) fn divided(Split { charges, deadline, peek }: Split, connections: Connections) -> Self {
        let (groups, order) = by(charges, |charge| charge.counter);
        Self::ask(groups, order, connections, deadline, peek)
    }

    /// Asks about a part.
    fn part(&self, charges: Charges) -> Part {
        let intent = if self.peek { Intent::Peek } else { Intent::ChargePart };
        let charge = |reply| Kind::Charge { charges: charges.clone(), intent, reply: Some(reply) };
        let (ask, pending) = make(self.deadline, charge);
        self.connections.put(ask);
        Part { charges, state: State::Pending(pending) }
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
        self.parts.iter().all(|part| part.decided().is_some_and(|decided| decided.decision.is_admitted()))
    }

    /// Combines the answers of the parts. If one denies a charge, that is a denial, whatever happened to the
    /// others. If none does and one fails, the request may be let through, and stays charged where it was.
    fn finish(&mut self) -> Result<Decision, StoreError> {
        let decided = || self.parts.iter().filter_map(Part::decided).map(|decided| &decided.decision);
        let (admitted, denied) = (self.is_admitted(), decided().any(|decision| !decision.is_admitted()));
        let failed = self.parts.iter().find_map(Part::failed).filter(|_| self.peek || !denied).cloned();
        let at = decided().map(Decision::at).max().unwrap_or_default();
        let mut decision = Decision::new(at);
        for (part, place) in &self.order {
            if let Some((rule, outcome, at)) = self.parts[*part].told(*place, admitted, at) {
                decision.push_at(rule, outcome, at);
            }
        }
        if admitted || failed.is_some() {
            self.parts.iter_mut().for_each(|part| part.state = State::Done);
        } else {
            self.give_back();
        }
        failed.map_or(Ok(decision), Err)
    }

    /// Gives back what was charged, including what was never looked at.
    fn give_back(&mut self) {
        for part in &mut self.parts {
            let answer = match std::mem::replace(&mut part.state, State::Done) {
                State::Pending(asking) => match asking.cancel() {
                    Some(Answer::Decided(decided)) => Some(decided),
                    Some(Answer::Split(_)) | None => None,
                },
                State::Answered(answer) => answer.ok(),
                State::Done => None,
            };
            if let Some(decided) = answer {
                decided.give_back().into_iter().for_each(|ask| self.connections.put(ask));
            }
        }
    }
}

impl Future for MultiSlot {
    type Output = Result<Decision, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut waiting = false;
        let mut next = 0;
        // Dividing a part appends more of them.
        while let Some(part) = self.parts.get_mut(next) {
            if let State::Pending(pending) = &mut part.state {
                match Pin::new(pending).poll(cx) {
                    Poll::Ready(Ok(Answer::Decided(decided))) => part.state = State::Answered(Ok(decided)),
                    Poll::Ready(Ok(Answer::Split(split))) => {
                        self.divide(next, split.charges);
                        continue;
                    }
                    Poll::Ready(Err(error)) => part.state = State::Answered(Err(error)),
                    Poll::Pending => waiting = true,
                }
            }
            next += 1;
        }
        if waiting { Poll::Pending } else { Poll::Ready(self.finish()) }
    }
}

impl Drop for MultiSlot {
    fn drop(&mut self) {
        // Charges that are not answered yet are given back where their answer arrives.
        self.give_back();
    }
}

/// Up to this many charges are compared one by one.
const FEW: usize = 8;

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
