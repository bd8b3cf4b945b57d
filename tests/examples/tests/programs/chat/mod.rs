//! The chat.

mod browser;
// The unit tests of the example use it as well.
#[path = "../../../../../examples/chat/src/tests/client.rs"]
mod client;
mod driver;
mod sockets;
