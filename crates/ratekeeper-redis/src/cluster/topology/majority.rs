//! Decides which node has which slots when the nodes disagree.

use super::slot_map::{Address, Map};
use crate::slot::SLOTS;

/// The node of each slot, according to the nodes' answers.
///
/// A node that has lost sight of the others keeps reporting what was, and one that has forgotten them reports
/// only itself. So a slot goes to the node that most name. In a tie, it goes to the node named by the answer
/// that knows of more slots, and then to the one believed so far. No node that has answered gets a slot that
/// it says is not its own: the others may not have heard of that yet.
pub(super) fn elect(answers: &[(Address, Map)], believed: &Map) -> Map {
    let mut nodes: Vec<&Address> = answers.iter().flat_map(|(_, map)| &map.nodes).collect();
    nodes.sort();
    nodes.dedup();
    let number = |node: &Address| nodes.binary_search(&node).ok();
    let ballots: Vec<Ballot<'_>> = answers.iter().map(|(_, map)| Ballot::new(map, number)).collect();
    let mut own = vec![None; nodes.len()];
    for (ballot, (asked, _)) in ballots.iter().zip(answers) {
        if let Some(node) = number(asked) {
            own[node] = Some(ballot);
        }
    }
    let believed = Ballot::new(believed, number);
    let mut map = Map { nodes: Vec::new(), slots: vec![None; usize::from(SLOTS)] };
    let mut votes = vec![Votes::default(); nodes.len()];
    // Usually the next slot belongs to the same node, which need not be looked for again.
    let mut last = None;
    for slot in 0..SLOTS {
        votes.fill(Votes::default());
        for ballot in &ballots {
            if let Some(node) = ballot.node(slot) {
                votes[node].add(ballot);
            }
        }
        if let Some(node) = believed.node(slot) {
            votes[node].believed = true;
        }
        let is_willing = |node: &usize| own[*node].is_none_or(|ballot| ballot.node(slot) == Some(*node));
        let named = (0..nodes.len()).filter(|node| votes[*node].count > 0).filter(is_willing);
        match (named.max_by_key(|node| votes[*node]), last) {
            (None, _) => {}
            (Some(node), Some((same, number))) if node == same => {
                map.slots[usize::from(slot)] = Some(number);
            }
            (Some(node), _) => {
                map.set(slot, nodes[node]);
                last = map.slots[usize::from(slot)].map(|number| (node, number));
            }
        }
    }
    map
}

/// What speaks for a node, the weightiest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Votes {
    count: usize,
    /// The largest number of slots that any answer naming it knows of.
    known: usize,
    believed: bool,
}

impl Votes {
    fn add(&mut self, ballot: &Ballot<'_>) {
        self.count += 1;
        self.known = self.known.max(ballot.known);
    }
}

/// A map whose nodes are numbered alike in all ballots.
struct Ballot<'a> {
    map: &'a Map,
    /// `None` for a node that no answer names.
    numbers: Vec<Option<usize>>,
    known: usize,
}

impl<'a> Ballot<'a> {
    fn new(map: &'a Map, number: impl Fn(&Address) -> Option<usize>) -> Self {
        let numbers = map.nodes.iter().map(number).collect();
        Self { map, numbers, known: map.slots.iter().flatten().count() }
    }

    fn node(&self, slot: u16) -> Option<usize> {
        let number = self.map.slots.get(usize::from(slot)).copied()??;
        self.numbers.get(usize::from(number)).copied()?
    }
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use super::*;

    const ALL: RangeInclusive<u16> = 0..=SLOTS - 1;

    fn at(port: u16) -> Address {
        ("host".to_owned(), port)
    }

    fn map(ranges: &[(RangeInclusive<u16>, u16)]) -> Map {
        let mut map = Map { nodes: Vec::new(), slots: vec![None; usize::from(SLOTS)] };
        for (range, port) in ranges {
            range.clone().for_each(|slot| map.set(slot, &at(*port)));
        }
        map
    }

    #[test]
    fn most_are_believed() {
        let (was, is) = (map(&[(0..=99, 1), (100..=199, 2)]), map(&[(0..=99, 3), (100..=199, 2)]));
        let said = [(at(1), was.clone()), (at(2), is.clone()), (at(3), is.clone())];
        let elected = elect(&said, &was);
        assert!(elected.agrees(&is));
        assert_eq!(elected.nodes, [at(3), at(2)], "who has nothing is left out");
    }

    #[test]
    fn what_one_does_not_know_the_others_do() {
        let whole = map(&[(0..=99, 1), (100..=16_383, 2)]);
        let forgetful = map(&[(0..=99, 1)]);
        for said in [
            [(at(1), forgetful.clone()), (at(2), whole.clone())],
            [(at(2), whole.clone()), (at(1), forgetful)],
        ] {
            assert!(elect(&said, &Map::default()).agrees(&whole));
        }
    }

    #[test]
    fn of_two_who_disagree_the_one_is_believed_who_knows_of_more() {
        let (forgetful, whole) = (map(&[(0..=99, 1)]), map(&[(0..=99, 3), (100..=199, 2)]));
        let said = [(at(1), forgetful.clone()), (at(2), whole.clone())];
        assert!(elect(&said, &forgetful).agrees(&whole));
    }

    #[test]
    fn between_equals_nothing_changes() {
        let (one, other) = (map(&[(ALL, 1)]), map(&[(ALL, 2)]));
        let said = [(at(1), one.clone()), (at(2), other.clone())];
        assert!(elect(&said, &one).agrees(&one));
        assert!(elect(&said, &other).agrees(&other));
    }

    #[test]
    fn who_says_that_a_slot_is_not_its_own_does_not_get_it() {
        let (was, is) = (map(&[(0..=99, 1)]), map(&[(0..=98, 1), (99..=99, 2)]));
        let said = [
            (at(1), is.clone()),
            (at(2), is.clone()),
            (at(3), was.clone()),
            (at(4), was.clone()),
            (at(5), was.clone()),
        ];
        assert!(elect(&said, &was).agrees(&is));
        let nobodys = map(&[(0..=98, 1)]);
        assert!(elect(&[(at(1), nobodys.clone()), (at(3), was.clone())], &was).agrees(&nobodys));
    }
}
