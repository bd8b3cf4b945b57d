//! The program, between real sockets: the tests write each byte of the client and of the upstream themselves.

mod arguments;
mod bodies;
mod endings;
mod failures;
mod forwarding;
mod limits;
mod metrics;
mod reloads;
mod slow_clients;
mod support;
mod targets;
mod tls;
mod upgrades;
