//! The Redis store against real servers.

mod contract;
mod failure;
mod support;
mod topology;
