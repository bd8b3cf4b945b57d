//! Everything that speaks HTTP, tested as its users see it.

mod headers;
mod ietf;
mod keys;
mod rules;
mod stacked;
mod support;
mod tiers;
