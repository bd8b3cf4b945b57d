//! A gateway, its upstream, and the bytes between them and a client.

pub(crate) mod gateway;
pub(crate) mod upstream;
pub(crate) mod wire;
