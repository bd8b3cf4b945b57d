//! The Redis store against real servers.

mod at_once;
mod batches;
mod cluster;
mod contract;
mod denying;
mod differential;
mod elsewhere;
mod failure;
mod foreign;
mod keys;
mod long_logs;
mod maps;
mod modes;
mod modules;
mod moving;
mod order;
mod outcomes;
mod policies;
mod probes;
mod sentinel;
mod several_slots;
mod support;
mod topology;
mod twice;
mod unwell;
mod waiting;
