//! Counters that are spread over the nodes of a cluster.

mod map;
mod router;
mod slot;
mod survey;
mod vote;

pub(crate) use self::router::Router;
pub(crate) use self::slot::slot;
