//! Which counter a rule and a key have, and what it is called in Redis.

use std::fmt::Write;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use ratekeeper_core::{Key, KeyHash, KeyRef, RuleName};

use crate::slot::slot;

/// A rule and a key, which identify a counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// The same for the same rule and key, within one store.
    pub(crate) hash: u64,
    pub(crate) rule: RuleName,
    pub(crate) key: Key,
    /// Its slot on a cluster.
    pub(crate) slot: u16,
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.rule == other.rule && self.key == other.key
    }
}

impl Eq for Counted {}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// For tables of items that know their hash.
pub(crate) type ByHash = BuildHasherDefault<Known>;

/// Hashes a value that is a hash already.
#[derive(Debug, Default)]
pub(crate) struct Known(u64);

impl Hasher for Known {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Not used: there is only one number.
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Finds counters, and makes their names: `prefix:rule:{caller}`.
///
/// The caller is shown as [`Key`] shows it, so secrets and long keys are digests. The braces are Redis's hash
/// tag: all counters of one caller live on one node of a cluster, so that rules that count by the same key
/// are decided together. Colons in a rule's name and braces in the caller are escaped, so that two different
/// pairs of rule and caller never have the same name, and no caller can choose its node.
#[derive(Debug)]
pub(crate) struct Names {
    prefix: String,
    cluster: bool,
    hash: KeyHash,
}

/// The name of a counter.
pub(crate) type Name = smallvec::SmallVec<[u8; 64]>;

impl Names {
    /// The prefix may not contain braces.
    pub(crate) fn new(prefix: &str, cluster: bool) -> Self {
        Self { prefix: prefix.to_owned(), cluster, hash: KeyHash::random() }
    }

    /// A number by which to find a rule and a key.
    pub(crate) fn hash(&self, rule: RuleName, key: KeyRef<'_>) -> u64 {
        self.hash.hash(rule.id(), &key)
    }

    /// The counter of a rule and a key. Its name is made only when Redis is asked about it, once for all
    /// requests that ask together; but on a cluster the name determines the slot.
    pub(crate) fn counted(&self, rule: RuleName, key: KeyRef<'_>) -> Counted {
        let hash = self.hash(rule, key);
        let mut counted = Counted { hash, rule, key: key.to_key(), slot: 0 };
        if self.cluster {
            counted.slot = slot(&self.name(&counted));
        }
        counted
    }

    pub(crate) fn name(&self, counted: &Counted) -> Name {
        let mut name = Writer(Name::new());
        name.0.extend_from_slice(self.prefix.as_bytes());
        name.0.push(b':');
        name.escape(counted.rule.as_str(), |byte| matches!(byte, b':' | b'{' | b'}' | b'%'));
        name.0.extend_from_slice(b":{");
        // Writing into memory does not fail.
        let _ = write!(Tag(&mut name), "{}", counted.key);
        name.0.push(b'}');
        name.0
    }
}

struct Writer(Name);

impl Writer {
    fn escape(&mut self, text: &str, escaped: impl Fn(u8) -> bool) {
        const HEX: &[u8; 16] = b"0123456789ABCDEF";
        let mut rest = text.as_bytes();
        while let Some(at) = rest.iter().position(|byte| escaped(*byte)) {
            let byte = rest[at];
            self.0.extend_from_slice(&rest[..at]);
            self.0.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            rest = &rest[at + 1..];
        }
        self.0.extend_from_slice(rest);
    }
}

/// Writes the content of the hash tag. The key has escaped its own `%` already.
struct Tag<'a>(&'a mut Writer);

impl Write for Tag<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.escape(text, |byte| matches!(byte, b'{' | b'}'));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use ratekeeper_core::Key;

    use super::*;

    fn name(rule: &str, key: impl Into<Key>) -> String {
        let names = Names::new("ratekeeper", false);
        let name = names.name(&names.counted(RuleName::new(rule).unwrap(), (&key.into()).into()));
        String::from_utf8(name.to_vec()).unwrap()
    }

    #[test]
    fn an_operator_can_read_them() {
        assert_eq!(name("per-user", "alice"), "ratekeeper:per-user:{alice}");
        assert_eq!(name("per-ip", IpAddr::from([203, 0, 113, 9])), "ratekeeper:per-ip:{203.0.113.9}");
        assert_eq!(name("login", ("alice", "/login")), "ratekeeper:login:{alice|/login}");
        assert_eq!(name("all", Key::GLOBAL), "ratekeeper:all:{*}");
        assert_eq!(name("all", Key::from("alice").and(Key::AMBIGUOUS)), "ratekeeper:all:{alice|?}");
    }

    #[test]
    fn secrets_are_digests() {
        let name = name("per-key", Key::secret("hunter2"));
        assert_eq!(name, "ratekeeper:per-key:{secret:f52fbd32b2b3b86ff88ef6c490628285}");
    }

    #[test]
    fn clever_names_do_not_meet() {
        assert_ne!(name("a:{b}", "c"), name("a", "b}:{c"));
        assert_ne!(name("a:", "b"), name("a", ":b"));
        assert_ne!(name("a%3A", "b"), name("a:", "b"));
        assert_ne!(name("a", "%7Bb"), name("a", "{b"));
        assert_ne!(name("a", "b"), name("a", Key::from("b").and("")));
    }

    #[test]
    fn nobody_chooses_a_node() {
        let tag = |name: &str| name[name.find('{').unwrap() + 1..name.find('}').unwrap()].to_owned();
        assert_eq!(tag(&name("a", "{x}y")), "%7Bx%7Dy");
        assert_eq!(tag(&name("{r}", "x")), "x");
        assert_eq!(tag(&name("r", "")), "\"\"", "an empty tag would be none");
    }

    #[test]
    fn they_are_never_long() {
        assert!(name(&"r".repeat(64), "x".repeat(1_000_000)).len() < 128);
    }
}
