//! Reads `Forwarded` (RFC 7239) from its end.
//!
//! A proxy appends its element to whatever the client sent. Only the end of a line is therefore known to be a
//! proxy's, and a line is read from there. A quoted string has one reading from its end: the nearest quote
//! before the closing one that is not escaped opens it. So a well-formed element is read as its proxy wrote
//! it, whatever precedes it. Read from the start, a client's open quote would swallow the proxy's element, and
//! turn the content of its next quoted string into elements.
//!
//! Anything malformed ends the list: what is to the left of it does not count. There are two exceptions,
//! because proxies write these and neither moves the boundary of an element: an unquoted value may have a
//! port or be an IPv6 address, and there may be white space around `;`.

use std::borrow::Cow;
use std::net::IpAddr;

use super::node;

/// The elements of a line, last first: the node that each is for, if that is an address. A malformed element
/// is the last one, and is for none.
pub(super) struct Elements<'a>(Option<&'a [u8]>);

impl<'a> Elements<'a> {
    pub(super) const fn of(line: &'a [u8]) -> Self {
        Self(Some(line))
    }
}

impl Iterator for Elements<'_> {
    type Item = Option<IpAddr>;

    fn next(&mut self) -> Option<Self::Item> {
        let (node, before) = last_element(self.0?).unwrap_or_default();
        self.0 = before;
        Some(node)
    }
}

/// The part of a line of `Forwarded` that can be trusted as far as its proxies can: its well-formed elements
/// at the end.
///
/// A proxy that appends to this, instead of the line as it came, leaves nothing to its upstream that parsers
/// disagree about.
#[doc(hidden)]
#[must_use]
pub fn intact_forwarded(line: &[u8]) -> &[u8] {
    let mut rest = line;
    loop {
        match last_element(rest) {
            Some((_, Some(before))) => rest = before,
            Some((_, None)) => return line,
            // After the comma that ends the malformed element.
            None => return line.get(rest.len() + 1..).unwrap_or_default().trim_ascii_start(),
        }
    }
}

/// The node that the last element is for, if that is an address, and what is before the element, if anything.
/// `None` if the element is malformed.
fn last_element(line: &[u8]) -> Option<(Option<IpAddr>, Option<&[u8]>)> {
    let (mut rest, mut node, mut is_separated) = (line, None, true);
    loop {
        rest = trim_end(rest);
        let Some((last, before)) = rest.split_last() else { return Some((node.flatten(), None)) };
        match last {
            b',' => return Some((node.flatten(), Some(before))),
            b';' => (rest, is_separated) = (before, true),
            _ if is_separated => {
                let (pair, before) = last_pair(rest)?;
                if pair.name.eq_ignore_ascii_case(b"for") {
                    let address = std::str::from_utf8(&pair.value).ok().and_then(node::address);
                    // Each parameter may occur once in an element.
                    if node.replace(address).is_some() {
                        return None;
                    }
                }
                (rest, is_separated) = (before, false);
            }
            _ => return None,
        }
    }
}

struct Pair<'a> {
    name: &'a [u8],
    value: Cow<'a, [u8]>,
}

/// The last parameter, and what is before it.
fn last_pair(rest: &[u8]) -> Option<(Pair<'_>, &[u8])> {
    let (value, rest) = match rest.strip_suffix(b"\"") {
        Some(rest) => last_quoted(rest)?,
        None => {
            let (value, rest) = last_while(rest, |byte| is_token(byte) || b":[]".contains(&byte))?;
            (Cow::Borrowed(value), rest)
        }
    };
    let (name, before) = last_while(rest.strip_suffix(b"=")?, is_token)?;
    Some((Pair { name, value }, before))
}

/// The content of the quoted string (RFC 9110, section 5.6.4) whose closing quote comes next, and what is
/// before its opening quote.
fn last_quoted(rest: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let mut end = rest.len();
    // A quote after an odd number of backslashes is escaped.
    let is_escaped = |end: usize| {
        let backslashes = rest[..end].iter().rev().take_while(|byte| **byte == b'\\').count();
        backslashes % 2 == 1
    };
    if is_escaped(end) {
        return None;
    }
    loop {
        end = rest[..end].iter().rposition(|byte| *byte == b'"')?;
        if !is_escaped(end) {
            return Some((unescape(&rest[end + 1..]), &rest[..end]));
        }
    }
}

fn unescape(content: &[u8]) -> Cow<'_, [u8]> {
    if !content.contains(&b'\\') {
        return Cow::Borrowed(content);
    }
    let mut bytes = content.iter().copied();
    let next = || bytes.next().and_then(|byte| if byte == b'\\' { bytes.next() } else { Some(byte) });
    Cow::Owned(std::iter::from_fn(next).collect())
}

/// The bytes at the end that satisfy the predicate, of which there is at least one, and what is before them.
fn last_while(rest: &[u8], is_part: impl Fn(u8) -> bool) -> Option<(&[u8], &[u8])> {
    let before = rest.iter().rposition(|byte| !is_part(*byte)).map_or(0, |at| at + 1);
    let (before, found) = rest.split_at(before);
    (!found.is_empty()).then_some((found, before))
}

/// Without white space at its end.
fn trim_end(rest: &[u8]) -> &[u8] {
    let end = rest.iter().rposition(|byte| !matches!(byte, b' ' | b'\t')).map_or(0, |at| at + 1);
    &rest[..end]
}

/// RFC 9110, section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
