//! The client against real servers, over real sockets.

#[cfg(feature = "fleet")]
mod fleet;
mod foreign;
mod grpc;
mod ours;
mod pauses;
mod queueing;
#[cfg(feature = "reqwest-middleware")]
mod reqwest_middleware;
mod retries;
mod support;
