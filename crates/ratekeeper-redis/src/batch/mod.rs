//! What is sent to Redis together: the queue, the size of a batch, its encoding and its replies.

pub(crate) mod call;
pub(crate) mod concurrency;
mod encode;
pub(crate) mod encode_charge;
pub(crate) mod in_flight;
pub(crate) mod queue;
pub(crate) mod server_time;
pub(crate) mod settlement;
pub(crate) mod sizing;
