//! Everything that speaks HTTP, tested as its users see it.

mod bodies;
mod contract;
mod failure;
mod headers;
mod ietf;
mod keys;
mod rejection;
mod rules;
mod stacked;
mod stores;
mod support;
mod tiers;
