//! Numbers as header values.

use http::HeaderValue;

const COUNT: usize = 10_000;

/// `0000` to `9999`. Most numbers that are announced are among these, and cost no allocation.
static DIGITS: [[u8; 4]; COUNT] = {
    let mut digits = [[0; 4]; COUNT];
    let mut n = 0;
    while n < COUNT {
        let (mut rest, mut at) = (n, 4);
        while at > 0 {
            at -= 1;
            digits[n][at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        n += 1;
    }
    digits
};

/// A number as a header value.
pub(crate) fn number(n: u64) -> HeaderValue {
    let digits = usize::try_from(n).ok().and_then(|n| DIGITS.get(n));
    let zeros = match n {
        0..=9 => 3,
        10..=99 => 2,
        100..=999 => 1,
        _ => 0,
    };
    match digits.map(|digits| std::str::from_utf8(&digits[zeros..])) {
        Some(Ok(text)) => HeaderValue::from_static(text),
        _ => HeaderValue::from(n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_decimal() {
        for n in (0..12_000).chain([u64::from(u32::MAX), u64::MAX / 4, u64::MAX]) {
            assert_eq!(number(n), n.to_string());
        }
    }
}
