//! Whether a server evicts counters when its memory is full.

use redis::RedisError;
use redis::aio::MultiplexedConnection;

/// Policies under which denied callers may lose their counters, and start over.
const HARMFUL: [&str; 3] = ["volatile-lru", "volatile-lfu", "volatile-random"];

/// The policy by which a server evicts counters that still matter, if it has one. A server need not answer:
/// the user may lack the permission, and proxies may not know the command.
pub(crate) async fn policy(connection: &mut MultiplexedConnection) -> Result<Option<String>, RedisError> {
    let info: String = redis::cmd("INFO").arg("memory").query_async(connection).await?;
    Ok(harmful(&info).map(ToOwned::to_owned))
}

fn harmful(info: &str) -> Option<&str> {
    let field = |name: &str| {
        let mut fields = info.lines().filter_map(|line| line.trim().split_once(':'));
        fields.find_map(|(field, value)| (field == name).then_some(value))
    };
    // Without a limit nothing is evicted.
    field("maxmemory").filter(|limit| *limit != "0")?;
    field("maxmemory_policy").filter(|policy| policy.starts_with("allkeys-") || HARMFUL.contains(policy))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(maxmemory: u64, policy: &str) -> String {
        format!("# Memory\r\nused_memory:1\r\nmaxmemory:{maxmemory}\r\nmaxmemory_policy:{policy}\r\n")
    }

    #[test]
    fn a_server_with_a_limit_and_a_policy_that_forgets_is_known() {
        for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-random"] {
            assert_eq!(harmful(&info(1, policy)), Some(policy));
            assert_eq!(harmful(&info(0, policy)), None, "it has no limit");
        }
        for policy in ["noeviction", "volatile-ttl", "something-new"] {
            assert_eq!(harmful(&info(1, policy)), None, "{policy}");
        }
        assert_eq!(harmful("OK"), None);
    }
}
