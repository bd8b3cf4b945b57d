//! gRPC statuses: `grpc-retry-pushback-ms` (gRFC A6) and `RetryInfo` (google.rpc).
//!
//! A refusal is a response without messages, whose status is among the header fields. A status in trailers,
//! after messages, is not seen.

use std::time::Duration;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::{HeaderMap, HeaderName};

use super::{Refusal, first};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

const RESOURCE_EXHAUSTED: &str = "8";
const UNAVAILABLE: &str = "14";
const RETRY_INFO: &[u8] = b"type.googleapis.com/google.rpc.RetryInfo";

/// With or without padding, as gRPC requires.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(super) fn refusal(headers: &HeaderMap) -> Option<Refusal> {
    let status = first(headers, &STATUS)?;
    if status != RESOURCE_EXHAUSTED && status != UNAVAILABLE {
        return None;
    }
    // Negative, or not a number: do not retry.
    let pushback = first(headers, &PUSHBACK).map(|millis| millis.parse::<i32>().ok().map(u64::try_from));
    let (wait, is_final) = match pushback {
        Some(Some(Ok(millis))) => (Some(Duration::from_millis(millis)), false),
        Some(_) => (None, true),
        None => (retry_delay(headers), false),
    };
    Some(Refusal { wait, is_overload: status == UNAVAILABLE, is_final })
}

/// The delay of a `RetryInfo` among the status's details.
fn retry_delay(headers: &HeaderMap) -> Option<Duration> {
    let status = BASE64.decode(headers.get(&DETAILS)?.as_bytes()).ok()?;
    // google.rpc.Status: details = 3, each a google.protobuf.Any: type_url = 1, value = 2.
    let info = fields(&status).filter(|field| field.number == 3).find_map(|detail| {
        let of = |number| fields(detail.bytes).find(|field| field.number == number);
        (of(1)?.bytes == RETRY_INFO).then(|| of(2).map_or(&[][..], |value| value.bytes))
    })?;
    // RetryInfo: retry_delay = 1, a google.protobuf.Duration: seconds = 1, nanos = 2.
    let delay = fields(info).find(|field| field.number == 1)?;
    let of =
        |number| fields(delay.bytes).filter(|field| field.number == number).map(|field| field.varint).last();
    let seconds = i64::from_ne_bytes(of(1).unwrap_or(0).to_ne_bytes());
    let nanos = u32::try_from(of(2).unwrap_or(0)).unwrap_or(0).min(999_999_999);
    Some(u64::try_from(seconds).map_or(Duration::ZERO, |seconds| Duration::new(seconds, nanos)))
}

/// A field of a protobuf message: a varint, or bytes.
struct Field<'a> {
    number: u64,
    varint: u64,
    bytes: &'a [u8],
}

/// The fields of a message, up to the first that is malformed.
fn fields(mut message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    std::iter::from_fn(move || {
        let tag = varint(&mut message)?;
        let mut field = Field { number: tag >> 3, varint: 0, bytes: &[] };
        let length = match tag & 7 {
            0 => {
                field.varint = varint(&mut message)?;
                return Some(field);
            }
            1 => 8,
            2 => usize::try_from(varint(&mut message)?).ok()?,
            5 => 4,
            _ => return None,
        };
        (field.bytes, message) = message.split_at_checked(length)?;
        Some(field)
    })
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut n = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        n |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}
