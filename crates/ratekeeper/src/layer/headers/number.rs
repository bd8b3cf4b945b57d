//! Numbers as header values, mostly without an allocation.

use std::cell::RefCell;

use http::HeaderValue;

const COUNT: usize = 10_000;
const WIDTH: usize = 4;

/// `0000` to `9999`. Most budgets and waits are among these.
static DIGITS: &str = match std::str::from_utf8(&DIGIT_BYTES) {
    Ok(digits) => digits,
    Err(_) => panic!("digits are text"),
};

static DIGIT_BYTES: [u8; COUNT * WIDTH] = {
    let mut digits = [0; COUNT * WIDTH];
    let mut at = 0;
    while at < COUNT * WIDTH {
        let place = 10_usize.pow((WIDTH - 1 - at % WIDTH) as u32);
        digits[at] = b'0' + (at / WIDTH / place % 10) as u8;
        at += 1;
    }
    digits
};

/// How many larger numbers each thread remembers. The reset is usually a second of the next minute.
const RECENT: usize = 64;

thread_local! {
    /// Numbers and their values, each at its number modulo [`RECENT`].
    static VALUES: RefCell<[(u64, HeaderValue); RECENT]> =
        const { RefCell::new([const { (0, HeaderValue::from_static("0")) }; RECENT]) };
}

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

/// A number as a header value.
pub(crate) fn number(n: u64) -> HeaderValue {
    match digits(n) {
        Some(digits) => HeaderValue::from_static(digits),
        None => recent(n),
    }
}

/// Appends a number to a text.
pub(crate) fn push_number(text: &mut String, n: u64) {
    match digits(n) {
        Some(digits) => text.push_str(digits),
        None => text.push_str(&n.to_string()),
    }
}

/// A number that was probably sent before. Copying a value costs less than making one.
fn recent(n: u64) -> HeaderValue {
    let known = VALUES.try_with(|values| {
        let mut values = values.borrow_mut();
        let (number, value) = &mut values[n as usize % RECENT];
        if *number != n {
            (*number, *value) = (n, HeaderValue::from(n));
        }
        value.clone()
    });
    // A thread that is about to end remembers nothing.
    known.unwrap_or_else(|_| HeaderValue::from(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_decimal() {
        let large = [1_790_000_000, 1_790_000_001, 1_790_000_064, u64::from(u32::MAX), u64::MAX];
        for n in (0..12_000).chain(large).chain(large) {
            assert_eq!(number(n), n.to_string());
            let mut text = String::from("n=");
            push_number(&mut text, n);
            assert_eq!(text, format!("n={n}"));
        }
    }
}
