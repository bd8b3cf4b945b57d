//! Which node has which slots.

pub(super) mod discovery;
mod majority;
pub(super) mod schedule;
pub(super) mod slot_map;
