//! Parses what proxies report about the addresses that they forward for.
//!
//! Anybody can send these fields. Nothing here decides whom to trust; see [`client_ip`](super::client_ip).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::{HeaderMap, HeaderName};

/// One hop in a field: an address, or `None` if the entry is not one.
pub(super) type Hop = Option<IpAddr>;

/// The hops of `X-Forwarded-For`, nearest first.
pub(super) fn x_forwarded_for<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = Hop> + 'a {
    // Several lines form one list, in order.
    let lines = headers.get_all(name).into_iter().rev();
    lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b',')).map(|entry| node(text(entry)?))
}

/// The hops of `Forwarded` (RFC 7239), nearest first.
pub(super) fn forwarded<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = Hop> + 'a {
    headers.get_all(name).into_iter().rev().flat_map(|line| {
        let mut hops = Vec::new();
        match text(line.as_bytes()) {
            // Without quotes, every comma ends an element, and a malformed element affects only itself: what
            // a proxy has appended to it counts.
            Some(text) if !text.contains('"') => {
                hops.extend(text.rsplit(',').map(|text| element(text).and_then(|(hop, _)| hop)));
            }
            Some(text) if elements(text, &mut hops).is_some() => hops.reverse(),
            // An unclosed quote may hide what a proxy appended, so nothing in the line counts.
            _ => hops = vec![None],
        }
        hops
    })
}

/// The one address in a proxy's own field, such as `CF-Connecting-IP`.
pub(super) fn single(headers: &HeaderMap, name: &HeaderName) -> Hop {
    let mut lines = headers.get_all(name).into_iter();
    let line = lines.next()?;
    // If there are two lines, somebody other than the proxy wrote one of them.
    if lines.next().is_some() {
        return None;
    }
    node(text(line.as_bytes())?)
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// The `for` of each element, in order. `None` if the field is malformed.
fn elements(mut rest: &str, hops: &mut Vec<Hop>) -> Option<()> {
    loop {
        let (hop, after) = element(rest)?;
        hops.push(hop);
        match after.strip_prefix(',') {
            Some(after) => rest = after,
            None => return after.is_empty().then_some(()),
        }
    }
}

/// The `for` of one element, and what comes after the element.
fn element(mut rest: &str) -> Option<(Hop, &str)> {
    let mut hop = None;
    let mut seen = false;
    loop {
        rest = rest.trim_start();
        if rest.is_empty() || rest.starts_with(',') {
            return Some((hop, rest));
        }
        if let Some(after) = rest.strip_prefix(';') {
            rest = after;
            continue;
        }
        let (name, after) = rest.split_once('=')?;
        if !is_token(name) {
            return None;
        }
        let (value, after) = value(after)?;
        if name.eq_ignore_ascii_case("for") {
            // Each parameter may occur once in an element.
            hop = if seen { None } else { node(&value) };
            seen = true;
        }
        rest = after.trim_start();
        if !(rest.is_empty() || rest.starts_with([';', ','])) {
            return None;
        }
    }
}

/// A token or a quoted string, and what comes after it.
fn value(rest: &str) -> Option<(String, &str)> {
    let Some(quoted) = rest.strip_prefix('"') else {
        let end = rest.find([',', ';', ' ', '\t']).unwrap_or(rest.len());
        let (token, after) = rest.split_at(end);
        return Some((token.to_owned(), after));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// An address, with or without a port: `192.0.2.1`, `192.0.2.1:80`, `[2001:db8::1]:80`, `2001:db8::1`.
fn node(text: &str) -> Hop {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        if !port.is_empty() && !is_port(port.strip_prefix(':')?) {
            return None;
        }
        return v6(address);
    }
    if let Some(address) = v6(text) {
        return Some(address);
    }
    let address = match text.split_once(':') {
        Some((address, port)) if is_port(port) => address,
        Some(_) => return None,
        None => text,
    };
    address.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
}

/// An IPv6 address. Its zone is dropped, because it has a meaning only on its own host.
fn v6(text: &str) -> Hop {
    let address = text.split_once('%').map_or(text, |(address, _)| address);
    address.parse::<Ipv6Addr>().ok().map(|address| IpAddr::V6(address).to_canonical())
}

/// A number, or an underscore and a name (RFC 7239, section 6).
fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(name) => {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        }
        None => text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok(),
    }
}
