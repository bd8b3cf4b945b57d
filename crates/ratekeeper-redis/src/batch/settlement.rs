//! Encodes refunds and debits.
//!
//! Settlements that wait at the same moment share a call, in which each counter is named once.

use ratekeeper_core::Timestamp;
use redis::Cmd;

use crate::batch::encode::{head, push, push_text, push_times, push_u16};
use crate::name::{Counted, Names};
use crate::request::settlement::{Settlement, What};
use crate::script;

/// The command that makes settlements, in their order. `now` is the time to use, if it is not to be the
/// server's. `with_body`: the server may not know the script.
pub(crate) fn command<'a>(
    settlements: impl Iterator<Item = &'a Settlement>,
    names: &Names,
    now: Option<Timestamp>,
    with_body: bool,
) -> Cmd {
    let mut counters: Vec<&Counted> = Vec::new();
    let mut packed = Vec::new();
    let mut count = 0;
    for Settlement { counter, what } in settlements {
        let place = counters.iter().position(|known| *known == counter).unwrap_or_else(|| {
            counters.push(counter);
            counters.len() - 1
        });
        // Lua counts from one.
        push_u16(&mut packed, place + 1);
        what.pack(&mut packed);
        count += 1;
    }
    let mut question = Vec::with_capacity(18 + packed.len());
    push_times(&mut question, None, now);
    push_u16(&mut question, count);
    question.extend_from_slice(&packed);
    let names = counters.into_iter().map(|counter| names.name(counter));
    script::command(&script::SETTLE, with_body, names, &question)
}

impl What {
    fn pack(&self, bytes: &mut Vec<u8>) {
        let (Self::Refund { cost, receipt } | Self::Debit { cost, receipt, .. }) = self;
        bytes.extend_from_slice(&cost.to_le_bytes());
        let moments = receipt.map(|receipt| [receipt.at(), receipt.reset_at(), receipt.departs_at()]);
        for moment in moments.map_or([-1.0; 3], |moments| moments.map(|moment| moment.as_micros() as f64)) {
            push(bytes, moment);
        }
        match self {
            Self::Refund { .. } => push_text(bytes, b""),
            Self::Debit { quota, .. } => push_text(bytes, &head(quota)),
        }
    }
}
