//! The program, run as a person would.

mod client;
mod sockets;
