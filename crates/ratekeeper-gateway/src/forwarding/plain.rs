//! Paths that everybody reads in the same way.

/// Whether a path is unlikely to be read as another one.
///
/// Rules match a path as it is written, and some upstreams normalize it first: to them `//login`, `/./login`,
/// `/a%2F..%2Flogin` and `/login;a=b` are `/login`, but a rule for that has not counted them.
pub(super) fn is_plain(path: &str) -> bool {
    path == "*" || path == "/" || path.strip_prefix('/').is_some_and(are_plain_segments)
}

fn are_plain_segments(segments: &str) -> bool {
    // A path with a trailing slash is a different path.
    let segments = segments.strip_suffix('/').unwrap_or(segments);
    segments.split('/').all(|segment| !matches!(segment, "" | "." | "..") && is_plain_segment(segment))
}

fn is_plain_segment(segment: &str) -> bool {
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        let is_plain = match byte {
            b'%' => {
                let digits = [bytes.next(), bytes.next()]
                    .map(|digit| digit.and_then(|digit| char::from(digit).to_digit(16)));
                let [Some(high), Some(low)] = digits else { return false };
                u8::try_from(high * 16 + low).is_ok_and(needs_escape)
            }
            b'\\' | b';' => false,
            byte => !byte.is_ascii_control(),
        };
        if !is_plain {
            return false;
        }
    }
    true
}

/// Whether there is a reason to escape this byte, and it has no other meaning when escaped.
fn needs_escape(byte: u8) -> bool {
    let is_unreserved = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    !is_unreserved && !byte.is_ascii_control() && !matches!(byte, b'/' | b'\\' | b';' | b'%')
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn what_can_be_read_in_two_ways_is_not_plain() {
        for path in [
            "/",
            "*",
            "/a",
            "/a/",
            "/a/b.c/~d",
            "/.well-known/x",
            "/...",
            "/a%20b/%C3%BC",
            "/a:b@c,d=e+f!",
            "/ü",
        ] {
            assert!(is_plain(path), "{path}");
        }
        for path in [
            "",
            "a",
            "//",
            "//a",
            "/a//b",
            "/a//",
            "/.",
            "/./a",
            "/a/..",
            "/a/../b",
            "/%2e/a",
            "/a/%2E%2e/b",
            "/a%2Fb",
            "/a%5cb",
            "/a\\b",
            "/%61",
            "/a%00",
            "/a%0a",
            "/a%",
            "/a%2",
            "/a%zz",
            "/a%252F",
            "/a;b=c",
            "/a%3Bb",
            "/a\u{7f}",
        ] {
            assert!(!is_plain(path), "{path}");
        }
    }
}
