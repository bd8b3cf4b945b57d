//! What is sent to Redis together: the queue, the size of a batch, its encoding and its replies.

pub(crate) mod call;
pub(crate) mod decode;
pub(crate) mod encode;
mod group;
pub(crate) mod in_flight;
pub(crate) mod queue;
pub(crate) mod server_time;
pub(crate) mod settlement;
pub(crate) mod sizing;
