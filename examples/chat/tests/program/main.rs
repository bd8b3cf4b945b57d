//! The program, run as a person would.

mod browser;
mod client;
mod driver;
mod sockets;
