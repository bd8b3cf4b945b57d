//! Numbers as header values, with as few allocations as possible.

use std::cell::RefCell;
use std::thread::LocalKey;

use http::HeaderValue;

const COUNT: usize = 10_000;
const WIDTH: usize = 4;

/// `0000` to `9999`. Most budgets are among these, and cost no allocation.
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

macro_rules! value {
    ($($digit:literal)+) => { HeaderValue::from_static(concat!($($digit),+)) };
}

macro_rules! ten {
    ($($before:literal)*) => {
        [
            value!($($before)* 0), value!($($before)* 1), value!($($before)* 2), value!($($before)* 3),
            value!($($before)* 4), value!($($before)* 5), value!($($before)* 6), value!($($before)* 7),
            value!($($before)* 8), value!($($before)* 9),
        ]
    };
}

macro_rules! hundred {
    () => { [ten!(), ten!(1), ten!(2), ten!(3), ten!(4), ten!(5), ten!(6), ten!(7), ten!(8), ten!(9)] };
    ($($before:literal)+) => {
        [
            ten!($($before)+ 0), ten!($($before)+ 1), ten!($($before)+ 2), ten!($($before)+ 3),
            ten!($($before)+ 4), ten!($($before)+ 5), ten!($($before)+ 6), ten!($($before)+ 7),
            ten!($($before)+ 8), ten!($($before)+ 9),
        ]
    };
}

/// The numbers below eleven hundred, as values. (A thousand is a common limit.)
static SMALL: [[[HeaderValue; 10]; 10]; 11] = [
    hundred!(),
    hundred!(1),
    hundred!(2),
    hundred!(3),
    hundred!(4),
    hundred!(5),
    hundred!(6),
    hundred!(7),
    hundred!(8),
    hundred!(9),
    hundred!(1 0),
];

/// A number as a header value.
#[inline(always)]
pub(crate) fn number(n: u64) -> HeaderValue {
    match small(n) {
        Some(value) => value.clone(),
        None => large(n),
    }
}

#[inline(always)]
fn small(n: u64) -> Option<&'static HeaderValue> {
    SMALL.as_flattened().as_flattened().get(usize::try_from(n).ok()?)
}

#[inline(never)]
fn large(n: u64) -> HeaderValue {
    digits(n).map_or_else(|| HeaderValue::from(n), HeaderValue::from_static)
}

/// Numbers and their values, each at its number modulo `N`, for numbers that are sent again and again.
/// Copying a value costs less than making one.
struct Recent<const N: usize>(RefCell<[(u64, HeaderValue); N]>);

thread_local! {
    // One cache for each kind, so that they do not evict each other's values.
    static LIMITS: Recent<16> = const { Recent::new() };
    static WAITS: Recent<16> = const { Recent::new() };
    /// Usually a second of the next minute.
    static TIMES: Recent<64> = const { Recent::new() };
}

impl<const N: usize> Recent<N> {
    const fn new() -> Self {
        // A correct entry, until there is something to remember.
        Self(RefCell::new([const { (u64::MAX, HeaderValue::from_static("18446744073709551615")) }; N]))
    }

    #[inline(always)]
    fn get(&self, n: u64) -> Option<HeaderValue> {
        let recent = self.0.try_borrow().ok()?;
        let (number, value) = &recent[n as usize % N];
        (*number == n).then(|| value.clone())
    }

    fn put(&self, n: u64, value: &HeaderValue) {
        if let Ok(mut recent) = self.0.try_borrow_mut() {
            recent[n as usize % N] = (n, value.clone());
        }
    }
}

#[inline(always)]
fn recent<const N: usize>(recent: &'static LocalKey<Recent<N>>, n: u64) -> HeaderValue {
    match recent.try_with(|recent| recent.get(n)) {
        Ok(Some(value)) => value,
        _ => make(recent, n),
    }
}

#[cold]
fn make<const N: usize>(recent: &'static LocalKey<Recent<N>>, n: u64) -> HeaderValue {
    let value = large(n);
    // A thread that is about to end remembers nothing.
    let _ = recent.try_with(|recent| recent.put(n, &value));
    value
}

/// A rule's limit as a header value.
#[inline(always)]
pub(crate) fn limit(n: u32) -> HeaderValue {
    match small(n.into()) {
        Some(value) => value.clone(),
        None => large_limit(n),
    }
}

// A separate function, so that the path for small limits does not pay for it.
#[inline(never)]
fn large_limit(n: u32) -> HeaderValue {
    recent(&LIMITS, n.into())
}

/// A wait in seconds as a header value.
#[inline(always)]
pub(crate) fn wait(seconds: u64) -> HeaderValue {
    match small(seconds) {
        Some(value) => value.clone(),
        None => recent(&WAITS, seconds),
    }
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
