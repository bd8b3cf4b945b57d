//! One call of the charge script: what is asked, and what the answer means.
//!
//! Requests that are asked together share a call. A counter is named once, however many of them charge it,
//! and equal requests are one group with a number. The script returns how many it admitted and what each
//! counter was before. From that, [`ratekeeper_core::algorithm`] computes the answer to each request here.

use std::ops::Range;

use ratekeeper_core::algorithm::{self, Counter};
use ratekeeper_core::{Charge, Decision, Timestamp};
use smallvec::SmallVec;

use crate::batch::encode_charge::{Term, push};
use crate::name::Counted;
use crate::request::verdict::Verdict;
use crate::request::{Charges, OwnCharge};

/// The size of what precedes the runs in the packed question.
const HEADER: usize = 32;
/// The size of a run, without the numbers of requests.
const RUN: usize = 10;

/// Usually one, or many. A single one takes no allocation: a lone request waits for each step on the way, and
/// memory that was not used for a while is in no near cache.
pub(crate) type Few<T> = SmallVec<[T; 1]>;

/// The requests of one call.
#[derive(Debug, Default)]
pub(crate) struct Call {
    /// Comes back with the answer, to prove that it is the answer to this question.
    pub(crate) number: u32,
    /// For each request, for each of its charges, the number of its counter.
    pub(crate) places: Few<SmallVec<[usize; 2]>>,
    /// For each counter, the request and the charge that named it.
    pub(crate) named_by: Few<(usize, usize)>,
    pub(crate) terms: Few<Term>,
    pub(crate) groups: Few<Group>,
    pub(crate) runs: Few<Run>,
    /// How many of the first groups are in runs, and how many of the next are in held ones.
    pub(crate) in_runs: usize,
    pub(crate) held: usize,
}

/// Charges of the same term to counters with consecutive numbers that nothing else charges. The script has a
/// fast path for these.
#[derive(Debug)]
pub(crate) struct Run {
    /// The first of its counters.
    pub(crate) first: usize,
    pub(crate) term: u16,
    /// The groups whose charges they are, one charge of each.
    pub(crate) groups: Range<usize>,
    /// Whether the groups have other charges, so that none may be made before all are known to fit.
    pub(crate) held: bool,
}

/// Equal requests.
#[derive(Debug)]
pub(crate) struct Group {
    /// Counter and term.
    pub(crate) charges: SmallVec<[(u16, u16); 2]>,
    pub(crate) members: SmallVec<[usize; 2]>,
}

impl Group {
    pub(crate) fn terms(&self) -> impl Iterator<Item = u16> {
        self.charges.iter().map(|(_, term)| *term)
    }
}

/// The answer to a call.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    /// The server's time.
    pub(crate) now: Timestamp,
    body: &'a [u8],
}

/// The answer to one request.
#[derive(Debug)]
pub(crate) struct Answered {
    /// Its number.
    pub(crate) request: usize,
    pub(crate) verdict: Verdict,
    /// What a peek would have said before, if this is only a part of a request.
    pub(crate) before: Option<Box<Decision>>,
}

/// The reply cannot be the answer.
#[derive(Debug)]
pub(crate) struct Garbled(pub(crate) &'static str);

impl Call {
    /// The counters, in the order of their numbers.
    pub(crate) fn counted<'a>(
        &'a self,
        requests: &'a [&'a Charges],
    ) -> impl ExactSizeIterator<Item = &'a Counted> {
        self.named_by.iter().map(|(request, charge)| &requests[*request][*charge].counter)
    }

    /// The packed question. `now` is the time to decide at, if it is not to be the server's.
    pub(crate) fn pack(&self, deadline: Option<Timestamp>, now: Option<Timestamp>) -> Vec<u8> {
        let (held, general) = self.groups[self.in_runs..].split_at(self.held);
        let mut bytes = Vec::with_capacity(HEADER + self.runs.len() * RUN + self.terms.len() * 100);
        let moment = |moment: Option<Timestamp>| moment.map_or(0.0, |moment| moment.as_micros() as f64);
        push(&mut bytes, moment(deadline));
        push(&mut bytes, moment(now));
        let held_runs = self.runs.iter().filter(|run| run.held).count();
        let held_requests: usize = held.iter().map(|group| group.members.len()).sum();
        bytes.extend_from_slice(&self.number.to_le_bytes());
        let runs = self.runs.len() - held_runs;
        for count in [runs, held_runs, held_requests, self.terms.len(), general.len(), held.len()] {
            push_u16(&mut bytes, count);
        }
        debug_assert_eq!(bytes.len(), HEADER);

        let mut terms = Vec::with_capacity(self.terms.len() * 100);
        let mut starts: SmallVec<[usize; 4]> = SmallVec::new();
        for term in &self.terms {
            starts.push(terms.len());
            term.pack(&mut terms);
        }
        let terms_at = HEADER
            + self
                .runs
                .iter()
                .map(|run| RUN + self.times(run).map_or(0, |times| 2 * times.len()))
                .sum::<usize>();
        for run in &self.runs {
            let times = self.times(run);
            // Lua counts from one.
            bytes.push(self.terms[usize::from(run.term)].algorithm());
            push_u16(&mut bytes, run.first + 1);
            push_u16(&mut bytes, run.first + run.groups.len());
            bytes.push(times.is_some().into());
            bytes.extend_from_slice(&((terms_at + starts[usize::from(run.term)] + 1) as u32).to_le_bytes());
            times.into_iter().flatten().for_each(|times| push_u16(&mut bytes, times));
        }
        bytes.extend_from_slice(&terms);
        for group in general.iter().chain(held) {
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

    /// Reads what the script returned. `None` means that the call came too late, and nothing was done.
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

    /// Passes on the answer to each request, in their order, with the counters as they are after it.
    pub(crate) fn decide(
        &self,
        requests: &[&Charges],
        parts: &[bool],
        answer: &Answer<'_>,
        mut told: impl FnMut(Answered, &[Counter], &[usize]),
    ) -> Result<(), Garbled> {
        let cut_short = Garbled("the reply of the script is cut short");
        let (admitted, rest) = answer.body.split_first_chunk().ok_or(cut_short)?;
        let mut counters = self.counters(requests, rest)?;
        if self.groups.is_empty() {
            for (request, places) in self.places.iter().enumerate() {
                let charges: SmallVec<[Charge<'_>; 2]> =
                    requests[request].iter().map(OwnCharge::by_ref).collect();
                let verdict =
                    Verdict::Several(Box::new(algorithm::peek(&counters, places, &charges, answer.now)));
                told(Answered { request, verdict, before: None }, &counters, places);
            }
        }
        let mut count = 0;
        for request in self.groups.iter().flat_map(|group| &group.members) {
            let places = &self.places[*request];
            let before = parts[*request].then(|| {
                let charges: SmallVec<[Charge<'_>; 2]> =
                    requests[*request].iter().map(OwnCharge::by_ref).collect();
                Box::new(algorithm::peek(&counters, places, &charges, answer.now))
            });
            let verdict = decide_one(requests[*request], &mut counters, places, answer.now);
            count += u32::from(verdict.is_admitted());
            told(Answered { request: *request, verdict, before }, &counters, places);
        }
        if count == u32::from_le_bytes(*admitted) {
            Ok(())
        } else {
            Err(Garbled("the script has not decided as the algorithm does"))
        }
    }

    /// The counters as they were before the call.
    fn counters(&self, requests: &[&Charges], bytes: &[u8]) -> Result<Few<Counter>, Garbled> {
        let cut_short = || Garbled("the reply of the script is cut short");
        let (&same, mut rest) = bytes.split_first().ok_or_else(cut_short)?;
        let mut sizes: SmallVec<[usize; 64]> = SmallVec::new();
        if same > 0 {
            // All have the same size.
            sizes.resize(self.named_by.len(), same.into());
        }
        while sizes.len() < self.named_by.len() {
            let (size, after) = match rest {
                // A size that does not fit into a byte takes four more.
                [255, a, b, c, d, after @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, after),
                [size @ 0..=254, after @ ..] => (usize::from(*size), after),
                _ => return Err(cut_short()),
            };
            sizes.push(size);
            rest = after;
        }
        let mut values = rest;
        let mut counters = Few::with_capacity(self.named_by.len());
        for (size, (request, charge)) in sizes.into_iter().zip(&self.named_by) {
            let (value, rest) = values.split_at_checked(size).ok_or_else(cut_short)?;
            values = rest;
            // A value that is no counter counts as absent, for the script as well.
            let counter = Counter::from_bytes(value);
            counters.push(counter.unwrap_or_else(|| Counter::new(&requests[*request][*charge].quota)));
        }
        if values.is_empty() { Ok(counters) } else { Err(Garbled("the reply of the script is too long")) }
    }
}

fn decide_one(charges: &Charges, counters: &mut [Counter], places: &[usize], now: Timestamp) -> Verdict {
    if let ([charge], [place]) = (&**charges, places) {
        let outcome = counters[*place].charge(&charge.quota, charge.cost, now);
        return Verdict::One { at: now, rule: charge.counter.rule, outcome };
    }
    let charges: SmallVec<[Charge<'_>; 4]> = charges.iter().map(OwnCharge::by_ref).collect();
    Verdict::Several(Box::new(algorithm::decide(counters, places, &charges, now)))
}

fn push_u16(bytes: &mut Vec<u8>, number: usize) {
    bytes.extend_from_slice(&(number as u16).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::{Key, MINUTE, Quota, RuleName};

    use super::*;
    use crate::name::Names;

    /// Two callers with one rule each, and one with both.
    fn requests() -> Vec<Charges> {
        let (key, other) = (Key::from("key"), Key::from("other"));
        let (bucket, log) = (Quota::per_minute(10), Quota::sliding_log(10, MINUTE));
        let names = Names::new("test", false);
        let own = |rule: &str, key: &Key, quota: &Quota| {
            let charge = Charge::new(RuleName::new(rule).unwrap(), key, quota);
            OwnCharge::new(&charge, &names)
        };
        vec![
            vec![own("bucket", &key, &bucket)],
            vec![own("log", &other, &log)],
            vec![own("bucket", &key, &bucket), own("log", &key, &log)],
        ]
    }

    fn only(requests: &[Charges]) -> Call {
        Call::gather(&requests.iter().collect::<Vec<_>>(), 64, false).pop().unwrap().1
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
            reply.extend((random(4) as u32).to_le_bytes());
            reply.push(0);
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
                Some(answer) => call.decide(&by_ref, &[false; 3], &answer, |_, _, _| {}),
                None => Ok(()),
            });
            *(if decided.is_ok() { &mut read } else { &mut garbled }) += 1;
        }
        assert!(garbled > 1_000 && read > 1_000, "{garbled} {read}");
    }
}
