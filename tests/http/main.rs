//! Everything that speaks HTTP, tested as its users see it.

mod bodies;
mod config;
mod contract;
mod failure;
mod headers;
mod holding;
mod ietf;
mod keys;
mod limiter;
mod rejection;
mod rules;
mod stacked;
mod stores;
mod support;
mod tiers;
mod types;
