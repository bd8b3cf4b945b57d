//! Other limiters that count in Redis.

use std::sync::Arc;
use std::time::Duration;

use redis::Script;
use redis::aio::MultiplexedConnection;
use tower_rate_tier::{Quota, RateTier, RedisStorage};

use super::{Subject, connect};

/// Tower-rate-tier with `limit` an hour, over the same kind of connection as all others.
pub async fn rate_tier(url: &str, limit: u32) -> Subject {
    let storage = RedisStorage::new(connect(url).await).timeout(Duration::from_secs(5));
    let tiers = RateTier::builder().tier("tier", Quota::per_hour(limit)).storage(Arc::new(storage)).build();
    Subject::RateTier(Arc::new(tiers))
}

/// What limitador 0.14 sends to Redis, with `limit` an hour.
///
/// The crate itself does not compile with its Redis storage alone, and its other storage is RocksDB. So this
/// sends the same scripts under the same names, without the other work that the crate does.
#[derive(Clone)]
pub struct Limitador {
    connection: MultiplexedConnection,
    limit: i64,
    look: Arc<Script>,
    update: Arc<Script>,
}

const LOOK: &str = r"
local res = {}
for _, key in ipairs(KEYS) do
    table.insert(res, redis.call('get', key))
    table.insert(res, redis.call('pttl', key))
end
return res
";

const UPDATE: &str = r"
local c = redis.call('incrby', KEYS[1], ARGV[2])
if c == tonumber(ARGV[2]) then
  redis.call('expire', KEYS[1], ARGV[1], 'NX')
  redis.call('sadd', KEYS[2], KEYS[1])
end
return c
";

impl Limitador {
    /// Over its own connection.
    pub async fn new(url: &str, limit: i64) -> Self {
        let (look, update) = (Arc::new(Script::new(LOOK)), Arc::new(Script::new(UPDATE)));
        Self { connection: connect(url).await, limit, look, update }
    }

    /// Looks, decides, and counts.
    ///
    /// # Panics
    ///
    /// If there is no answer.
    pub async fn admits(&mut self, key: &str) -> bool {
        let limit = format!(
            "{{\"namespace\":\"n\",\"seconds\":{},\"conditions\":[],\"variables\":[\"user\"]}}",
            3_600
        );
        let name =
            format!("namespace:{{n}},counter:{{\"limit\":{limit},\"set_variables\":{{\"user\":\"{key}\"}}}}");
        let found: Vec<Option<i64>> =
            self.look.key(&name).invoke_async(&mut self.connection).await.expect("the script works");
        if found[0].unwrap_or(0) + 1 > self.limit {
            return false;
        }
        let mut update = self.update.key(&name);
        update.key(format!("namespace:{{n}},counters_of_limit:{limit}")).arg(3_600).arg(1);
        update.invoke_async::<i64>(&mut self.connection).await.expect("the script works");
        true
    }
}
