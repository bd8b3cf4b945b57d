//! How a store in memory is made.

use std::sync::Arc;

use super::ahead::Whereabouts;
use super::hash::KeyHash;
use super::lock::Lock;
use super::shard::Shard;
use super::turn::Turns;
use super::{Aligned, Inner, MAX_SHARDS, MemoryStore};
use crate::{Clock, SystemClock};

const DEFAULT_MAX_KEYS: usize = 1_000_000;
/// How many keys a shard is made for.
const KEYS_PER_SHARD: usize = 1 << 10;
/// In what time every shard is swept once, in microseconds.
const SWEEP_ALL_EVERY: u64 = 30_000_000;

/// Makes a [`MemoryStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct MemoryStoreBuilder<C = SystemClock> {
    max_keys: usize,
    clock: ClockSource<C>,
}

// The system's clock takes a while to start, so it is not started only to be replaced.
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
    /// How many keys the store holds at most; a million unless it is said. Zero is taken for one.
    ///
    /// Each rule has a key of its own for each caller.
    pub fn max_keys(self, max_keys: usize) -> Self {
        Self { max_keys, ..self }
    }

    /// Where the store takes the time from.
    pub fn clock<D: Clock>(self, clock: D) -> MemoryStoreBuilder<D> {
        MemoryStoreBuilder { max_keys: self.max_keys, clock: ClockSource::Given(clock) }
    }
}

impl<C: Clock> MemoryStoreBuilder<C> {
    /// Makes the store. What it holds is allocated as keys come.
    #[must_use]
    pub fn build(self) -> MemoryStore<C> {
        let max_keys = self.max_keys.max(1);
        let wanted = max_keys.div_ceil(KEYS_PER_SHARD).next_power_of_two().min(MAX_SHARDS);
        // A power of two that is not above the number of keys, so that each shard holds at least one.
        let shards = if wanted > max_keys { wanted / 2 } else { wanted }.max(1);
        let whereabouts = Arc::new(std::array::from_fn(|_| Whereabouts::default()));
        let shard = |number| Aligned(Lock::new(Shard::new(number, max_keys / shards, &whereabouts)));
        MemoryStore {
            inner: Arc::new(Inner {
                clock: match self.clock {
                    ClockSource::New(new) => new(),
                    ClockSource::Given(clock) => clock,
                },
                hash: KeyHash::random(),
                shards: (0..shards).map(shard).collect(),
                shard_bits: shards - 1,
                whereabouts,
                max_keys,
                sweeps: Turns::new(SWEEP_ALL_EVERY / shards as u64),
            }),
        }
    }
}
