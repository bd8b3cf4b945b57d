//! Numbers as header values, with as few allocations as can be.

use std::cell::RefCell;
use std::sync::LazyLock;
use std::thread::LocalKey;

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

/// Appends a number to a text.
pub(crate) fn push_number(text: &mut String, n: u64) {
    match digits(n) {
        Some(digits) => text.push_str(digits),
        None => text.push_str(&n.to_string()),
    }
}

/// How many numbers are there as values.
const VALUES: usize = 1_024;

/// The smallest numbers, as values.
static SMALL: LazyLock<Box<[HeaderValue]>> =
    LazyLock::new(|| (0..VALUES as u64).filter_map(digits).map(HeaderValue::from_static).collect());

/// A number as a header value.
#[inline(always)]
pub(crate) fn number(n: u64) -> HeaderValue {
    small(n).unwrap_or_else(|| large(n))
}

#[inline(always)]
fn small(n: u64) -> Option<HeaderValue> {
    usize::try_from(n).ok().and_then(|n| SMALL.get(n)).cloned()
}

#[inline(never)]
fn large(n: u64) -> HeaderValue {
    digits(n).map_or_else(|| HeaderValue::from(n), HeaderValue::from_static)
}

/// Numbers and their values, each at its number modulo `N`: for what is announced again and again. Copying a
/// value costs less than making one.
struct Recent<const N: usize>(RefCell<[(u64, HeaderValue); N]>);

thread_local! {
    // Each kind for itself, so that none is in another's way.
    static LIMITS: Recent<16> = const { Recent::new() };
    static WAITS: Recent<16> = const { Recent::new() };
    /// Mostly some second of the next minute.
    static TIMES: Recent<64> = const { Recent::new() };
}

impl<const N: usize> Recent<N> {
    const fn new() -> Self {
        // Something that is true, until there is something to remember.
        Self(RefCell::new([const { (u64::MAX, HeaderValue::from_static("18446744073709551615")) }; N]))
    }

    #[inline(always)]
    fn get(&self, n: u64) -> Option<HeaderValue> {
        let recent = self.0.try_borrow().ok()?;
        let (number, value) = &recent[n as usize % N];
        (*number == n).then(|| value.clone())
    }

    #[cold]
    fn make(&self, n: u64) -> HeaderValue {
        let value = large(n);
        if let Ok(mut recent) = self.0.try_borrow_mut() {
            recent[n as usize % N] = (n, value.clone());
        }
        value
    }
}

#[inline(always)]
fn recent<const N: usize>(recent: &'static LocalKey<Recent<N>>, n: u64) -> HeaderValue {
    // A thread that is about to end remembers nothing.
    let value = recent.try_with(|recent| recent.get(n).unwrap_or_else(|| recent.make(n)));
    value.unwrap_or_else(|_| large(n))
}

/// A rule's limit as a header value.
#[inline(always)]
pub(crate) fn limit(n: u32) -> HeaderValue {
    small(n.into()).unwrap_or_else(|| recent(&LIMITS, n.into()))
}

/// A wait in seconds as a header value.
#[inline(always)]
pub(crate) fn wait(seconds: u64) -> HeaderValue {
    small(seconds).unwrap_or_else(|| recent(&WAITS, seconds))
}

/// A point in time, in Unix seconds, as a header value.
#[inline(always)]
pub(crate) fn time(seconds: u64) -> HeaderValue {
    recent(&TIMES, seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_decimal() {
        for n in (0..12_000).chain([u64::from(u32::MAX), u64::MAX / 4, u64::MAX]) {
            assert_eq!(number(n), n.to_string());
            assert_eq!(wait(n), n.to_string());
            let mut text = String::from("n=");
            push_number(&mut text, n);
            assert_eq!(text, format!("n={n}"));
        }
    }

    #[test]
    fn numbers_that_share_a_place_are_not_confused() {
        for _ in 0..2 {
            for n in [0, 64, 1_790_000_000, 1_790_000_001, 1_790_000_064, u64::MAX] {
                assert_eq!(time(n), n.to_string());
            }
        }
    }
}
