//! Numbers as header values, with as few allocations as can be.

use std::cell::RefCell;
use std::sync::LazyLock;

use http::HeaderValue;

const COUNT: usize = 10_000;
const WIDTH: usize = 4;

/// `0000` to `9999`. Most budgets that are announced are among these, and cost no allocation.
static DIGITS: &str = match std::str::from_utf8(&DIGIT_BYTES) {
    Ok(digits) => digits,
    Err(_) => panic!("digits are text"),
};

static DIGIT_BYTES: [u8; COUNT * WIDTH] = {
    let mut digits = [0; COUNT * WIDTH];
    let mut n = 0;
    while n < COUNT {
        let (mut rest, mut at) = (n, WIDTH);
        while at > 0 {
            at -= 1;
            digits[n * WIDTH + at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        n += 1;
    }
    digits
};

/// A number below ten thousand as text.
fn digits(n: u64) -> Option<&'static str> {
    let zeros = match n {
        0..=9 => 3,
        10..=99 => 2,
        100..=999 => 1,
        1_000..=9_999 => 0,
        _ => return None,
    };
    let start = n as usize * WIDTH;
    DIGITS.get(start + zeros..start + WIDTH)
}

/// How many numbers are there as values.
const VALUES: u64 = 1_024;

/// The smallest numbers, as values.
static SMALL: LazyLock<Box<[HeaderValue]>> =
    LazyLock::new(|| (0..VALUES).filter_map(digits).map(HeaderValue::from_static).collect());

/// A number as a header value.
#[inline]
pub(crate) fn number(n: u64) -> HeaderValue {
    if n < VALUES {
        if let Some(value) = SMALL.get(n as usize) {
            return value.clone();
        }
    }
    digits(n).map_or_else(|| HeaderValue::from(n), HeaderValue::from_static)
}

/// Appends a number to a text.
pub(crate) fn push_number(text: &mut String, n: u64) {
    match digits(n) {
        Some(digits) => text.push_str(digits),
        None => text.push_str(&n.to_string()),
    }
}

/// How many seconds each thread remembers.
const REMEMBERED: usize = 64;

thread_local! {
    /// Seconds and their values, each at its number modulo [`REMEMBERED`]. What is announced is mostly some
    /// second of the next minute, again and again, and copying a value costs less than making one.
    static SECONDS: RefCell<[Option<(u64, HeaderValue)>; REMEMBERED]> = const { RefCell::new([const { None }; REMEMBERED]) };
}

/// A point in time, in Unix seconds, as a header value.
pub(crate) fn unix_seconds(seconds: u64) -> HeaderValue {
    let value = SECONDS.try_with(|remembered| {
        let mut remembered = remembered.try_borrow_mut().ok()?;
        match &mut remembered[seconds as usize % REMEMBERED] {
            Some((second, value)) if *second == seconds => Some(value.clone()),
            entry => {
                let value = HeaderValue::from(seconds);
                *entry = Some((seconds, value.clone()));
                Some(value)
            }
        }
    });
    value.ok().flatten().unwrap_or_else(|| HeaderValue::from(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_decimal() {
        for n in (0..12_000).chain([u64::from(u32::MAX), u64::MAX / 4, u64::MAX]) {
            assert_eq!(number(n), n.to_string());
            let mut text = String::from("n=");
            push_number(&mut text, n);
            assert_eq!(text, format!("n={n}"));
        }
    }

    #[test]
    fn seconds_that_share_a_place_are_not_confused() {
        for _ in 0..2 {
            for n in [0, 64, 1_790_000_000, 1_790_000_001, 1_790_000_064, u64::MAX] {
                assert_eq!(unix_seconds(n), n.to_string());
            }
        }
    }
}
