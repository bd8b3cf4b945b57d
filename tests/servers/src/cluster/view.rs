//! A cluster as one of its nodes sees it.

use std::ops::RangeInclusive;

use crate::{Error, RedisServer, Result};

/// What a node reports about all nodes, including itself (`CLUSTER NODES`).
#[derive(Debug, PartialEq)]
pub(super) struct View(Vec<Member>);

/// What a node reports about one node.
#[derive(Debug, PartialEq)]
pub(super) struct Member {
    pub(super) id: String,
    pub(super) port: u16,
    flags: Vec<String>,
    /// The id of its master, if it is a replica.
    pub(super) master: Option<String>,
    slots: Vec<RangeInclusive<u16>>,
}

impl View {
    /// What `node` sees.
    pub(super) fn of(node: &RedisServer) -> Result<Self> {
        Self::parse(&node.query::<String>(&["CLUSTER", "NODES"])?)
    }

    fn parse(text: &str) -> Result<Self> {
        let member =
            |line| Member::parse(line).ok_or_else(|| Error::new(format!("no node of a cluster: {line}")));
        Ok(Self(text.lines().map(member).collect::<Result<_>>()?))
    }

    pub(super) fn member(&self, port: u16) -> Result<&Member> {
        self.0
            .iter()
            .find(|member| member.port == port)
            .ok_or_else(|| Error::new(format!("the node on port {port} is not known")))
    }

    /// The master of the node on this port, if it is a replica.
    pub(super) fn master(&self, port: u16) -> Result<Option<&Member>> {
        let Some(id) = &self.member(port)?.master else { return Ok(None) };
        let master = self.0.iter().find(|member| member.id == *id);
        master.map(Some).ok_or_else(|| Error::new(format!("the master {id} is not known")))
    }

    /// Whether the node on this port is responsible for the slot.
    pub(super) fn has(&self, port: u16, slot: u16) -> bool {
        self.owner(slot).is_ok_and(|owner| owner.port == port)
    }

    /// The node that is responsible for the slot.
    pub(super) fn owner(&self, slot: u16) -> Result<&Member> {
        self.0
            .iter()
            .find(|member| member.slots.iter().any(|range| range.contains(&slot)))
            .ok_or_else(|| Error::new(format!("nobody has slot {slot}")))
    }
}

impl Member {
    /// `id ip:port@bus,host flags master ping pong epoch link slot slot-slot [slot->-id]`
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split(' ').collect();
        let [id, address, flags, master, _, _, _, _, slots @ ..] = words.as_slice() else { return None };
        let (_, port) = address.split('@').next()?.rsplit_once(':')?;
        Some(Self {
            id: (*id).to_owned(),
            port: port.parse().ok()?,
            flags: flags.split(',').map(str::to_owned).collect(),
            master: (*master != "-").then(|| (*master).to_owned()),
            // Slots in brackets are being moved.
            slots: slots
                .iter()
                .filter(|slot| !slot.starts_with('['))
                .map(|slot| range(slot))
                .collect::<Option<_>>()?,
        })
    }

    /// Whether the others are believed to know and to reach it.
    pub(super) fn is_well(&self) -> bool {
        !self.flags.iter().any(|flag| matches!(flag.as_str(), "fail" | "fail?" | "handshake" | "noaddr"))
    }

    pub(super) fn first_slot(&self) -> Option<u16> {
        self.slots.first().map(|range| *range.start())
    }
}

fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read() {
        let view = View::parse(
            "aa 127.0.0.1:7000@17000 myself,master - 0 0 1 connected 0-99 101 [100->-bb]\n\
             bb 127.0.0.1:7001@17001,host master,fail? - 0 0 2 connected 100\n\
             cc 127.0.0.1:7002@17002,,tls-port=0,shard-id=dd slave aa 0 0 1 connected\n",
        )
        .expect("three nodes");
        assert_eq!(view.owner(101).expect("a slot of its").id, "aa");
        assert_eq!(view.owner(100).expect("a slot of its").id, "bb");
        view.owner(102).expect_err("nobody has it");
        assert!(view.member(7000).expect("it is there").is_well());
        assert!(!view.member(7001).expect("it is there").is_well());
        assert_eq!(view.master(7002).expect("it is there").map(|master| master.port), Some(7000));
        assert_eq!(view.master(7000).expect("it is there"), None);
    }
}
