//! A key in Redis whose rules change when others are published.

mod server;

use std::fmt;
use std::time::Duration;

use redis::{Client, IntoConnectionInfo, RedisError};
use tokio::time::sleep_until;

use self::server::{Link, Server};
use super::schedule::Schedule;
use super::{Document, Source, SourceError};
use crate::Format;

/// The key unless it is said.
const KEY: &str = "tollgate:rules";
/// How often the key is read unless it is said, whatever is published.
const POLL: Duration = Duration::from_secs(30);
/// How long Redis may take to be reached and to answer, unless it is said.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Puts a text in the place of another, and tells so.
const PUBLISH: &str = include_str!("publish.lua");

/// Rules in a key of Redis or Valkey, which are read again when others are published.
///
/// The key, `tollgate:rules` unless it is said, is a hash of `version`, a number that each publication counts up, `format`
/// and `body`, the text. [`publish`](Self::publish) changes all of it at once and tells in the channel of the same name. So
/// does this, for a file:
///
/// ```sh
/// redis-cli -x EVAL "local v = redis.call('HINCRBY', KEYS[1], 'version', 1) \
///   redis.call('HSET', KEYS[1], 'format', ARGV[1], 'body', ARGV[2]) \
///   redis.call('PUBLISH', KEYS[1], v) return v" 1 tollgate:rules toml < rules.toml
/// ```
///
/// What is published while a connection is lost is not heard. So the key is read again whenever there is a new one, and
/// from time to time besides.
///
/// The version is `version` with a digest of the text, such as `7-44136fa355b3`, and tells also when the text was changed
/// without counting.
///
/// # What Redis has to allow
///
/// It is asked in RESP3, which all versions from 6 on speak. A user needs `HMGET` on the key and `SUBSCRIBE` on the channel:
/// `ACL SETUSER gateway on >… ~tollgate:rules &tollgate:rules +hmget +subscribe`. Who publishes needs `EVAL`, `HINCRBY`,
/// `HSET` and `PUBLISH`.
///
/// In a cluster the address is that of any node. Sentinels are not asked: where a master can be replaced, the address is one
/// that leads to the new one, or that of a replica, which has the key and hears what is published as well.
/// TLS (`rediss://`) is there if a TLS feature of the crate `redis` is, as by `tls-rustls` of `tollgate-redis`.
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
    /// When the address makes no sense. (It is not repeated, as it may have a password in it.)
    pub fn new(address: impl IntoConnectionInfo) -> Result<Self, SourceError> {
        let client = address.into_connection_info().and_then(Client::open);
        let server = client.and_then(|client| Server::new(&client, TIMEOUT)).map_err(|error| {
            SourceError::new("the address of the Redis server that has the rules makes no sense")
                .because(error)
        })?;
        Ok(Self { server, key: KEY.to_owned(), link: None, schedule: Schedule::every(POLL) })
    }

    /// The key, and the channel; `tollgate:rules` unless it is said.
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: key.into(), ..self }
    }

    /// How often the key is read, whatever is published; 30 seconds unless it is said. Less than ten milliseconds are ten,
    /// and more than a year is one.
    ///
    /// It is also the longest pause between two attempts to reach a server that is gone. The first is a tenth of a second.
    pub fn poll_every(self, interval: Duration) -> Self {
        Self { schedule: Schedule::every(interval), ..self }
    }

    /// How long Redis may take to be reached and to answer; five seconds unless it is said.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.server.set_timeout(timeout);
        self
    }

    /// Puts rules in the place of those before, and tells all who listen. Says what number they have got.
    ///
    /// They are not looked at: [`RuleFile::parse`](crate::RuleFile::parse) says before whether they make sense. A node that
    /// cannot use them goes on with those that it has.
    ///
    /// # Errors
    ///
    /// When Redis cannot be reached, or refuses. What was published before stays then, unless the answer was lost.
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
        // What was told until now is about to be read.
        let mut link = match self.link.take().and_then(Link::cleared) {
            Some(link) => link,
            None => self.server.listen(&self.key).await?,
        };
        let mut command = redis::cmd("HMGET");
        command.arg(&self.key).arg(&["version", "format", "body"]);
        let answer = self.server.ask_over(&mut link, &command).await;
        // A connection that does not answer is left behind: it may have been cut off somewhere.
        if !answer
            .as_ref()
            .is_err_and(|error: &RedisError| error.is_io_error() || error.is_connection_dropped())
        {
            self.link = Some(link);
        }
        answer
    }

    fn document(&self, (version, format, body): Fields) -> Result<Document, SourceError> {
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
        let document = Document::new(format!("key {} of Redis", self.key), format, body);
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

    async fn read(&mut self) -> Result<Document, SourceError> {
        let fields = self.fields().await.map_err(|error| {
            SourceError::new(format!("the rules in the key `{}` of Redis cannot be read", self.key))
                .because(error)
        });
        let document = fields.and_then(|fields| self.document(fields));
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
