//! Hosts: how rules name them, and which spellings are equivalent.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;

/// The maximum length of a host name without a trailing dot: RFC 1035, section 2.3.4, in text form.
const MAX_LEN: usize = 253;
/// The maximum length of a label: RFC 1035, section 2.3.4.
const MAX_LABEL: usize = 63;

/// Hosts that a rule matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostPattern {
    /// This host.
    Exact(Box<str>),
    /// Every host whose name ends in a dot and this name.
    Below(Box<str>),
}

/// What is wrong with a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostProblem {
    Empty,
    Port,
    Url,
    Star,
    EmptyLabel,
    Long,
    LongLabel,
    NotAscii,
    Character(char),
    Hyphen,
    Address,
}

impl fmt::Display for HostProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "a host has a name",
            Self::Port => {
                "a host is written without a port; an IPv6 address stands in brackets, such as `[::1]`"
            }
            Self::Url => "a host is written without a scheme, a user or a path",
            Self::Star => {
                "`*` stands for what comes before a name, such as in `*.example.com`, and nowhere else"
            }
            Self::EmptyLabel => "there is nothing between two dots, or before the first",
            Self::Long => "the name of a host has at most 253 characters",
            Self::LongLabel => "between two dots there are at most 63 characters",
            Self::NotAscii => {
                "requests name such a host in ASCII, in a form that begins with `xn--`: write that"
            }
            Self::Character(bad) => {
                return write!(f, "the name of a host does not have the character {bad:?}");
            }
            Self::Hyphen => "what stands between two dots neither begins nor ends with a hyphen",
            Self::Address => "what stands in brackets is an IPv6 address",
        })
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => f.write_str(host),
            Self::Below(host) => write!(f, "*.{host}"),
        }
    }
}

impl HostPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, HostProblem> {
        if text.is_empty() {
            return Err(HostProblem::Empty);
        }
        if text.contains(['/', '@', '?', '#']) {
            return Err(HostProblem::Url);
        }
        if text.starts_with('[') {
            return address(text).map(|address| Self::Exact(address.into())).ok_or(
                match text.ends_with(']') {
                    true => HostProblem::Address,
                    false => HostProblem::Port,
                },
            );
        }
        let (name, make): (_, fn(Box<str>) -> Self) = match text.strip_prefix("*.") {
            Some(name) => (name, Self::Below),
            None => (text, Self::Exact),
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        check(name)?;
        Ok(make(name.to_ascii_lowercase().into()))
    }
}

/// Whether a host can have this name.
fn check(name: &str) -> Result<(), HostProblem> {
    if !name.is_ascii() {
        return Err(HostProblem::NotAscii);
    }
    if name.contains('*') {
        return Err(HostProblem::Star);
    }
    if name.contains(':') {
        return Err(HostProblem::Port);
    }
    if name.len() > MAX_LEN {
        return Err(HostProblem::Long);
    }
    for label in name.split('.') {
        // Underscores are not allowed in host names, but are common in practice.
        if let Some(bad) = label.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_')) {
            return Err(HostProblem::Character(bad));
        }
        if label.is_empty() {
            return Err(HostProblem::EmptyLabel);
        }
        if label.len() > MAX_LABEL {
            return Err(HostProblem::LongLabel);
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Err(HostProblem::Hyphen);
        }
    }
    Ok(())
}

/// The host that an authority names, as written, without port and trailing dot.
pub(crate) fn of_authority(authority: &str) -> Option<&str> {
    // Byte by byte, because this runs for each request and most hosts are short. Everything looked for is
    // ASCII.
    let (mut start, mut end, mut in_brackets) = (0, None, false);
    for (at, byte) in authority.bytes().enumerate() {
        match byte {
            b'@' => (start, end, in_brackets) = (at + 1, None, false),
            b'[' if at == start => in_brackets = true,
            b']' if in_brackets => (end, in_brackets) = (Some(at + 1), false),
            b':' if !in_brackets && end.is_none() => end = Some(at),
            _ => {}
        }
    }
    let host = &authority[start..end.unwrap_or(authority.len())];
    let host = host.strip_suffix('.').unwrap_or(host);
    (!host.is_empty()).then_some(host)
}

/// A host in its normal spelling; `None` if no rule can name it.
///
/// The time that it takes is bounded, however long the host: callers choose it.
pub(crate) fn normal(host: &str) -> Option<Cow<'_, str>> {
    if host.len() > MAX_LEN {
        return None;
    }
    if host.starts_with('[') {
        return address(host).map(Cow::Owned);
    }
    Some(match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(host.to_ascii_lowercase()),
        false => Cow::Borrowed(host),
    })
}

/// An IPv6 address in brackets, in its normal spelling.
fn address(text: &str) -> Option<String> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    inner.parse::<Ipv6Addr>().ok().map(|address| format!("[{address}]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_host_or_all_below_one() {
        let exact = |name: &str| Ok(HostPattern::Exact(name.into()));
        assert_eq!(HostPattern::parse("API.Example.com"), exact("api.example.com"));
        assert_eq!(HostPattern::parse("example.com."), exact("example.com"));
        assert_eq!(HostPattern::parse("localhost"), exact("localhost"));
        assert_eq!(HostPattern::parse("_dmarc.example.com"), exact("_dmarc.example.com"));
        assert_eq!(HostPattern::parse("192.0.2.7"), exact("192.0.2.7"));
        assert_eq!(HostPattern::parse("[2001:DB8:0::1]"), exact("[2001:db8::1]"));
        assert_eq!(HostPattern::parse("*.Example.com"), Ok(HostPattern::Below("example.com".into())));
        let longest = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(61));
        assert_eq!(HostPattern::parse(&longest), exact(&longest));
    }

    #[test]
    fn a_pattern_that_no_host_can_have_is_refused() {
        let long_label = "a".repeat(64);
        let long = ["a".repeat(63).as_str(); 4].join(".");
        for (text, problem) in [
            ("", HostProblem::Empty),
            ("example.com:8080", HostProblem::Port),
            ("::1", HostProblem::Port),
            ("[::1]:8080", HostProblem::Port),
            ("[::1", HostProblem::Port),
            ("[example.com]", HostProblem::Address),
            ("https://example.com", HostProblem::Url),
            ("user@example.com", HostProblem::Url),
            ("example.com/path", HostProblem::Url),
            ("*", HostProblem::Star),
            ("*.", HostProblem::EmptyLabel),
            ("*example.com", HostProblem::Star),
            ("api.*.com", HostProblem::Star),
            ("*.*.com", HostProblem::Star),
            (".example.com", HostProblem::EmptyLabel),
            ("example..com", HostProblem::EmptyLabel),
            ("example.com..", HostProblem::EmptyLabel),
            (".", HostProblem::EmptyLabel),
            ("-a.com", HostProblem::Hyphen),
            ("a-.com", HostProblem::Hyphen),
            ("a b.com", HostProblem::Character(' ')),
            ("{tenant}.example.com", HostProblem::Character('{')),
            ("münchen.example", HostProblem::NotAscii),
            (&long_label, HostProblem::LongLabel),
            (&long, HostProblem::Long),
        ] {
            assert_eq!(HostPattern::parse(text), Err(problem), "{text}");
        }
    }

    #[test]
    fn the_host_of_an_authority_has_no_port_and_no_dot_at_its_end() {
        for (authority, host) in [
            ("example.com", Some("example.com")),
            ("example.com:8080", Some("example.com")),
            ("example.com:", Some("example.com")),
            ("example.com.:443", Some("example.com")),
            ("user:pass@example.com:1", Some("example.com")),
            ("[::1]", Some("[::1]")),
            ("[::1]:8080", Some("[::1]")),
            ("[::1", Some("[::1")),
            ("a:b@[::1]:1", Some("[::1]")),
            ("x]:1", Some("x]")),
            ("", None),
            (":8080", None),
            (".", None),
        ] {
            assert_eq!(of_authority(authority), host, "{authority}");
        }
    }

    #[test]
    fn all_spellings_of_a_host_are_one() {
        assert_eq!(normal("example.com").as_deref(), Some("example.com"));
        assert_eq!(normal("EXAMPLE.com").as_deref(), Some("example.com"));
        assert_eq!(normal("[2001:DB8:0:0::1]").as_deref(), Some("[2001:db8::1]"));
        assert_eq!(normal("[::1%25eth0]"), None);
        assert_eq!(normal(&"a".repeat(254)), None);
    }
}
