//! Which node has which slots.

use redis::{ErrorKind, RedisError, Value};

pub(in crate::cluster) use crate::connection::Address;
use crate::slot::SLOTS;

/// The master of each slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::cluster) struct Map {
    pub(in crate::cluster) nodes: Vec<Address>,
    /// For each slot, the number of its node.
    pub(in crate::cluster) slots: Vec<Option<u16>>,
}

impl Map {
    /// Reads the answer to `CLUSTER SLOTS`. A node that does not know its own host is on the host that was
    /// `asked`.
    pub(in crate::cluster) fn read(answer: &Value, asked: &Address) -> Result<Self, RedisError> {
        let garbled = || {
            RedisError::from((
                ErrorKind::UnexpectedReturnType,
                "CLUSTER SLOTS was answered with something else",
            ))
        };
        let Value::Array(ranges) = answer else { return Err(garbled()) };
        let mut map = Self { nodes: Vec::new(), slots: vec![None; usize::from(SLOTS)] };
        for range in ranges {
            let Value::Array(range) = range else { return Err(garbled()) };
            let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &**range else {
                return Err(garbled());
            };
            let [host, Value::Int(port), ..] = &**master else { return Err(garbled()) };
            let host = match host {
                Value::BulkString(host) if is_known(host) => String::from_utf8_lossy(host).into_owned(),
                Value::SimpleString(host) if is_known(host.as_bytes()) => host.clone(),
                _ => asked.0.clone(),
            };
            let port = u16::try_from(*port).map_err(|_| garbled())?;
            let (Ok(first), Ok(last)) = (usize::try_from(*first), usize::try_from(*last)) else {
                return Err(garbled());
            };
            let node = map.number(&(host, port));
            map.slots.get_mut(first..=last).ok_or_else(garbled)?.fill(Some(node));
        }
        if map.nodes.is_empty() {
            return Err(RedisError::from((ErrorKind::UnexpectedReturnType, "the cluster has no slots")));
        }
        Ok(map)
    }

    /// The node of a slot.
    pub(in crate::cluster) fn node(&self, slot: u16) -> Option<&Address> {
        let node = self.slots.get(usize::from(slot)).copied()??;
        self.nodes.get(usize::from(node))
    }

    /// Whether each slot has the same node in both.
    pub(in crate::cluster) fn agrees(&self, other: &Self) -> bool {
        // Addresses are compared once, and then numbers.
        let theirs = |node: &Address| other.nodes.iter().position(|their| their == node);
        let theirs: Vec<_> = self.nodes.iter().map(|node| theirs(node).map(|number| number as u16)).collect();
        let slots = self.slots.iter().zip(&other.slots);
        self.slots.len() == other.slots.len()
            && slots.into_iter().all(|(ours, their)| match (ours, their) {
                (Some(ours), Some(their)) => theirs.get(usize::from(*ours)) == Some(&Some(*their)),
                (ours, their) => ours.is_none() && their.is_none(),
            })
    }

    /// Whether a node has any slots.
    pub(in crate::cluster) fn has_slots(&self, address: &Address) -> bool {
        self.slots_of(address).next().is_some()
    }

    /// Some slots of a node: its first, one in the middle and its last. Where slots are moved in order, they
    /// do not move at the same time.
    pub(in crate::cluster) fn some_slots(&self, address: &Address) -> Vec<u16> {
        let own: Vec<u16> = self.slots_of(address).collect();
        let some = [own.first(), own.get(own.len() / 2), own.last()];
        let mut some: Vec<u16> = some.into_iter().flatten().copied().collect();
        some.dedup();
        some
    }

    fn slots_of(&self, address: &Address) -> impl Iterator<Item = u16> {
        let number = self.nodes.iter().position(|node| node == address).map(|number| number as u16);
        let of_node =
            move |(slot, node): (u16, &Option<u16>)| (number.is_some() && *node == number).then_some(slot);
        (0..).zip(&self.slots).filter_map(of_node)
    }

    /// Notes that a slot has moved to this node.
    pub(in crate::cluster) fn set(&mut self, slot: u16, address: &Address) {
        let node = self.number(address);
        if let Some(entry) = self.slots.get_mut(usize::from(slot)) {
            *entry = Some(node);
        }
    }

    /// Fills each slot that has no node with its node in another map.
    pub(in crate::cluster) fn fill(&mut self, other: &Self) {
        for slot in 0..SLOTS {
            if let (None, Some(node)) = (self.node(slot), other.node(slot)) {
                self.set(slot, node);
            }
        }
    }

    fn number(&mut self, address: &Address) -> u16 {
        let known = self.nodes.iter().position(|node| node == address).unwrap_or_else(|| {
            self.nodes.push(address.clone());
            self.nodes.len() - 1
        });
        known as u16
    }
}

/// Whether a node knows its own host.
fn is_known(host: &[u8]) -> bool {
    !host.is_empty() && host != b"?"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: i64, last: i64, host: &str, port: i64) -> Value {
        let master = Value::Array(vec![Value::BulkString(host.into()), Value::Int(port)]);
        Value::Array(vec![Value::Int(first), Value::Int(last), master])
    }

    #[test]
    fn it_reads_what_redis_says() {
        let asked = ("asked".to_owned(), 1);
        let answer = Value::Array(vec![range(0, 99, "a", 7), range(100, 16_383, "", 8)]);
        let mut map = Map::read(&answer, &asked).unwrap();
        assert_eq!(map.node(99), Some(&("a".to_owned(), 7)));
        assert_eq!(map.node(100), Some(&("asked".to_owned(), 8)), "a node that does not know where it is");
        let unknown = Map::read(&Value::Array(vec![range(0, 16_383, "?", 8)]), &asked).unwrap();
        assert_eq!(unknown.node(100), Some(&("asked".to_owned(), 8)));
        map.set(100, &("b".to_owned(), 9));
        assert_eq!(map.node(100), Some(&("b".to_owned(), 9)));
        assert_eq!(map.node(101), Some(&("asked".to_owned(), 8)));
        for (host, port, has_slots) in [("a", 7, true), ("b", 9, true), ("a", 8, false)] {
            assert_eq!(map.has_slots(&(host.to_owned(), port)), has_slots, "{host}:{port}");
        }
        for (host, port, slots) in [("a", 7, &[0, 50, 99][..]), ("b", 9, &[100]), ("a", 8, &[])] {
            assert_eq!(map.some_slots(&(host.to_owned(), port)), slots, "{host}:{port}");
        }
        let before = map.clone();
        assert!(map.agrees(&before) && !map.agrees(&unknown));
        map.set(100, &("a".to_owned(), 7));
        assert!(!map.has_slots(&("b".to_owned(), 9)), "it had only this one");
        assert!(!map.agrees(&before));
        let mut part = Map::read(&Value::Array(vec![range(0, 9, "c", 1)]), &asked).unwrap();
        part.fill(&before);
        assert_eq!(part.node(9), Some(&("c".to_owned(), 1)));
        assert_eq!(part.node(10), Some(&("a".to_owned(), 7)));
    }

    #[test]
    fn nonsense_is_an_error() {
        let asked = ("asked".to_owned(), 1);
        for answer in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![Value::Nil]),
            Value::Array(vec![range(0, 16_384, "a", 7)]),
            Value::Array(vec![range(9, 3, "a", 7)]),
            Value::Array(vec![range(-1, 3, "a", 7)]),
            Value::Array(vec![range(0, 3, "a", 70_000)]),
        ] {
            assert!(Map::read(&answer, &asked).is_err(), "{answer:?}");
        }
    }
}
