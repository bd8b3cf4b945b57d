//! One call of the charge script: what is asked, and what the answer means.
//!
//! Requests that are asked together share a call. A counter is named once, however many of them charge it, and equal
//! requests are one group with a number. The script says how many of each group it admitted and what each counter was
//! before; from that, [`tollgate_core::algorithm`] computes here what each request is told.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use smallvec::SmallVec;
use tollgate_core::algorithm::{self, Counter};
use tollgate_core::{Algorithm, Charge, Decision, Quota, Timestamp};

use crate::request::{Charges, Decided, OwnCharge};

/// How many requests a group holds: their number is one byte.
const GROUP: usize = 255;
/// How many terms a call holds, unless a single request has more: each is looked for among all.
const TERMS: usize = 255;

/// The requests of one call.
#[derive(Debug, Default)]
pub(crate) struct Call {
    /// Comes back with the answer, which is thereby known to be the answer to this.
    number: u32,
    /// For each request, for each of its charges, the number of its counter.
    places: Vec<SmallVec<[usize; 2]>>,
    /// For each counter, the request and the charge that named it.
    named_by: Vec<(usize, usize)>,
    terms: Vec<Term>,
    groups: Vec<Group>,
    /// How many of the first groups are in which runs.
    runs: Vec<Run>,
}

/// Groups of one request with one charge each, of the same term, whose counters have numbers that follow each other and
/// are charged by nobody else: the script has a quick way for these.
#[derive(Debug)]
struct Run {
    first: usize,
    last: usize,
    term: u16,
}

/// A quota with a cost, as the script is told it.
#[derive(Debug)]
struct Term {
    quota: Quota,
    /// The sum of several may be more than one charge can cost.
    cost: u64,
    /// The term that is charged if it is not this one: a counter that one request charges twice has to have room for
    /// both.
    apply: u16,
}

/// Equal requests.
#[derive(Debug)]
struct Group {
    /// Counter and term.
    charges: SmallVec<[(u16, u16); 2]>,
    members: Vec<usize>,
}

/// What came of a call.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    /// The time of the server.
    pub(crate) now: Timestamp,
    body: &'a [u8],
}

/// The answer is not one.
#[derive(Debug)]
pub(crate) struct Garbled(pub(crate) &'static str);

impl Call {
    /// Puts requests into calls of at most so many counters each. `peek`: they only look.
    ///
    /// All of them must be allowed in one call: on a cluster, their counters must be in one slot.
    pub(crate) fn gather<'a>(
        requests: impl Iterator<Item = &'a Charges>,
        max_counters: usize,
        peek: bool,
    ) -> Vec<(usize, Self)> {
        let mut calls = Vec::new();
        let mut builder = Builder::default();
        for charges in requests {
            let full = builder.call.named_by.len() + charges.len() > max_counters
                || builder.call.terms.len() + 2 * charges.len() > TERMS;
            if full && !builder.call.places.is_empty() {
                calls.push(std::mem::take(&mut builder).finish());
            }
            builder.add(charges, peek);
        }
        if !builder.call.places.is_empty() {
            calls.push(builder.finish());
        }
        calls
    }

    /// The names of the counters, in the order of their numbers.
    pub(crate) fn names<'a>(
        &'a self,
        requests: &'a [&'a Charges],
    ) -> impl ExactSizeIterator<Item = &'a [u8]> {
        self.named_by.iter().map(|(request, charge)| &*requests[*request][*charge].name)
    }

    /// The question, packed. `now` is a time to decide at if it is not to be the server's.
    pub(crate) fn pack(&self, deadline: Option<Timestamp>, now: Option<Timestamp>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(23 + self.terms.len() * 80 + self.groups.len() * 5);
        let moment = |moment: Option<Timestamp>| moment.map_or(0.0, |moment| moment.as_micros() as f64);
        push(&mut bytes, moment(deadline));
        push(&mut bytes, moment(now));
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&(self.terms.len() as u16).to_le_bytes());
        let in_runs: usize = self.runs.iter().map(|run| run.last - run.first + 1).sum();
        bytes.extend_from_slice(&(self.runs.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&((self.groups.len() - in_runs) as u16).to_le_bytes());
        for term in &self.terms {
            term.pack(&mut bytes);
        }
        // Lua counts from one.
        for run in &self.runs {
            bytes.extend_from_slice(&(run.first as u16 + 1).to_le_bytes());
            bytes.extend_from_slice(&(run.last as u16 + 1).to_le_bytes());
            bytes.extend_from_slice(&(run.term + 1).to_le_bytes());
        }
        for group in &self.groups[in_runs..] {
            bytes.push(group.members.len() as u8);
            bytes.extend_from_slice(&(group.charges.len() as u16).to_le_bytes());
            for (counter, term) in &group.charges {
                bytes.extend_from_slice(&(counter + 1).to_le_bytes());
                bytes.extend_from_slice(&(term + 1).to_le_bytes());
            }
        }
        bytes
    }

    /// Reads what the script returned. `None`: it came too late, and nothing was done.
    pub(crate) fn read<'a>(&self, reply: &'a [u8]) -> Result<(Timestamp, Option<Answer<'a>>), Garbled> {
        let cut_short = || Garbled("the reply of the script is cut short");
        let (number, rest) = reply.split_first_chunk().ok_or_else(cut_short)?;
        let (time, rest) = rest.split_first_chunk().ok_or_else(cut_short)?;
        if u32::from_le_bytes(*number) != self.number {
            return Err(Garbled("the reply of the script is to another question"));
        }
        let micros = f64::from_le_bytes(*time);
        if !(1.0..9_007_199_254_740_992.0).contains(&micros) {
            return Err(Garbled("the reply of the script has no time"));
        }
        let now = Timestamp::from_micros(micros as u64);
        match rest {
            [1] => Ok((now, None)),
            [0, body @ ..] => Ok((now, Some(Answer { now, body }))),
            _ => Err(cut_short()),
        }
    }

    /// What each request is told, in their order, with the counters as they are after it.
    pub(crate) fn decide(
        &self,
        requests: &[&Charges],
        parts: &[bool],
        answer: &Answer<'_>,
        mut told: impl FnMut(usize, Decided, &[Counter], &[usize]),
    ) -> Result<(), Garbled> {
        let cut_short = Garbled("the reply of the script is cut short");
        let (admitted, rest) = answer.body.split_at_checked(self.groups.len()).ok_or(cut_short)?;
        let mut counters = self.counters(requests, rest)?;
        if self.groups.is_empty() {
            for (request, places) in self.places.iter().enumerate() {
                let charges: SmallVec<[Charge<'_>; 2]> =
                    requests[request].iter().map(OwnCharge::by_ref).collect();
                let decision = algorithm::peek(&counters, places, &charges, answer.now);
                told(request, Decided { decision, before: None }, &counters, places);
            }
        }
        for (group, admitted) in self.groups.iter().zip(admitted) {
            if usize::from(*admitted) > group.members.len() {
                return Err(Garbled("the script has admitted more than there were"));
            }
            for (i, &request) in group.members.iter().enumerate() {
                let places = &self.places[request];
                let before = parts[request].then(|| {
                    let charges: SmallVec<[Charge<'_>; 2]> =
                        requests[request].iter().map(OwnCharge::by_ref).collect();
                    algorithm::peek(&counters, places, &charges, answer.now)
                });
                let decision = decide_one(requests[request], &mut counters, places, answer.now);
                if decision.is_admitted() != (i < usize::from(*admitted)) {
                    return Err(Garbled("the script has not decided as the algorithm does"));
                }
                told(request, Decided { decision, before }, &counters, places);
            }
        }
        Ok(())
    }

    /// The counters as they were before the call.
    fn counters(&self, requests: &[&Charges], bytes: &[u8]) -> Result<Vec<Counter>, Garbled> {
        let cut_short = || Garbled("the reply of the script is cut short");
        let mut rest = bytes;
        let mut sizes: SmallVec<[usize; 64]> = SmallVec::new();
        for _ in &self.named_by {
            let (size, after) = match rest {
                // One that does not fit into a byte has four more.
                [255, a, b, c, d, after @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, after),
                [size @ 0..=254, after @ ..] => (usize::from(*size), after),
                _ => return Err(cut_short()),
            };
            sizes.push(size);
            rest = after;
        }
        let mut values = rest;
        let mut counters = Vec::with_capacity(self.named_by.len());
        for (size, (request, charge)) in sizes.into_iter().zip(&self.named_by) {
            let (value, rest) = values.split_at_checked(size).ok_or_else(cut_short)?;
            values = rest;
            // What is no counter counts as none, for the script as well.
            let counter = Counter::from_bytes(value);
            counters.push(counter.unwrap_or_else(|| Counter::new(&requests[*request][*charge].quota)));
        }
        if values.is_empty() { Ok(counters) } else { Err(Garbled("the reply of the script is too long")) }
    }
}

fn decide_one(charges: &Charges, counters: &mut [Counter], places: &[usize], now: Timestamp) -> Decision {
    if let ([charge], [place]) = (&**charges, places) {
        let mut decision = Decision::new(now);
        decision.push(charge.rule, counters[*place].charge(&charge.quota, charge.cost, now));
        return decision;
    }
    let charges: SmallVec<[Charge<'_>; 4]> = charges.iter().map(OwnCharge::by_ref).collect();
    algorithm::decide(counters, places, &charges, now)
}

#[derive(Debug, Default)]
struct Builder<'a> {
    call: Call,
    counters: HashMap<&'a [u8], usize>,
    /// For each counter, the last group that charges it alone.
    singles: Vec<Option<usize>>,
    /// For each counter, how many groups charge it.
    groups: Vec<usize>,
}

impl<'a> Builder<'a> {
    fn add(&mut self, charges: &'a Charges, peek: bool) {
        let request = self.call.places.len();
        let mut places = SmallVec::new();
        let mut own: SmallVec<[(u16, u16); 2]> = SmallVec::new();
        for (i, charge) in charges.iter().enumerate() {
            let place = *self.counters.entry(&charge.name).or_insert_with(|| {
                self.call.named_by.push((request, i));
                self.singles.push(None);
                self.groups.push(0);
                self.singles.len() - 1
            });
            places.push(place);
            if !peek {
                let term = self.term(charges, i);
                own.push((place as u16, term));
            }
        }
        self.call.places.push(places);
        if peek {
            return;
        }
        let alone = if let [(place, _)] = *own { Some(usize::from(place)) } else { None };
        if let Some(group) = alone.and_then(|place| self.singles[place]) {
            let group = &mut self.call.groups[group];
            if group.charges == own && group.members.len() < GROUP {
                return group.members.push(request);
            }
        }
        if let Some(place) = alone {
            self.singles[place] = Some(self.call.groups.len());
        }
        for (place, _) in &own {
            self.groups[usize::from(*place)] += 1;
        }
        self.call.groups.push(Group { charges: own, members: vec![request] });
    }

    /// Finds the runs, and puts their groups first.
    fn finish(mut self) -> (usize, Call) {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let alone = |group: &Group| match *group.charges {
            [(place, term)] if group.members.len() == 1 && self.groups[usize::from(place)] == 1 => {
                Some((usize::from(place), term))
            }
            _ => None,
        };
        // Stable: counters that were named one after the other stay so.
        self.call.groups.sort_by_key(|group| alone(group).map_or((true, 0), |(_, term)| (false, term)));
        for (place, term) in self.call.groups.iter().map_while(alone) {
            match self.call.runs.last_mut() {
                Some(run) if run.term == term && run.last + 1 == place => run.last = place,
                _ => self.call.runs.push(Run { first: place, last: place, term }),
            }
        }
        self.call.number = NEXT.fetch_add(1, Ordering::Relaxed);
        (self.call.places.len(), self.call)
    }

    /// The term of a charge: its quota, with all that the request charges the same counter up to it.
    fn term(&mut self, charges: &Charges, i: usize) -> u16 {
        let charge = &charges[i];
        let earlier = charges[..i].iter().filter(|earlier| earlier.name == charge.name);
        let mut earlier = earlier.map(|earlier| u64::from(earlier.cost)).peekable();
        if earlier.peek().is_none() {
            return self.find_term(&charge.quota, charge.cost.into(), 0);
        }
        let cost = earlier.sum::<u64>() + u64::from(charge.cost);
        let apply = self.find_term(&charge.quota, charge.cost.into(), 0);
        self.find_term(&charge.quota, cost, apply + 1)
    }

    fn find_term(&mut self, quota: &Quota, cost: u64, apply: u16) -> u16 {
        let terms = &mut self.call.terms;
        let same = |term: &Term| term.cost == cost && term.apply == apply && term.quota == *quota;
        let found = terms.iter().position(same).unwrap_or_else(|| {
            terms.push(Term { quota: *quota, cost, apply });
            terms.len() - 1
        });
        found as u16
    }
}

impl Term {
    fn pack(&self, bytes: &mut Vec<u8>) {
        let Self { quota, cost, apply } = self;
        // What makes no sense admits nothing, whatever its algorithm.
        let algorithm = if quota.max() == 0 { Algorithm::ALL.len() as u8 } else { quota.algorithm() as u8 };
        let head = Counter::head(quota);
        // How the script reads and writes a counter.
        let form = match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => match parts_width(quota.rate().0) {
                0 => format!("<c{}I7", head.len()),
                wide => format!("<c{}I7I{wide}", head.len()),
            },
            Algorithm::SlidingWindow => format!("<c{}I6I", head.len()),
            _ => format!("<c{}I7I", head.len()),
        };
        bytes.extend_from_slice(&[algorithm, head.len() as u8]);
        bytes.extend_from_slice(&head);
        bytes.push(form.len() as u8);
        bytes.extend_from_slice(form.as_bytes());
        bytes.extend_from_slice(&apply.to_le_bytes());
        push(bytes, f64::from(quota.max()));
        if quota.max() == 0 {
            return push(bytes, *cost as f64);
        }
        let (units, micros_of_rate) = quota.rate();
        match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                // More than fits is longer than any bucket takes to be whole.
                let fitting = u32::try_from(*cost).ok().filter(|cost| *cost <= quota.max());
                let (micros, parts) = fitting.map_or((u64::MAX, 0), |cost| quota.time_of(cost));
                let (fill, fill_parts) = quota.time_of(quota.max());
                for number in [micros, parts.into(), fill, fill_parts.into(), units.into(), micros_of_rate] {
                    push(bytes, number as f64);
                }
                bytes.push(parts_width(units));
            }
            _ => {
                push(bytes, *cost as f64);
                push(bytes, quota.period().as_micros() as f64);
                bytes.push(width(quota.max()));
            }
        }
    }
}

fn push(bytes: &mut Vec<u8>, number: f64) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

/// How many bytes a number takes.
const fn width(number: u32) -> u8 {
    let bits = u32::BITS - number.leading_zeros();
    if bits == 0 { 1 } else { bits.div_ceil(8) as u8 }
}

/// How many bytes the parts of a microsecond take, of which there are so many to one.
const fn parts_width(units: u32) -> u8 {
    if units == 1 { 0 } else { width(units) }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;
    use tollgate_core::{Key, MINUTE, RuleName};

    use super::*;
    use crate::name::Names;

    /// Two callers with one rule each, and one with both.
    fn requests() -> Vec<Charges> {
        let (key, other) = (Key::from("key"), Key::from("other"));
        let (bucket, log) = (Quota::per_minute(10), Quota::sliding_log(10, MINUTE));
        let own = |rule: &str, key: &Key, quota: &Quota| {
            let charge = Charge::new(RuleName::new(rule).unwrap(), key, quota);
            OwnCharge::new(&charge, &Names::new("test"))
        };
        vec![
            smallvec![own("bucket", &key, &bucket)],
            smallvec![own("log", &other, &log)],
            smallvec![own("bucket", &key, &bucket), own("log", &key, &log)],
        ]
    }

    fn only(requests: &[Charges]) -> Call {
        Call::gather(requests.iter(), 64, false).pop().unwrap().1
    }

    #[test]
    fn the_answer_to_another_question_is_none() {
        let requests = requests();
        let (one, other) = (only(&requests), only(&requests));
        let mut reply = one.number.to_le_bytes().to_vec();
        push(&mut reply, 1e15);
        reply.push(1);
        assert!(one.read(&reply).unwrap().1.is_none());
        assert!(other.read(&reply).is_err());
    }

    #[test]
    fn whatever_is_answered_is_no_reason_to_panic() {
        let requests = requests();
        let by_ref: Vec<_> = requests.iter().collect();
        let call = only(&requests);
        // A generator by Marsaglia, always the same.
        let mut seed = 0x2545_F491_4F6C_DD1D_u64;
        let mut random = move |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        let (mut garbled, mut read) = (0, 0);
        for _ in 0..50_000 {
            let mut reply = call.number.to_le_bytes().to_vec();
            push(&mut reply, [1.0, 1e15, 9e15][random(3) as usize]);
            reply.push(0);
            reply.extend((0..3).map(|_| random(2) as u8));
            // Sizes that fit, mostly, and values that could be counters.
            let values: Vec<Vec<u8>> = (0..3)
                .map(|_| {
                    (0..random(40)).map(|_| if random(4) == 0 { 0 } else { random(256) as u8 }).collect()
                })
                .collect();
            values.iter().for_each(|value| reply.push(value.len() as u8));
            values.iter().for_each(|value| reply.extend(value));
            if random(8) == 0 {
                reply.truncate(random(reply.len() as u64 + 1) as usize);
            }
            let decided = call.read(&reply).and_then(|(_, answer)| match answer {
                Some(answer) => call.decide(&by_ref, &[false; 3], &answer, |_, _, _, _| {}),
                None => Ok(()),
            });
            *(if decided.is_ok() { &mut read } else { &mut garbled }) += 1;
        }
        assert!(garbled > 1_000 && read > 1_000, "{garbled} {read}");
    }
}
