//! The builder of the in-memory store.

use std::sync::Arc;

use super::hash::KeyHash;
use super::lock::Lock;
use super::shard::Shard;
use super::store::{Aligned, Inner, MAX_SHARDS, MemoryStore};
use super::sweep::Sweeps;
use crate::{Clock, SystemClock};

const DEFAULT_MAX_KEYS: usize = 1_000_000;
/// How many keys a shard is meant for.
const KEYS_PER_SHARD: usize = 1 << 10;
/// The time in which every shard is swept once, in microseconds.
const SWEEP_ALL_EVERY: u64 = 30_000_000;

/// Builds a [`MemoryStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct MemoryStoreBuilder<C = SystemClock> {
    max_keys: usize,
    clock: ClockSource<C>,
}

// The system's clock takes a while to start, so it is started only if no other clock is given.
#[derive(Clone, Debug)]
enum ClockSource<C> {
    New(fn() -> C),
    Given(C),
}

impl MemoryStoreBuilder {
    pub(super) fn new() -> Self {
        Self { max_keys: DEFAULT_MAX_KEYS, clock: ClockSource::New(SystemClock::new) }
    }
}

impl<C> MemoryStoreBuilder<C> {
    /// The largest number of keys that the store holds; a million by default. Zero is treated as one.
    ///
    /// Each rule has its own key for each caller.
    pub fn max_keys(self, max_keys: usize) -> Self {
        Self { max_keys, ..self }
    }

    /// The clock from which the store reads the time.
    pub fn clock<D: Clock>(self, clock: D) -> MemoryStoreBuilder<D> {
        MemoryStoreBuilder { max_keys: self.max_keys, clock: ClockSource::Given(clock) }
    }
}

impl<C: Clock> MemoryStoreBuilder<C> {
    /// Builds the store. Memory for the keys is allocated as they arrive.
    #[must_use]
    pub fn build(self) -> MemoryStore<C> {
        let max_keys = self.max_keys.max(1);
        let wanted = max_keys.div_ceil(KEYS_PER_SHARD).next_power_of_two().min(MAX_SHARDS);
        // A power of two that does not exceed the number of keys, so that each shard holds at least one.
        let shards = if wanted > max_keys { wanted / 2 } else { wanted }.max(1);
        let shard = |_| Aligned(Lock::new(Shard::new(max_keys / shards)));
        MemoryStore {
            inner: Arc::new(Inner {
                clock: match self.clock {
                    ClockSource::New(new) => new(),
                    ClockSource::Given(clock) => clock,
                },
                hash: KeyHash::random(),
                shards: (0..shards).map(shard).collect(),
                mask: shards - 1,
                max_keys,
                sweeps: Sweeps::new(SWEEP_ALL_EVERY / shards as u64),
            }),
        }
    }
}
