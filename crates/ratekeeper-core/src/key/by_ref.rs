//! Keys that need not be built.

use super::{Key, Kind, pack_two, shape};

/// A key by reference, or a text in place of the key made from it.
///
/// Where a text is at hand, building a key from it only to count by it would be wasted work.
#[derive(Clone, Copy, Debug)]
pub struct KeyRef<'a>(Ref<'a>);

#[derive(Clone, Copy, Debug)]
enum Ref<'a> {
    Key(&'a Key),
    Text(&'a str),
}

impl KeyRef<'_> {
    /// The key.
    #[must_use]
    pub fn to_key(self) -> Key {
        match self.0 {
            Ref::Key(key) => *key,
            Ref::Text(text) => Key::from(text),
        }
    }

    /// The key's shape and its words, if there are at most two.
    #[inline]
    pub(crate) fn short(&self) -> Option<(u64, [u64; 2])> {
        match self.0 {
            Ref::Text(text) if text.len() <= 16 => {
                Some((shape(Kind::Text, text.len()), pack_two(text.as_bytes())))
            }
            Ref::Key(key) if key.len <= 16 => Some((key.shape(), [key.words[0], key.words[1]])),
            _ => None,
        }
    }
}

impl<'a> From<&'a Key> for KeyRef<'a> {
    #[inline]
    fn from(key: &'a Key) -> Self {
        Self(Ref::Key(key))
    }
}

impl<'a> From<&'a str> for KeyRef<'a> {
    #[inline]
    fn from(text: &'a str) -> Self {
        Self(Ref::Text(text))
    }
}

impl<'a> From<&'a String> for KeyRef<'a> {
    #[inline]
    fn from(text: &'a String) -> Self {
        Self(Ref::Text(text))
    }
}
