//! What a decision costs, beside what others take for it. Run with
//! `cargo run --release -p tollgate-bench --bin <name>`:
//!
//! | binary | what it prints |
//! |---|---|
//! | `memory` | time per decision in memory, for few and many keys, on one and two threads |
//! | `memory_size` | resident bytes per key at ten million keys |
//! | `instructions` | instructions and allocations per decision (needs valgrind) |

pub mod callgrind;
pub mod keys;
pub mod subject;
pub mod timing;
