//! Finds where a reply ends, in versions 2 and 3 of the Redis serialisation protocol.

/// The length of the first reply in bytes, if all of it is there.
pub(super) fn length(bytes: &[u8]) -> Option<usize> {
    // How many values are still to come.
    let mut values = 1;
    let mut at = 0;
    while values > 0 {
        let line = line(&bytes[at..])?;
        let (kind, rest) = bytes[at..at + line].split_first()?;
        at += line + 2;
        values -= 1;
        match kind {
            b'$' | b'=' | b'!' => {
                if let Some(length) = number(rest) {
                    at += length + 2;
                }
            }
            b'*' | b'~' | b'>' => values += number(rest).unwrap_or(0),
            b'%' => values += 2 * number(rest).unwrap_or(0),
            // Attributes come before the value that they describe.
            b'|' => values += 2 * number(rest).unwrap_or(0) + 1,
            _ => {}
        }
        if at > bytes.len() {
            return None;
        }
    }
    Some(at)
}

/// The length of the line, without its end.
fn line(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|end| end == b"\r\n")
}

/// A length, unless it is the negative one of a null.
fn number(text: &[u8]) -> Option<usize> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_end_where_they_do() {
        let replies = [
            "+OK\r\n",
            "-ERR no\r\n",
            ":-1\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "$0\r\n\r\n",
            "$4\r\n\r\n\r\n\r\n",
            "*0\r\n",
            "*3\r\n:1\r\n*1\r\n$1\r\nx\r\n+y\r\n",
            "%1\r\n+a\r\n*2\r\n:1\r\n:2\r\n",
            "|1\r\n+ttl\r\n:1\r\n+value\r\n",
            "_\r\n",
            "=5\r\ntxt:x\r\n",
        ];
        for reply in replies {
            assert_eq!(length(format!("{reply}+more\r\n").as_bytes()), Some(reply.len()), "{reply:?}");
            for cut in 0..reply.len() {
                assert_eq!(length(&reply.as_bytes()[..cut]), None, "{:?}", &reply[..cut]);
            }
        }
    }
}
