//! What is measured.

use std::sync::Arc;

use ratekeeper_core::{Charge, Quota, RuleName, Store};
use ratekeeper_redis::RedisStore;
use redis::aio::MultiplexedConnection;
use tower_rate_tier::RateTier;

use super::Limitador;

/// A limiter that decides whether a key is admitted.
#[derive(Clone)]
pub enum Subject {
    /// A plain `INCR`, with the client's defaults.
    Incr(MultiplexedConnection),
    /// The best that a script for each request can do.
    Script(MultiplexedConnection, Arc<redis::Script>),
    /// A log as a sorted set, with a script for each request.
    SortedSet(MultiplexedConnection, Arc<redis::Script>),
    /// Our store: all rules in one call.
    Ours(RedisStore, Arc<Vec<(RuleName, Quota)>>),
    /// Our store, with one call for each rule.
    OneByOne(RedisStore, Arc<Vec<(RuleName, Quota)>>),
    /// Redis-cell's command, and how many may come at once in addition to the first.
    Cell(MultiplexedConnection, u32),
    /// Throttlecrab's command, and how many may come at once.
    Throttlecrab(MultiplexedConnection, u32),
    /// What limitador sends.
    Limitador(Limitador),
    /// Tower-rate-tier.
    RateTier(Arc<RateTier>),
}

/// A token bucket in the shortest script that reads the server's clock.
const GCRA: &str = r"
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local unit, fill = tonumber(ARGV[1]), tonumber(ARGV[2])
local tat = tonumber(redis.call('GET', KEYS[1]) or 0)
if tat < now then tat = now end
tat = tat + unit
if tat - now > fill then return -1 end
redis.call('SET', KEYS[1], string.format('%.0f', tat), 'PX', math.ceil((tat - now) / 1000))
return tat - now
";

/// The usual log: an entry for each admission, with its moment as the score, and its own name.
const SORTED_SET: &str = r"
local t = redis.call('TIME')
local now, limit, period = t[1] * 1000000 + t[2], tonumber(ARGV[1]), tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - period)
if redis.call('ZCARD', KEYS[1]) >= limit then return 0 end
redis.call('ZADD', KEYS[1], now, now .. ':' .. redis.call('INCR', KEYS[1] .. ':number'))
redis.call('PEXPIRE', KEYS[1], period / 1000)
return 1
";

impl Subject {
    /// A log of an hour as a sorted set.
    #[must_use]
    pub fn sorted_set(connection: MultiplexedConnection) -> Self {
        Self::SortedSet(connection, Arc::new(redis::Script::new(SORTED_SET)))
    }

    /// The script for each request.
    #[must_use]
    pub fn script(connection: MultiplexedConnection) -> Self {
        Self::Script(connection, Arc::new(redis::Script::new(GCRA)))
    }

    /// Asks whether a key is admitted.
    ///
    /// # Panics
    ///
    /// If there is no answer.
    pub async fn admits(&mut self, key: &str) -> bool {
        match self {
            Self::Incr(connection) => {
                let count: i64 =
                    redis::cmd("INCR").arg(key).query_async(connection).await.expect("INCR works");
                count > 0
            }
            Self::Script(connection, script) => {
                let mut call = script.key(key);
                call.arg(36_000_000).arg(3_600_000_000_000_000_i64);
                let left: i64 = call.invoke_async(connection).await.expect("the script works");
                left >= 0
            }
            Self::SortedSet(connection, script) => {
                let mut call = script.key(["log:", key].concat());
                call.arg(100_000_000).arg(3_600_000_000_i64);
                let admitted: i64 = call.invoke_async(connection).await.expect("the script works");
                admitted == 1
            }
            Self::Ours(store, rules) => match &***rules {
                [(rule, quota)] => decided(store, &[Charge::new(*rule, key, quota)]).await,
                rules => {
                    let charges: Vec<_> =
                        rules.iter().map(|(rule, quota)| Charge::new(*rule, key, quota)).collect();
                    decided(store, &charges).await
                }
            },
            Self::OneByOne(store, rules) => {
                for (rule, quota) in &**rules {
                    if !decided(store, &[Charge::new(*rule, key, quota)]).await {
                        return false;
                    }
                }
                true
            }
            // The first number means opposite things in these two: whether it is limited, and whether it is
            // admitted.
            Self::Cell(connection, burst) => throttle(connection, "CL.THROTTLE", key, *burst).await[0] == 0,
            Self::Throttlecrab(connection, burst) => {
                throttle(connection, "THROTTLE", key, *burst).await[0] == 1
            }
            Self::Limitador(limitador) => limitador.admits(key).await,
            Self::RateTier(tiers) => tiers.check(key, "tier", 1).await.expect("it answers").is_ok(),
        }
    }
}

async fn throttle(connection: &mut MultiplexedConnection, command: &str, key: &str, burst: u32) -> Vec<i64> {
    let mut command = redis::cmd(command);
    command.arg(["throttle:", key].concat()).arg(burst).arg(100).arg(3_600);
    command.query_async(connection).await.expect("it answers")
}

async fn decided(store: &RedisStore, charges: &[Charge<'_>]) -> bool {
    store.charge(charges).await.expect("the store decides").is_admitted()
}
