//! Moves slots from node to node.

use std::ops::RangeInclusive;

use super::Cluster;
use crate::{Error, Result, wait};

/// How many keys are moved at a time.
const BATCH: &str = "100";

/// How many milliseconds a node may take to give keys to another one.
const MIGRATION: &str = "10000";

impl Cluster {
    /// Moves slots with all their keys from one master to another, one by one as `redis-cli` does, while
    /// clients continue. Returns when all nodes know.
    ///
    /// # Errors
    ///
    /// If `from` does not have the slots, or a node does not obey.
    ///
    /// # Panics
    ///
    /// If there is no such node.
    pub fn reshard(&self, slots: RangeInclusive<u16>, from: usize, to: usize) -> Result<()> {
        for slot in slots.clone() {
            self.begin_move(slot, from, to)?;
            self.move_keys(slot, from, to)?;
            self.end_move(slot, to)?;
        }
        wait::until("the nodes to know who has the slots", wait::LIMIT, || {
            for view in self.views()? {
                if let Some(slot) = slots.clone().find(|slot| !view.has(self.node(to).port(), *slot)) {
                    return Err(Error::new(format!("slot {slot} is not moved for all")));
                }
            }
            self.is_well()
        })
    }

    /// The first step of moving a slot: from now on `from` answers `ASK` for keys that it does not have.
    ///
    /// # Errors
    ///
    /// If `from` does not have the slot, or a node does not obey.
    ///
    /// # Panics
    ///
    /// If there is no such node.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) -> Result<()> {
        let slot = slot.to_string();
        self.node(to).query::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.id(from)?])?;
        self.node(from).query(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.id(to)?])
    }

    /// The second step: moves the keys that are there now.
    ///
    /// # Errors
    ///
    /// If a node does not obey.
    ///
    /// # Panics
    ///
    /// If there is no such node.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize) -> Result<()> {
        let (slot, port) = (slot.to_string(), self.node(to).port().to_string());
        loop {
            let keys: Vec<String> = self.node(from).query(&["CLUSTER", "GETKEYSINSLOT", &slot, BATCH])?;
            if keys.is_empty() {
                return Ok(());
            }
            let mut command = vec!["MIGRATE", "127.0.0.1", &port, "", "0", MIGRATION];
            if let Some(password) = self.options.default_password() {
                command.extend(["AUTH", password]);
            }
            command.push("KEYS");
            command.extend(keys.iter().map(String::as_str));
            self.node(from).query::<()>(&command)?;
        }
    }

    /// The last step: informs the masters that `to` has the slot now, `to` itself first.
    ///
    /// # Errors
    ///
    /// If keys of the slot are left elsewhere, or a node does not obey.
    ///
    /// # Panics
    ///
    /// If there is no such node.
    pub fn end_move(&self, slot: u16, to: usize) -> Result<()> {
        let (slot, id) = (slot.to_string(), self.id(to)?);
        self.node(to).query::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &id])?;
        for other in self.living().filter(|other| other.port() != self.node(to).port()) {
            // Replicas refuse, and learn of it from their masters.
            match other.query::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]) {
                Err(error) if crate::replication::is_master(other).is_ok() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}
