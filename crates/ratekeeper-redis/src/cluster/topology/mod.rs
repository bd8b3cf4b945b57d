//! Which node has which slots.

pub(super) mod discovery;
pub(super) mod schedule;
pub(super) mod slot_map;
