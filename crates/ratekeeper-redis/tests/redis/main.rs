//! The Redis store against real servers.

mod at_once;
mod batches;
mod changing;
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
mod moving;
mod order;
mod outcomes;
mod policies;
mod probes;
mod several_slots;
mod support;
mod topology;
mod twice;
mod unwell;
mod waiting;
