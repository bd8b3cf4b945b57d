//! What is done about a charge after it was made: refunds and debits.
//!
//! Settlements that wait at the same moment share a call, in which each counter is named once.

use ratekeeper_core::algorithm::Counter;
use ratekeeper_core::{Algorithm, Quota, Receipt, Timestamp};
use redis::Cmd;

use crate::batch::encode_charge::{parts_width, push, width};
use crate::name::{Counted, Names};
use crate::script::SETTLE;

/// Stands in the place of an algorithm for a refund.
const REFUND: u8 = u8::MAX;

/// One settlement of one counter.
#[derive(Clone, Debug)]
pub(crate) struct Settlement {
    pub(crate) counter: Counted,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// Gives back.
    Refund { cost: u32, receipt: Option<Receipt> },
    /// Takes what is due, whether or not it fits. The quota is valid, and the cost is not zero.
    Debit { quota: Quota, cost: u32, receipt: Option<Receipt> },
}

/// The command that makes settlements, in their order. `now` is the time to use, if it is not to be the
/// server's.
pub(crate) fn command<'a>(
    settlements: impl Iterator<Item = &'a Settlement>,
    names: &Names,
    now: Option<Timestamp>,
) -> Cmd {
    let mut counters: Vec<&Counted> = Vec::new();
    let mut packed = Vec::new();
    let mut count = 0_u16;
    for Settlement { counter, what } in settlements {
        let place = counters.iter().position(|known| *known == counter).unwrap_or_else(|| {
            counters.push(counter);
            counters.len() - 1
        });
        // Lua counts from one.
        packed.extend_from_slice(&(place as u16 + 1).to_le_bytes());
        what.pack(&mut packed);
        count += 1;
    }
    let mut ask = Vec::with_capacity(10 + packed.len());
    push(&mut ask, now.map_or(0.0, moment));
    ask.extend_from_slice(&count.to_le_bytes());
    ask.extend_from_slice(&packed);
    let mut command = Cmd::with_capacity(4 + counters.len(), 64 * (1 + counters.len()) + ask.len());
    command.arg(b"EVALSHA").arg(SETTLE.get_hash()).arg(counters.len());
    for counter in counters {
        command.arg(names.name(counter).as_slice());
    }
    command.arg(ask);
    command
}

impl What {
    fn pack(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Refund { cost, receipt } => {
                bytes.push(REFUND);
                push(bytes, f64::from(*cost));
                push(bytes, receipt.map_or(-1.0, |receipt| moment(receipt.at())));
                push(bytes, receipt.map_or(0.0, |receipt| moment(receipt.reset_at())));
            }
            Self::Debit { quota, cost, receipt } => {
                bytes.push(quota.algorithm() as u8);
                let head = Counter::head(quota);
                bytes.push(head.len() as u8);
                bytes.extend_from_slice(&head);
                push(bytes, f64::from(quota.max()));
                match quota.algorithm() {
                    Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                        let (micros, parts) = quota.time_of_debit(*cost);
                        let (fill, fill_parts) = quota.time_of(quota.max());
                        let (units, micros_of_rate) = quota.rate();
                        let times =
                            [micros, parts.into(), fill, fill_parts.into(), units.into(), micros_of_rate];
                        for number in times.into_iter().chain([u64::from(*cost)]) {
                            push(bytes, number as f64);
                        }
                        bytes.push(parts_width(units));
                    }
                    _ => {
                        push(bytes, f64::from(*cost));
                        push(bytes, quota.period().as_micros() as f64);
                        push(bytes, receipt.map_or(-1.0, |receipt| moment(receipt.at())));
                        bytes.push(width(quota.max()));
                    }
                }
            }
        }
    }
}

fn moment(moment: Timestamp) -> f64 {
    moment.as_micros() as f64
}
