//! The program, between real sockets: a client that says each byte itself, and an upstream that does.

mod arguments;
mod bodies;
mod endings;
mod failures;
mod forwarding;
mod gateway;
mod limits;
mod metrics;
mod reloads;
mod slow_clients;
mod targets;
mod tls;
mod upgrades;
mod upstream;
mod wire;
