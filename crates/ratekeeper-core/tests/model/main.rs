//! Properties of the algorithms and of the in-memory store, against models that are as simple as possible.
//!
//! The models know nothing of how the algorithms keep their state: they remember every admission, and compute
//! in integers over a common denominator.

mod support;

mod changes;
mod clock_steps;
mod debits;
mod eviction;
mod keys;
mod leaky_bucket;
mod overtaking;
mod quota_text;
mod refunds;
mod threads;
mod token_bucket;
mod waits;
mod windows;
