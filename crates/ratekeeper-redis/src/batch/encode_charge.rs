//! A quota with a cost, as passed to the script.

use ratekeeper_core::algorithm::Counter;
use ratekeeper_core::{Algorithm, Quota};

/// A quota with a cost.
#[derive(Debug)]
pub(crate) struct Term {
    pub(crate) quota: Quota,
    /// The sum of several costs may be more than one charge can cost.
    pub(crate) cost: u64,
    /// The term that is charged instead of this one, counted from 1: a counter that one request charges twice
    /// has to have room for both.
    pub(crate) apply: u16,
}

/// A head of up to this many bytes is a number that is exact in floating point, which the script compares
/// faster.
const LONGEST_NUMBER: usize = 6;

impl Term {
    /// The number of the algorithm. An invalid quota has the number after the last, and admits nothing.
    pub(crate) fn algorithm(&self) -> u8 {
        if self.quota.max() == 0 { Algorithm::ALL.len() as u8 } else { self.quota.algorithm() as u8 }
    }

    pub(crate) fn pack(&self, bytes: &mut Vec<u8>) {
        let Self { quota, cost, apply } = self;
        let head = Counter::head(quota);
        bytes.push(self.algorithm());
        bytes.extend_from_slice(&apply.to_le_bytes());
        push_form(bytes, quota, head.len());
        bytes.push(head.len() as u8);
        bytes.extend_from_slice(&head);
        // The head again, as a number.
        let mut number = [0; 8];
        let is_number = head.len() <= LONGEST_NUMBER;
        if is_number {
            number[..head.len()].copy_from_slice(&head);
        }
        push(bytes, if is_number { u64::from_le_bytes(number) as f64 } else { -1.0 });
        push(bytes, f64::from(quota.max()));
        if quota.max() == 0 {
            return push(bytes, *cost as f64);
        }
        let (units, micros_of_rate) = quota.rate();
        match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                // More than fits takes longer than any bucket takes to be full.
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

/// How the script reads and writes a counter; for windows, without the width of their counts.
fn push_form(bytes: &mut Vec<u8>, quota: &Quota, head: usize) {
    let start = bytes.len();
    bytes.extend_from_slice(&[0, b'<', if head <= LONGEST_NUMBER { b'I' } else { b'c' }]);
    if head >= 10 {
        bytes.push(b'0' + (head / 10) as u8);
    }
    bytes.push(b'0' + (head % 10) as u8);
    match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            bytes.extend_from_slice(b"I7");
            match parts_width(quota.rate().0) {
                0 => {}
                wide => bytes.extend_from_slice(&[b'I', b'0' + wide]),
            }
        }
        Algorithm::SlidingWindow => bytes.extend_from_slice(b"I6I"),
        _ => bytes.extend_from_slice(b"I7I"),
    }
    bytes[start] = (bytes.len() - start - 1) as u8;
}

pub(crate) fn push(bytes: &mut Vec<u8>, number: f64) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

/// How many bytes a number takes.
pub(crate) const fn width(number: u32) -> u8 {
    let bits = u32::BITS - number.leading_zeros();
    if bits == 0 { 1 } else { bits.div_ceil(8) as u8 }
}

/// How many bytes the fraction of a microsecond takes, if its denominator is `units`.
pub(crate) const fn parts_width(units: u32) -> u8 {
    if units == 1 { 0 } else { width(units) }
}
