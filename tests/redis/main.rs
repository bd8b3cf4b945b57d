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
mod inspect;
mod keys;
mod long_logs;
mod maps;
mod modes;
mod moving;
mod outcomes;
mod policies;
mod random;
mod several_slots;
mod support;
mod timeline;
mod topology;
mod twice;
mod unwell;
mod waiting;
