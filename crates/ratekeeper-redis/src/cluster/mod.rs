//! Counters that are spread over the nodes of a cluster.

pub(crate) mod multi_slot;
mod pending;
mod routing;
mod topology;

pub(crate) use self::pending::{Deciding, PendingReply, all, make};
pub(crate) use self::routing::Router;
