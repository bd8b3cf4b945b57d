//! The reply of the script, and the answers that it means. `charge.lua` says how it is packed.

use std::time::Duration;

use ratekeeper_core::algorithm::{self, Ask, Counter};
use ratekeeper_core::{Charge, Decision, Outcome, Retry, Timestamp, codec};
use smallvec::SmallVec;

use crate::batch::call::{Call, Few};
use crate::observe;
use crate::request::{Charges, OwnCharge};

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
    pub(crate) decision: Decision,
    /// What a peek would have said before, if this is only a part of a request.
    pub(crate) before: Option<Decision>,
    /// Whether the script has decided otherwise than the algorithm, so that nothing is known of the counters.
    pub(crate) is_disputed: bool,
}

/// The reply cannot be the answer.
#[derive(Debug)]
pub(crate) struct Garbled(pub(crate) &'static str);

const CUT_SHORT: Garbled = Garbled("the reply of the script is cut short");

impl Call {
    /// Reads what the script returned. `None` means that the call came too late, and nothing was done.
    pub(crate) fn read<'a>(&self, reply: &'a [u8]) -> Result<(Timestamp, Option<Answer<'a>>), Garbled> {
        let (number, rest) = reply.split_first_chunk().ok_or(CUT_SHORT)?;
        let (time, rest) = rest.split_first_chunk().ok_or(CUT_SHORT)?;
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
            _ => Err(CUT_SHORT),
        }
    }

    /// Passes on the answer to each request, in their order, with the counters as they are after it.
    ///
    /// The script has decided. If the algorithm decides otherwise here, that is an error of ours, which is
    /// logged; and what Redis has charged is charged.
    pub(crate) fn decide(
        &self,
        requests: &[&Charges],
        parts: &[bool],
        answer: &Answer<'_>,
        mut told: impl FnMut(Answered, &[Counter], &[usize]),
    ) -> Result<(), Garbled> {
        let now = answer.now;
        let (short, rest) = read_short(answer.body)?;
        let values = self.values(rest)?;
        let decode = |((request, charge), value): (&(usize, usize), &&[u8])| {
            // A value that is no counter counts as absent, for the script as well.
            codec::decode(value).unwrap_or_else(|| Counter::new(&requests[*request][*charge].quota))
        };
        let mut counters: Few<Counter> = self.named_by.iter().zip(&values).map(decode).collect();
        if self.groups.is_empty() {
            for (request, places) in self.places.iter().enumerate() {
                let decision = algorithm::peek(&counters, places, &by_ref(requests[request]), now);
                told(Answered { request, decision, before: None, is_disputed: false }, &counters, places);
            }
        }
        let mut short = short.peekable();
        for (number, group) in self.groups.iter().enumerate() {
            let passed = short.next_if(|(short, _)| *short == number);
            let passed = passed.map_or(group.members.len(), |(_, passed)| passed);
            for (member, request) in group.members.iter().enumerate() {
                let (charges, places) = (requests[*request], &self.places[*request]);
                let before =
                    parts[*request].then(|| algorithm::peek(&counters, places, &by_ref(charges), now));
                let mut decision = decide_one(charges, &mut counters, places, now);
                let is_disputed = decision.is_admitted() != (member < passed);
                if is_disputed {
                    observe::disagrees(member < passed, places.iter().map(|place| values[*place]));
                    decision = overrule(&decision);
                }
                told(Answered { request: *request, decision, before, is_disputed }, &counters, places);
            }
        }
        if short.next().is_some() { Err(Garbled("the reply of the script is too long")) } else { Ok(()) }
    }

    /// The bytes of the counters as they were before the call.
    fn values<'a>(&self, bytes: &'a [u8]) -> Result<SmallVec<[&'a [u8]; 4]>, Garbled> {
        let (&same, mut rest) = bytes.split_first().ok_or(CUT_SHORT)?;
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
                _ => return Err(CUT_SHORT),
            };
            sizes.push(size);
            rest = after;
        }
        let mut values = SmallVec::with_capacity(sizes.len());
        for size in sizes {
            let (value, after) = rest.split_at_checked(size).ok_or(CUT_SHORT)?;
            values.push(value);
            rest = after;
        }
        if rest.is_empty() { Ok(values) } else { Err(Garbled("the reply of the script is too long")) }
    }
}

/// The groups that were not admitted as often as asked, each with how often it was; and the rest.
fn read_short(bytes: &[u8]) -> Result<(impl Iterator<Item = (usize, usize)>, &[u8]), Garbled> {
    let (count, rest) = bytes.split_first_chunk().ok_or(CUT_SHORT)?;
    let (short, rest) =
        rest.split_at_checked(4 * usize::from(u16::from_le_bytes(*count))).ok_or(CUT_SHORT)?;
    let number = |low: u8, high: u8| usize::from(u16::from_le_bytes([low, high]));
    let short = short.chunks_exact(4).map(move |one| (number(one[0], one[1]), number(one[2], one[3])));
    Ok((short, rest))
}

fn by_ref(charges: &Charges) -> SmallVec<[Charge<'_>; 4]> {
    charges.iter().map(OwnCharge::by_ref).collect()
}

fn decide_one(charges: &Charges, counters: &mut [Counter], places: &[usize], now: Timestamp) -> Decision {
    if let ([charge], [place]) = (&**charges, places) {
        let outcome = counters[*place].charge(&charge.quota, Ask::of(&charge.by_ref()), now);
        return Decision::one(now, charge.counter.rule, outcome);
    }
    algorithm::decide(counters, places, &by_ref(charges), now)
}

/// The opposite of a decision, with the same budgets.
fn overrule(decision: &Decision) -> Decision {
    let mut overruled = Decision::new(decision.at());
    for (rule, outcome) in decision.outcomes() {
        let (limit, remaining) = (outcome.limit(), outcome.remaining());
        let (reset, refill) = (outcome.reset_after(), outcome.refill_after());
        overruled.push(
            rule,
            if decision.is_admitted() {
                let retry = Retry::After(refill.max(Duration::from_micros(1)));
                Outcome::denied(limit, remaining, reset, refill, retry)
            } else {
                Outcome::admitted(limit, remaining, reset, refill, outcome.delay())
            },
        );
    }
    overruled
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::{Key, MINUTE, Quota, RuleName};

    use super::*;
    use crate::batch::encode::push;
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
    fn what_the_script_has_decided_stands() {
        let requests = requests();
        let by_ref: Vec<_> = requests.iter().collect();
        let call = only(&requests);
        // All counters are new, so the algorithm admits everything. The script has not admitted the second
        // group.
        let mut reply = call.number.to_le_bytes().to_vec();
        push(&mut reply, 1e15);
        reply.extend([0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        let answer = call.read(&reply).unwrap().1.unwrap();
        let mut answers = Vec::new();
        call.decide(&by_ref, &[false; 3], &answer, |answered, _, _| answers.push(answered)).unwrap();
        assert_eq!(answers.len(), 3);
        for answered in answers {
            let denied = answered.request == call.groups[1].members[0];
            assert_eq!(answered.is_disputed, denied);
            let decision = answered.decision;
            assert_eq!(decision.is_admitted(), !denied);
            assert_eq!(decision.retry().is_some(), denied);
        }
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
            let short = random(3) as u16;
            reply.extend(short.to_le_bytes());
            for group in 0..short {
                reply.extend([group.to_le_bytes(), (random(3) as u16).to_le_bytes()].concat());
            }
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
