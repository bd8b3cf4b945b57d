//! Everything that speaks HTTP, tested as its users see it.

mod axum_app;
mod bodies;
mod config;
mod contract;
mod failure;
mod headers;
mod held;
mod holding;
mod hostile;
mod ietf;
mod keys;
mod limiter;
mod local;
mod local_limiter;
mod metering;
mod queueing;
mod rejection;
mod rules;
mod settling;
mod sockets;
mod stacked;
mod stores;
mod support;
mod tiers;
mod types;
mod until_ready;
