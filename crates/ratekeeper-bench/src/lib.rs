//! What a decision costs, compared with other limiters. Run with
//! `cargo run --release -p ratekeeper-bench --bin <name>`:
//!
//! | binary | what it prints |
//! |---|---|
//! | `memory` | time per decision in memory, for few and many keys, on one and two threads |
//! | `memory_size` | resident bytes per key at ten million keys |
//! | `layer` | instructions and allocations that a layer adds to a request (needs valgrind) |
//! | `observed` | the same with metrics and tracing (needs valgrind) |
//! | `instructions` | instructions and allocations per decision (needs valgrind) |
//! | `matching` | instructions to find one rule of one, and one of ten thousand (needs valgrind) |
//! | `client` | a thousand calls by clients of others and by ours: requests, refusals and time |
//! | `client_pacing` | our client against our server, for each algorithm: refusals and the share of the quota |
//! | `redis` | decisions in Redis, compared with `INCR` and a script for each request |
//! | `redis_algorithms` | the same for every algorithm, and with three rules |
//! | `redis_peers` | the same compared with redis-cell, throttlecrab, limitador and tower-rate-tier |
//! | `redis_denied` | what a caller over its limit costs |
//! | `redis_logs` | sliding logs, compared with a sorted set for each; and how many are answered in time |
//! | `redis_settling` | requests that are settled after they were charged, compared with those that are not |
//! | `redis_memory` | bytes of the server's memory per key |
//! | `redis_cluster` | decisions on clusters of one to three masters |

pub mod callgrind;
pub mod keys;
pub mod redis_bench;
pub mod subject;
pub mod timing;
