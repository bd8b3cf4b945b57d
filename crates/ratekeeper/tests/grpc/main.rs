//! gRPC, as tonic's clients see it, over real sockets.

mod denying;
mod failure;
mod keys;
mod mixed;
mod raw;
mod support;
mod web;
