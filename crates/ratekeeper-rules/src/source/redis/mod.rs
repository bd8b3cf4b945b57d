//! Rules in a key of Redis, reloaded when others are published.

mod server;

use std::fmt;
use std::time::Duration;

use redis::{Client, IntoConnectionInfo, RedisError};
use tokio::time::sleep_until;

use self::server::{Link, Server};
use super::schedule::Schedule;
use super::{Document, Source, SourceError};
use crate::Format;
use crate::size::TooLarge;

/// The default key.
const KEY: &str = "ratekeeper:rules";
/// How often the key is read by default, regardless of what is published.
const POLL: Duration = Duration::from_secs(30);
/// How long Redis may take by default to be reached and to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Replaces the text, and announces the change.
const PUBLISH: &str = include_str!("publish.lua");

/// Rules in a key of Redis or Valkey, which are read again when others are published.
///
/// The key, `ratekeeper:rules` by default, is a hash of `version`, a number that each publication increments,
/// `format`, and `body`, the text. [`publish`](Self::publish) changes all of it at once and announces the
/// change in the channel of the same name. For a file, this does the same:
///
/// ```sh
/// redis-cli -x EVAL "local v = redis.call('HINCRBY', KEYS[1], 'version', 1) \
///   redis.call('HSET', KEYS[1], 'format', ARGV[1], 'body', ARGV[2]) \
///   redis.call('PUBLISH', KEYS[1], v) return v" 1 ratekeeper:rules toml < rules.toml
/// ```
///
/// What is published while the connection is lost is not heard. So the key is read again after each
/// reconnection, and is polled as well.
///
/// The version is `version` with a digest of the text, such as `7-44136fa355b3`, so it also changes when the
/// text was changed without incrementing the number.
///
/// # What Redis has to allow
///
/// The source uses RESP3, which all versions from 6 on support. A user needs `HMGET` on the key and
/// `SUBSCRIBE` on the channel: `ACL SETUSER gateway on >… ~ratekeeper:rules &ratekeeper:rules +hmget +subscribe`.
/// Publishing needs `EVAL`, `HINCRBY`, `HSET` and `PUBLISH`.
///
/// In a cluster the address is that of any node. Sentinels are not asked: where a master can be replaced, use
/// an address that leads to the new one, or that of a replica, which has the key and hears what is published
/// as well. TLS (`rediss://`) is available if a TLS feature of the crate `redis` is enabled, as by
/// `tls-rustls` of `ratekeeper-redis`.
#[must_use]
pub struct RedisSource {
    server: Server,
    key: String,
    link: Option<Link>,
    schedule: Schedule,
}

impl RedisSource {
    /// The server at an address, such as `redis://user:password@host:6379`.
    ///
    /// # Errors
    ///
    /// When the address is invalid. (It is not repeated, as it may contain a password.)
    pub fn new(address: impl IntoConnectionInfo) -> Result<Self, SourceError> {
        let client = address.into_connection_info().and_then(Client::open);
        let server = client.and_then(|client| Server::new(&client, TIMEOUT)).map_err(|error| {
            SourceError::new("the address of the Redis server that has the rules makes no sense")
                .because(error)
        })?;
        Ok(Self { server, key: KEY.to_owned(), link: None, schedule: Schedule::every(POLL) })
    }

    /// Sets the key, which is also the channel; `ratekeeper:rules` by default.
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: key.into(), ..self }
    }

    /// Sets how often the key is read, regardless of what is published; every 30 seconds by default. Less
    /// than ten milliseconds count as ten, and more than a year as one.
    ///
    /// This is also the longest pause between two attempts to reach a server that is gone. The first pause is
    /// a tenth of a second.
    pub fn poll_every(self, interval: Duration) -> Self {
        Self { schedule: Schedule::every(interval), ..self }
    }

    /// Sets how long Redis may take to be reached and to answer; five seconds by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.server.set_timeout(timeout);
        self
    }

    /// Replaces the rules, notifies all listeners, and returns the number of the new set.
    ///
    /// The rules are not checked: use [`RuleFile::parse`](crate::RuleFile::parse) first to see whether they
    /// are valid. A node that cannot use them keeps those that it has.
    ///
    /// # Errors
    ///
    /// When Redis cannot be reached, or refuses. What was published before then stays, unless only the answer
    /// was lost.
    pub async fn publish(&self, format: Format, text: impl AsRef<[u8]>) -> Result<u64, SourceError> {
        let mut command = redis::cmd("EVAL");
        command.arg(PUBLISH).arg(1).arg(&self.key).arg(format.to_string()).arg(text.as_ref());
        let published = self.server.ask(&command).await;
        published.map_err(|error| {
            SourceError::new(format!("the rules cannot be put into the key `{}` of Redis", self.key))
                .because(error)
        })
    }

    async fn fields(&mut self) -> Result<Fields, RedisError> {
        // What was announced until now is about to be read.
        let mut link = match self.link.take().and_then(Link::cleared) {
            Some(link) => link,
            None => self.server.listen(&self.key).await?,
        };
        let mut command = redis::cmd("HMGET");
        command.arg(&self.key).arg(&["version", "format", "body"]);
        let answer = self.server.ask_over(&mut link, &command).await;
        // A connection that does not answer is abandoned: it may have been cut off somewhere.
        if !answer
            .as_ref()
            .is_err_and(|error: &RedisError| error.is_io_error() || error.is_connection_dropped())
        {
            self.link = Some(link);
        }
        answer
    }

    fn document(&self, (version, format, body): Fields, max_size: usize) -> Result<Document, SourceError> {
        let wrong = |what: &str| SourceError::new(format!("the key `{}` of Redis {what}", self.key));
        let (format, body) = match (format, body) {
            (None, None) => return Err(wrong("is not there, or has no rules")),
            (None, Some(_)) => return Err(wrong("has no field `format`")),
            (Some(_), None) => return Err(wrong("has no field `body`")),
            (Some(format), Some(body)) => (format, body),
        };
        let format: Format = String::from_utf8_lossy(&format)
            .parse()
            .map_err(|error| wrong("has a field `format` that makes no sense").because(error))?;
        let name = format!("key {} of Redis", self.key);
        TooLarge::check(&name, body.len(), max_size).map_err(|error| SourceError::new(error.to_string()))?;
        let document = Document::new(name, format, body);
        let Some(version) = version else { return Ok(document) };
        match std::str::from_utf8(&version).ok().and_then(|version| version.parse().ok()) {
            Some(number) => Ok(document.revision(number)),
            None => Err(wrong("has a field `version` that is no number")),
        }
    }
}

type Field = Option<Vec<u8>>;
type Fields = (Field, Field, Field);

impl Source for RedisSource {
    fn kind(&self) -> &'static str {
        "redis"
    }

    async fn read(&mut self, max_size: usize) -> Result<Document, SourceError> {
        let fields = self.fields().await.map_err(|error| {
            SourceError::new(format!("the rules in the key `{}` of Redis cannot be read", self.key))
                .because(error)
        });
        let document = fields.and_then(|fields| self.document(fields, max_size));
        self.schedule.asked(document.is_ok());
        document
    }

    async fn changed(&mut self) {
        if let Some(link) = &mut self.link {
            let was_heard = tokio::select! {
                () = sleep_until(self.schedule.wake()) => true,
                was_heard = link.hear() => was_heard,
            };
            if was_heard {
                self.schedule.works();
                return;
            }
            self.link = None;
            self.schedule.lost();
        }
        sleep_until(self.schedule.wake()).await;
    }
}

impl fmt::Debug for RedisSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSource")
            .field("key", &self.key)
            .field("polled", &format_args!("{}", self.schedule))
            .field("is_connected", &self.link.is_some())
            .finish_non_exhaustive()
    }
}
