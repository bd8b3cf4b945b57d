//! Who is being counted.

mod by_ref;
mod from;
mod show;

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

pub use self::by_ref::KeyRef;

/// How many words a key holds.
pub(crate) const WORDS: usize = 7;
const CAPACITY: usize = WORDS * 8;
/// What each of several parts takes in addition to its bytes: its kind and its length.
const HEAD: usize = 2;
/// The longest part that is kept verbatim; a longer one is kept as its digest.
const MAX_PART: usize = CAPACITY - HEAD;

/// What a part is. Two parts are equal only if their kinds are, so a text is never mistaken for an address or
/// a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
enum Kind {
    /// Several parts, or none: each with its kind and its length before its bytes.
    Parts,
    Text,
    Secret,
    Number,
    /// A number below zero, without its sign.
    Negative,
    V4,
    V6,
    /// The SHA-256 of bytes that would not fit.
    Digest,
    /// The same, if any of them are secret.
    SecretDigest,
    /// The identity is ambiguous. It has no bytes.
    Ambiguous,
    /// A part that the caller does not have. It has no bytes.
    Missing,
}

impl Kind {
    const fn of(byte: u8) -> Self {
        match byte {
            1 => Self::Text,
            2 => Self::Secret,
            3 => Self::Number,
            4 => Self::Negative,
            5 => Self::V4,
            6 => Self::V6,
            7 => Self::Digest,
            8 => Self::SecretDigest,
            9 => Self::Ambiguous,
            10 => Self::Missing,
            _ => Self::Parts,
        }
    }
}

/// Who is being counted: one or several parts, such as an address, an API key, a user's number.
///
/// A key takes 64 bytes, whatever it is made from: a part that is too long is kept as its SHA-256, and so are
/// several parts that are too long together. Different parts make different keys: `("a", "bc")` is not
/// `("ab", "c")`, nor is the text `7` the number 7.
///
/// A secret part (see [`Key::secret`]) is never shown, only a digest of it.
///
/// ```
/// use ratekeeper_core::Key;
///
/// let key = Key::from("alice").and("/login");
/// assert_eq!(key.to_string(), "alice|/login");
/// assert_eq!(Key::secret("hunter2").to_string(), "secret:f52fbd32b2b3b86ff88ef6c490628285");
/// ```
// Words rather than bytes, because a store hashes the key right after it was made: reading words from where
// single bytes were just written stalls the processor.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// The bytes, in little-endian words; zero beyond `len`.
    words: [u64; WORDS],
    len: u8,
    kind: Kind,
}

// Smaller where 64-bit integers are aligned to four bytes.
const _: () = assert!(size_of::<Key>() <= 64);

impl Key {
    /// The key without parts: one counter for all.
    pub const GLOBAL: Self = Self { words: [0; WORDS], len: 0, kind: Kind::Parts };

    /// The key of callers whose identity is ambiguous, because they present several values that differ.
    ///
    /// All of them share one counter, which nobody else uses. It is a part like any other:
    /// `("a", Key::AMBIGUOUS)` is not `(Key::AMBIGUOUS, "a")`.
    pub const AMBIGUOUS: Self = Self { words: [0; WORDS], len: 0, kind: Kind::Ambiguous };

    /// A part that the caller does not have, beside parts that it has.
    ///
    /// It keeps the place of that part: `("a", Key::MISSING)` is neither `"a"` nor `(Key::MISSING, "a")`.
    pub const MISSING: Self = Self { words: [0; WORDS], len: 0, kind: Kind::Missing };

    /// A key that must stay secret, such as an API key or a token: only a digest of it is shown.
    #[must_use]
    pub fn secret(secret: impl AsRef<[u8]>) -> Self {
        Self::of(Kind::Secret, secret.as_ref())
    }

    /// This key with another part (or the parts of another key) after its own.
    ///
    /// Several parts that are too long together are kept as a digest, and then the order in which they were
    /// combined matters: `a.and(b).and(c)`, as tuples do, is not `a.and(b.and(c))`.
    #[must_use]
    pub fn and(self, other: impl Into<Self>) -> Self {
        let other = other.into();
        // A key of one part is kept without its head, however it was combined.
        if self == Self::GLOBAL || other == Self::GLOBAL {
            return if other == Self::GLOBAL { self } else { other };
        }
        let (mine, theirs) = (self.as_parts(), other.as_parts());
        let mut bytes = mine.to_vec();
        bytes.extend_from_slice(&theirs);
        if bytes.len() > CAPACITY {
            // The digest is inverted, so that nobody can find anything that it is the digest of. Otherwise a
            // single part with exactly these bytes, or with their digest, could be shown the same.
            let is_secret = self.is_secret() || other.is_secret();
            let digest: [u8; 32] = Sha256::digest(&bytes).into();
            return Self::digested(digest.map(|byte| !byte), is_secret);
        }
        let mut key = Self { len: bytes.len() as u8, ..Self::GLOBAL };
        pack(&mut key.words, &bytes);
        key
    }

    /// Whether a part of the key is a secret.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        parts(&self.as_parts()).any(|(kind, _)| matches!(kind, Kind::Secret | Kind::SecretDigest))
    }

    /// This key with each of its texts turned into a secret.
    #[must_use]
    pub fn into_secret(self) -> Self {
        let secret = |kind| match kind {
            Kind::Text => Kind::Secret,
            Kind::Digest => Kind::SecretDigest,
            other => other,
        };
        if self.kind != Kind::Parts {
            return Self { kind: secret(self.kind), ..self };
        }
        let own = self.as_parts();
        parts(&own).fold(Self::GLOBAL, |key, (kind, part)| key.and(Self::of(secret(kind), part)))
    }

    pub(crate) const fn words(&self) -> &[u64; WORDS] {
        &self.words
    }

    #[inline]
    pub(crate) const fn shape(&self) -> u64 {
        shape(self.kind, self.len())
    }

    const fn len(&self) -> usize {
        self.len as usize
    }

    /// A key of one part.
    #[inline]
    fn of(kind: Kind, part: &[u8]) -> Self {
        if part.len() > MAX_PART {
            return Self::digest(part, kind == Kind::Secret);
        }
        let mut key = Self { words: [0; WORDS], len: part.len() as u8, kind };
        pack(&mut key.words, part);
        key
    }

    #[cold]
    fn digest(bytes: &[u8], is_secret: bool) -> Self {
        Self::digested(Sha256::digest(bytes).into(), is_secret)
    }

    fn digested(digest: [u8; 32], is_secret: bool) -> Self {
        Self::of(if is_secret { Kind::SecretDigest } else { Kind::Digest }, &digest)
    }

    /// The key in the form that it has within a key of several parts.
    fn as_parts(&self) -> SmallVec<[u8; 64]> {
        let mut bytes = SmallVec::new();
        if self.kind != Kind::Parts {
            bytes.extend([self.kind as u8, self.len]);
        }
        let mut own = [0; 8 * WORDS];
        for (bytes, word) in own.chunks_exact_mut(8).zip(self.words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&own[..self.len()]);
        bytes
    }
}

/// Length and kind: if these are equal too, equal words mean equal keys.
#[inline]
const fn shape(kind: Kind, len: usize) -> u64 {
    (len as u64) << 8 | kind as u64
}

/// Packs bytes into words that are zero.
#[inline]
fn pack(words: &mut [u64; WORDS], bytes: &[u8]) {
    if bytes.len() <= 16 {
        let [first, second] = pack_two(bytes);
        words[0] = first;
        words[1] = second;
        return;
    }
    for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
        *word = chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
}

/// Up to 16 bytes in two words.
#[inline]
fn pack_two(bytes: &[u8]) -> [u64; 2] {
    match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(first), Some(last)) => {
            // The last eight bytes, minus those that are in the first word.
            let rest = 8 * (bytes.len() as u32 - 8);
            let second = u64::from_le_bytes(*last).checked_shr(64 - rest).unwrap_or(0);
            [u64::from_le_bytes(*first), second]
        }
        _ => [bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)), 0],
    }
}

/// The parts of a key of several parts.
fn parts(mut rest: &[u8]) -> impl Iterator<Item = (Kind, &[u8])> {
    std::iter::from_fn(move || {
        let [kind, len, after @ ..] = rest else { return None };
        let (part, after) = after.split_at(usize::from(*len));
        rest = after;
        Some((Kind::of(*kind), part))
    })
}

#[cfg(test)]
mod tests;
