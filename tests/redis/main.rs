//! The Redis store against real servers.

mod contract;
mod support;
