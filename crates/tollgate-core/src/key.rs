//! Who is being counted.

use std::fmt;
use std::net::IpAddr;

use sha2::{Digest, Sha256};

/// How many bytes of parts a key holds.
const CAPACITY: usize = 62;
/// What each part costs beside its bytes: its kind and its length.
const HEAD: usize = 2;
/// The longest part that is kept as it is; a longer one is kept as its digest.
const MAX_PART: usize = 46;
const DIGEST: usize = 32;
/// How many bytes of a digest are shown.
const SHOWN: usize = 16;

/// What a part is. Two parts are equal only if their kinds are, so that a text never passes for an
/// address or a number.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Text = 1,
    Secret,
    Number,
    V4,
    V6,
    /// The SHA-256 of a part, or of several, that would not fit.
    Digest,
}

impl Kind {
    const fn of(byte: u8) -> Self {
        match byte {
            1 => Self::Text,
            2 => Self::Secret,
            3 => Self::Number,
            4 => Self::V4,
            5 => Self::V6,
            _ => Self::Digest,
        }
    }
}

/// Who is being counted: one or several parts, such as an address, an API key, a user's number.
///
/// A key takes 64 bytes, whatever it is made from: a part that is too long is kept as its SHA-256,
/// and so are several that are too long together. Different parts make different keys: `("a", "bc")`
/// is not `("ab", "c")`, nor is the text `7` the number 7.
///
/// A secret part (see [`Key::secret`]) is never shown, only a digest of it.
///
/// ```
/// use tollgate_core::Key;
///
/// let key = Key::from("alice").and("/login");
/// assert_eq!(key.to_string(), "alice|/login");
/// assert_eq!(Key::secret("hunter2").to_string(), "secret:f52fbd32b2b3b86ff88ef6c490628285");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    len: u8,
    // Zero beyond `len`, so that equal keys are equal bytes.
    bytes: [u8; CAPACITY],
}

impl Key {
    /// The key without parts: one counter for all.
    pub const GLOBAL: Self = Self { len: 0, bytes: [0; CAPACITY] };

    /// A key that must not be seen, such as an API key or a token: it is shown only as a digest.
    #[must_use]
    pub fn secret(secret: impl AsRef<[u8]>) -> Self {
        Self::GLOBAL.with(Kind::Secret, secret.as_ref())
    }

    /// This key with another part (or the parts of another key) after its own.
    #[must_use]
    pub fn and(self, other: impl Into<Self>) -> Self {
        let other = other.into();
        let (mine, theirs) = (usize::from(self.len), usize::from(other.len));
        let mut key = self;
        if let Some(room) = key.bytes.get_mut(mine..mine + theirs) {
            room.copy_from_slice(&other.bytes[..theirs]);
            key.len += other.len;
            return key;
        }
        let mut hash = Sha256::new();
        hash.update(self.as_bytes());
        hash.update(other.as_bytes());
        Self::GLOBAL.with(Kind::Digest, &hash.finalize())
    }

    /// The parts in a form that is different for different keys. It is not meant to be read, and may
    /// hold secrets.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Whether a part of the key is a secret.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        self.parts().any(|(kind, _)| kind == Kind::Secret)
    }

    /// This key with each of its parts made a secret.
    #[must_use]
    pub fn into_secret(self) -> Self {
        let mut key = self;
        let mut at = 0;
        while at < usize::from(key.len) {
            if key.bytes[at] == Kind::Text as u8 {
                key.bytes[at] = Kind::Secret as u8;
            }
            at += HEAD + usize::from(key.bytes[at + 1]);
        }
        key
    }

    fn with(self, kind: Kind, part: &[u8]) -> Self {
        if part.len() > MAX_PART {
            return self.with(Kind::Digest, &Sha256::digest(part));
        }
        let start = usize::from(self.len);
        let end = start + HEAD + part.len();
        let mut key = self;
        key.bytes[start] = kind as u8;
        key.bytes[start + 1] = part.len() as u8;
        key.bytes[start + HEAD..end].copy_from_slice(part);
        key.len = end as u8;
        key
    }

    fn parts(&self) -> impl Iterator<Item = (Kind, &[u8])> {
        let mut rest = self.as_bytes();
        std::iter::from_fn(move || {
            let [kind, len, after @ ..] = rest else { return None };
            let (part, after) = after.split_at(usize::from(*len));
            rest = after;
            Some((Kind::of(*kind), part))
        })
    }
}

// A part with its head must fit into an empty key.
const _: () = assert!(HEAD + MAX_PART <= CAPACITY && DIGEST <= MAX_PART && size_of::<Key>() <= 64);

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self::from(text.as_bytes())
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Self::from(text.as_bytes())
    }
}

impl From<&String> for Key {
    fn from(text: &String) -> Self {
        Self::from(text.as_bytes())
    }
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Self {
        Self::GLOBAL.with(Kind::Text, bytes)
    }
}

impl From<u64> for Key {
    fn from(number: u64) -> Self {
        Self::GLOBAL.with(Kind::Number, &number.to_be_bytes())
    }
}

impl From<u32> for Key {
    fn from(number: u32) -> Self {
        Self::from(u64::from(number))
    }
}

impl From<IpAddr> for Key {
    /// The address as it is, except that an IPv4-mapped IPv6 address is the IPv4 address.
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self::GLOBAL.with(Kind::V4, &v4.octets()),
            IpAddr::V6(v6) => Self::GLOBAL.with(Kind::V6, &v6.octets()),
        }
    }
}

impl From<()> for Key {
    fn from((): ()) -> Self {
        Self::GLOBAL
    }
}

impl From<&Self> for Key {
    fn from(key: &Self) -> Self {
        *key
    }
}

impl<A: Into<Self>, B: Into<Self>> From<(A, B)> for Key {
    fn from((a, b): (A, B)) -> Self {
        a.into().and(b)
    }
}

impl<A: Into<Self>, B: Into<Self>, C: Into<Self>> From<(A, B, C)> for Key {
    fn from((a, b, c): (A, B, C)) -> Self {
        a.into().and(b).and(c)
    }
}

/// The parts, joined by `|`. Different keys are shown differently: numbers with a `#`, secrets and
/// long parts as a digest, `|`, `%` and what is not printable as `%XX`, and a text that could be
/// mistaken for any of these, or for an address, in quotes.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.len == 0 {
            return f.write_str("*");
        }
        for (i, (kind, part)) in self.parts().enumerate() {
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
                Kind::Digest => hex(f, "sha256", part)?,
                Kind::Number => write!(f, "#{}", part.iter().fold(0, |n, b| n << 8 | u64::from(*b)))?,
                Kind::V4 => write!(f, "{}", IpAddr::from(octets::<4>(part)))?,
                Kind::V6 => write!(f, "{}", IpAddr::from(octets::<16>(part)))?,
            }
        }
        Ok(())
    }
}

fn is_ambiguous(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    ["#", "secret:", "sha256:"].iter().any(|start| text.starts_with(start))
        || ["", "*"].contains(&text)
        || text.parse::<IpAddr>().is_ok()
}

fn octets<const N: usize>(part: &[u8]) -> [u8; N] {
    part.try_into().unwrap_or([0; N])
}

fn text(f: &mut fmt::Formatter<'_>, part: &[u8]) -> fmt::Result {
    for chunk in part.utf8_chunks() {
        for c in chunk.valid().chars() {
            if matches!(c, '|' | '%' | '"' | ' ') || c.is_control() {
                let mut buffer = [0; 4];
                c.encode_utf8(&mut buffer).bytes().try_for_each(|byte| write!(f, "%{byte:02X}"))?;
            } else {
                write!(f, "{c}")?;
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_parts_make_different_keys() {
        let address: IpAddr = "1.2.3.4".parse().unwrap();
        let keys = [
            Key::GLOBAL,
            Key::from(""),
            Key::from("a"),
            Key::from(("a", "bc")),
            Key::from(("ab", "c")),
            Key::from("abc"),
            Key::from("a|bc"),
            Key::from("7"),
            Key::from(7u64),
            Key::from(7u64.to_be_bytes().as_slice()),
            Key::from(address),
            Key::from([1u8, 2, 3, 4].as_slice()),
            Key::from("1.2.3.4"),
            Key::from("\"1.2.3.4\""),
            Key::from("*"),
            Key::from("#7"),
            Key::secret("a"),
            Key::from("x".repeat(100)),
            Key::from("x".repeat(101)),
            Key::from("a").and("x".repeat(100)),
            Key::from("a").and("x".repeat(40)).and("x".repeat(40)),
            Key::from("a").and("x".repeat(40)).and("x".repeat(41)),
        ];
        for (i, a) in keys.iter().enumerate() {
            for b in &keys[i + 1..] {
                assert_ne!(a, b);
                assert_ne!(a.as_bytes(), b.as_bytes());
                assert_ne!(a.to_string(), b.to_string());
            }
        }
    }

    #[test]
    fn a_mapped_address_is_the_address() {
        let mapped: IpAddr = "::ffff:1.2.3.4".parse().unwrap();
        assert_eq!(Key::from(mapped).to_string(), "1.2.3.4");
    }

    #[test]
    fn a_secret_is_not_shown() {
        for secret in ["hunter2".to_owned(), "hunter2".repeat(20)] {
            for key in [
                Key::secret(&secret),
                Key::from(&secret).into_secret(),
                Key::secret(&secret).and("x".repeat(46)),
            ] {
                let shown = format!("{key} {key:?}");
                assert!(!shown.contains("hunter2"), "{shown}");
            }
        }
        assert!(Key::from("a").and(Key::secret("b")).is_secret());
    }

    #[test]
    fn any_bytes_are_shown_without_ambiguity() {
        let key = Key::from([b'a', 0, 0xff, b'|', b'%', b' ', 0xc3, 0xa9].as_slice());
        assert_eq!(key.to_string(), "a%00%FF%7C%25%20é");
    }
}
