//! How a key is shown: readable, without ambiguity, and without its secrets.

use std::fmt;
use std::net::IpAddr;

use sha2::{Digest, Sha256};

use super::{Key, Kind, parts};

/// How many bytes of a digest are shown.
const SHOWN: usize = 16;

/// The parts, joined by `|`. Different keys are shown differently. Numbers are shown with a `#`, secrets and
/// long parts as a digest, an ambiguous part as `?`, a missing one as `-`. Within a text, `|`, `%`, `"`, spaces,
/// control characters and bytes that are not UTF-8 are shown as `%XX`. A text that could be mistaken for any of
/// these, or for an address, is in quotes.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::GLOBAL {
            return f.write_str("*");
        }
        for (i, (kind, part)) in parts(&self.as_parts()).enumerate() {
            if i > 0 {
                f.write_str("|")?;
            }
            match kind {
                Kind::Text if is_ambiguous(part) => {
                    f.write_str("\"")?;
                    text(f, part)?;
                    f.write_str("\"")?;
                }
                Kind::Text => text(f, part)?,
                Kind::Secret => hex(f, "secret", &Sha256::digest(part))?,
                Kind::SecretDigest => hex(f, "secret", part)?,
                Kind::Digest | Kind::Parts => hex(f, "sha256", part)?,
                Kind::Number => write!(f, "#{}", number(part))?,
                Kind::Negative => write!(f, "#-{}", number(part))?,
                Kind::Ambiguous => f.write_str("?")?,
                Kind::Missing => f.write_str("-")?,
                Kind::V4 => write!(f, "{}", IpAddr::from(octets::<4>(part)))?,
                Kind::V6 => write!(f, "{}", IpAddr::from(octets::<16>(part)))?,
            }
        }
        Ok(())
    }
}

fn is_ambiguous(text: &[u8]) -> bool {
    let is_address = || std::str::from_utf8(text).is_ok_and(|text| text.parse::<IpAddr>().is_ok());
    [&b"#"[..], b"secret:", b"sha256:"].iter().any(|start| text.starts_with(start))
        || [&b""[..], b"*", b"?", b"-"].contains(&text)
        // Only few texts need a closer look.
        || (text.iter().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'.' | b':')) && is_address())
}

fn number(part: &[u8]) -> u64 {
    part.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn octets<const N: usize>(part: &[u8]) -> [u8; N] {
    part.try_into().unwrap_or([0; N])
}

fn text(f: &mut fmt::Formatter<'_>, part: &[u8]) -> fmt::Result {
    // Most texts are shown verbatim, and a store may make a name from one for each request.
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'|' | b'%' | b'"');
    if let (true, Ok(plain)) = (part.iter().all(is_plain), std::str::from_utf8(part)) {
        return f.write_str(plain);
    }
    for chunk in part.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(at) = rest.find(|c: char| matches!(c, '|' | '%' | '"' | ' ') || c.is_control()) {
            f.write_str(&rest[..at])?;
            let escaped = rest[at..].chars().next().map_or(0, char::len_utf8);
            rest[at..at + escaped].bytes().try_for_each(|byte| write!(f, "%{byte:02X}"))?;
            rest = &rest[at + escaped..];
        }
        f.write_str(rest)?;
        chunk.invalid().iter().try_for_each(|byte| write!(f, "%{byte:02X}"))?;
    }
    Ok(())
}

fn hex(f: &mut fmt::Formatter<'_>, label: &str, digest: &[u8]) -> fmt::Result {
    write!(f, "{label}:")?;
    digest.iter().take(SHOWN).try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}
