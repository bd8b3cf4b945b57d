//! Where counters are: on one server, or spread over the nodes of a cluster.

mod connections;
mod deciding;
mod multi_slot;
mod routing;
mod topology;

pub(crate) use self::connections::Connections;
pub(crate) use self::routing::Router;
