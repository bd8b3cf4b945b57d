//! What a server reports about itself.

use std::{fmt, str::FromStr, time::Duration};

use super::RedisServer;
use crate::{Error, Result};

/// Who makes a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// Redis.
    Redis,
    /// Valkey, which was forked from Redis 7.2.4.
    Valkey,
}

/// Which server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Who makes it.
    pub product: Product,
    /// Major, minor and patch version of that product.
    pub number: (u32, u32, u32),
    /// The version of Redis whose commands it has, as it reports itself. For Redis, this is `number`.
    pub as_redis: (u32, u32, u32),
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor, patch) = self.number;
        write!(f, "{:?} {major}.{minor}.{patch}", self.product)
    }
}

impl RedisServer {
    /// Which server it is, from `INFO server`.
    ///
    /// # Errors
    ///
    /// If the server does not answer.
    pub fn version(&self) -> Result<Version> {
        version(&self.info("server")?)
    }

    /// The bytes that the server has allocated, from `INFO memory`.
    ///
    /// # Errors
    ///
    /// If the server does not answer.
    pub fn used_memory(&self) -> Result<u64> {
        parsed(&self.info("memory")?, "used_memory")
    }

    /// The processor time that the server has used since it was started, in user and in system mode.
    ///
    /// # Errors
    ///
    /// If the server does not answer.
    pub fn cpu_used(&self) -> Result<Duration> {
        let info = self.info("cpu")?;
        let user: f64 = parsed(&info, "used_cpu_user")?;
        let system: f64 = parsed(&info, "used_cpu_sys")?;
        Ok(Duration::from_secs_f64(user + system))
    }

    /// How many commands the server has run since it was started, except those of scripts. The command that
    /// asks for it is included the next time.
    ///
    /// # Errors
    ///
    /// If the server does not answer.
    pub fn commands_processed(&self) -> Result<u64> {
        parsed(&self.info("stats")?, "total_commands_processed")
    }

    /// A section of the answer to `INFO`.
    pub(crate) fn info(&self, section: &str) -> Result<String> {
        self.query(&["INFO", section])
    }
}

fn version(info: &str) -> Result<Version> {
    let as_redis = number(field(info, "redis_version")?)?;
    Ok(match field(info, "valkey_version") {
        Ok(valkey) => Version { product: Product::Valkey, number: number(valkey)?, as_redis },
        Err(_) => Version { product: Product::Redis, number: as_redis, as_redis },
    })
}

/// `7.0.15` as three numbers.
fn number(text: &str) -> Result<(u32, u32, u32)> {
    let mut parts = text.split('.').map(u32::from_str);
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor)), Some(Ok(patch)), None) => Ok((major, minor, patch)),
        _ => Err(Error::new(format!("{text:?} is no version"))),
    }
}

/// The value of a line `name:value`.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Result<&'a str> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .ok_or_else(|| Error::new(format!("the server does not tell its {name}")))
}

/// The value of a line `name:value` as a `T`.
pub(crate) fn parsed<T: FromStr>(info: &str, name: &str) -> Result<T> {
    let text = field(info, name)?;
    text.parse().map_err(|_| Error::new(format!("{name} is {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let info = "# Memory\r\nused_memory_rss:1\r\nused_memory:2\r\n";
        assert_eq!(parsed::<u64>(info, "used_memory").expect("it is there"), 2);
        field(info, "used").expect_err("that is no whole name");
    }

    #[test]
    fn redis_and_valkey_are_told_apart() {
        let redis = version("redis_version:7.0.15\r\nredis_mode:standalone\r\n").expect("a version");
        assert_eq!((redis.product, redis.number), (Product::Redis, (7, 0, 15)));
        let valkey = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\n";
        let valkey = version(valkey).expect("a version");
        assert_eq!((valkey.product, valkey.number), (Product::Valkey, (8, 1, 1)));
        assert_eq!(valkey.as_redis, (7, 2, 4));
        assert_eq!(valkey.to_string(), "Valkey 8.1.1");
    }
}
