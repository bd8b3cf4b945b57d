//! A request whose counters live in several slots of a cluster.
//!
//! No script sees them all. So each part is charged by itself, and if one denies or fails, the others are given back: a
//! moment too little may be admitted, and never too much.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use smallvec::SmallVec;
use tollgate_core::{Decision, StoreError};

use crate::request::{Charges, Decided};
use crate::store::{Asking, Links};

/// The parts of a request.
#[derive(Debug)]
pub(crate) struct Several {
    /// The charges of one slot each.
    parts: Vec<State>,
    /// For each charge, its part and its place there.
    order: Vec<(usize, usize)>,
    /// Where to give back.
    links: Links,
}

#[derive(Debug)]
pub(crate) enum State {
    Asking(Asking<Decided>),
    Answered(Result<Decided, StoreError>),
    /// Passed on, or given back.
    Done,
}

impl Several {
    pub(crate) fn new(parts: Vec<State>, order: Vec<(usize, usize)>, links: Links) -> Self {
        Self { parts, order, links }
    }

    /// What the parts say together.
    fn finish(&mut self) -> Result<Decision, StoreError> {
        let failed = self.parts.iter().find_map(|part| match part {
            State::Answered(Err(error)) => Some(error.clone()),
            _ => None,
        });
        let admitted = failed.is_none() && self.decided().all(|decided| decided.decision.is_admitted());
        let at = self.decided().map(|decided| decided.decision.at()).max().unwrap_or_default();
        let mut decision = Decision::new(at);
        if failed.is_none() {
            for (part, place) in &self.order {
                let State::Answered(Ok(decided)) = &self.parts[*part] else { continue };
                // Who is denied is told of budgets as they were: what was taken from them is given back.
                let told = match &decided.before {
                    Some(before) if !admitted => before,
                    _ => &decided.decision,
                };
                if let Some((rule, outcome)) = told.outcomes().nth(*place) {
                    decision.push_at(rule, *outcome, told.at());
                }
            }
        }
        if admitted {
            self.parts.iter_mut().for_each(|part| *part = State::Done);
        } else {
            self.give_back();
        }
        failed.map_or(Ok(decision), Err)
    }

    fn decided(&self) -> impl Iterator<Item = &Decided> {
        self.parts.iter().filter_map(|part| match part {
            State::Answered(Ok(decided)) => Some(decided),
            _ => None,
        })
    }

    /// Gives back what was charged, also what was answered and not looked at.
    fn give_back(&mut self) {
        for part in &mut self.parts {
            let answer = match std::mem::replace(part, State::Done) {
                State::Asking(asking) => asking.cancel(),
                State::Answered(answer) => answer.ok(),
                State::Done => None,
            };
            if let Some(decided) = answer {
                decided.give_back().into_iter().for_each(|ask| self.links.put(ask));
            }
        }
    }
}

impl Future for Several {
    type Output = Result<Decision, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut waiting = false;
        for part in &mut self.parts {
            if let State::Asking(asking) = part {
                match Pin::new(asking).poll(cx) {
                    Poll::Ready(answer) => *part = State::Answered(answer),
                    Poll::Pending => waiting = true,
                }
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(self.finish()) }
    }
}

impl Drop for Several {
    fn drop(&mut self) {
        // What is not answered yet is given back by whoever answers it.
        self.give_back();
    }
}

/// Puts charges into groups that may be asked together, and says where each has gone.
pub(crate) fn by<K: PartialEq>(
    charges: Charges,
    group: impl Fn(&crate::request::OwnCharge) -> K,
) -> (Vec<Charges>, Vec<(usize, usize)>) {
    let mut groups: SmallVec<[(K, Charges); 2]> = SmallVec::new();
    let mut order = Vec::with_capacity(charges.len());
    for charge in charges {
        let key = group(&charge);
        let at = groups.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            groups.push((key, Charges::new()));
            groups.len() - 1
        });
        order.push((at, groups[at].1.len()));
        groups[at].1.push(charge);
    }
    (groups.into_iter().map(|(_, charges)| charges).collect(), order)
}
