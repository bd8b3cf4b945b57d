//! Finds the master that sentinels watch, and follows it.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Client, ConnectionInfo, ErrorKind, RedisError, Value};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Connection;
use super::backoff::Backoff;
use super::connect::{Address, at, open, prepare};
use super::socket::Socket;

/// The longest pause between two attempts to subscribe.
const MAX_BACKOFF: Duration = Duration::from_secs(1);
/// How long to wait for the other sentinels once most have answered.
const GRACE: Duration = Duration::from_millis(20);
/// How often the master is looked up without being told: a subscription may die unnoticed.
const LOOKUP: Duration = Duration::from_secs(10);

/// Sentinels that watch a master.
#[derive(Clone)]
pub(crate) struct Sentinels {
    pub(crate) sentinels: Vec<Client>,
    pub(crate) service: String,
    /// How to reach a master, except for its address.
    pub(crate) node: ConnectionInfo,
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinels").field("service", &self.service).finish_non_exhaustive()
    }
}

impl Sentinels {
    /// Connects to the master.
    ///
    /// A master that hung while it was replaced still says that it is one when it resumes, until the
    /// sentinels demote it. So the sentinels are asked again after it has said so.
    pub(super) async fn connect(&self, timeout: Duration) -> Result<(Socket, Address), RedisError> {
        let master = self.master(timeout).await?;
        let (host, port) = master.clone();
        let mut socket = Socket::open(&Client::open(at(&self.node, host, port))?, timeout).await?;
        let role: Value =
            socket.run(async |connection: &mut _| redis::cmd("ROLE").query_async(connection).await).await?;
        let says_master = Value::BulkString(b"master".to_vec());
        let is_master = matches!(&role, Value::Array(role) if role.first() == Some(&says_master));
        if !is_master || self.master(timeout).await? != master {
            return Err(RedisError::from((ErrorKind::Io, "the master has been replaced")));
        }
        Ok((socket, master))
    }

    /// The master by the newest configuration that a majority of the sentinels knows of.
    ///
    /// All are asked at once. A majority of them has agreed on each configuration, so the answers of a
    /// majority include the newest one once it has spread, and its epoch tells which one it is. The others are
    /// waited for a little, as they may already know of a newer one; and if most are down, those that answer
    /// are believed, as nobody can replace the master either.
    async fn master(&self, timeout: Duration) -> Result<Address, RedisError> {
        let mut error = RedisError::from((ErrorKind::Io, "no sentinel answers"));
        let mut answers: Vec<(u64, Address)> = Vec::new();
        let mut asked: FuturesUnordered<_> =
            self.sentinels.iter().map(|sentinel| self.ask(sentinel, timeout)).collect();
        let mut until = Instant::now() + timeout / 2;
        while let Ok(Some(answer)) = timeout_at(until, asked.next()).await {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(failed) => error = failed,
            }
            if 2 * answers.len() > self.sentinels.len() {
                until = until.min(Instant::now() + GRACE);
            }
        }
        newest(&answers).ok_or(error)
    }

    /// Asks one sentinel for the master, and for the epoch of the configuration that says so.
    async fn ask(&self, sentinel: &Client, timeout: Duration) -> Result<(u64, Address), RedisError> {
        let mut connection = open(sentinel, timeout).await?;
        let ask = |about: &str| {
            let mut command = redis::cmd("SENTINEL");
            command.arg(about).arg(&self.service);
            command
        };
        let address = ask("get-master-addr-by-name").query_async(&mut connection).await?;
        let Some(address) = address else {
            let detail = format!("no sentinel knows a master called {:?}", self.service);
            return Err(RedisError::from((
                ErrorKind::MasterNameNotFoundBySentinel,
                "unknown master",
                detail,
            )));
        };
        let fields: Result<HashMap<String, String>, _> = ask("master").query_async(&mut connection).await;
        let epoch = fields.ok().and_then(|fields| fields.get("config-epoch")?.parse().ok());
        Ok((epoch.unwrap_or(0), address))
    }

    /// Has a connection leave its server as soon as the sentinels have replaced it. A master that is replaced by plan works on for seconds, and whatever it counts is
    /// lost.
    pub(crate) async fn follow(self, connection: Connection, connect_timeout: Duration) {
        let mut backoff = Backoff::new(MAX_BACKOFF);
        for sentinel in self.sentinels.iter().cycle() {
            if self.listen(sentinel, &connection, connect_timeout).await {
                backoff = Backoff::new(MAX_BACKOFF);
            }
            sleep(backoff.next()).await;
        }
    }

    /// Listens to one sentinel until it fails. Returns whether it could be heard.
    async fn listen(&self, sentinel: &Client, connection: &Connection, connect_timeout: Duration) -> bool {
        let subscribing = async {
            prepare(sentinel);
            let mut subscription = sentinel.get_async_pubsub().await?;
            subscription.subscribe("+switch-master").await?;
            Ok::<_, RedisError>(subscription)
        };
        let Ok(Ok(subscription)) = timeout(connect_timeout, subscribing).await else { return false };
        let mut messages = subscription.into_on_message();
        loop {
            // It may have been replaced before, or while nobody listened.
            if let Ok(master) = self.master(connect_timeout).await {
                connection.leave_unless_at(&master);
            }
            match timeout(LOOKUP, messages.next()).await {
                Ok(Some(message)) => {
                    if let Some(master) = switched(message.get_payload_bytes(), &self.service) {
                        connection.leave_unless_at(&master);
                    }
                }
                Ok(None) => return true,
                Err(_) => {}
            }
        }
    }
}

/// The master of the newest configuration; if several are equally new, the one that most answers name.
fn newest(answers: &[(u64, Address)]) -> Option<Address> {
    let votes = |answer: &(u64, Address)| answers.iter().filter(|other| *other == answer).count();
    answers.iter().max_by_key(|answer| (answer.0, votes(answer))).map(|(_, master)| master.clone())
}

/// The new master, if a message says that this service has one: `service old-host old-port host port`.
fn switched(message: &[u8], service: &str) -> Option<Address> {
    let mut words = std::str::from_utf8(message).ok()?.rsplitn(5, ' ');
    let (port, host) = (words.next()?.parse().ok()?, words.next()?);
    (words.nth(2)? == service).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_service_and_its_new_master() {
        let master = Some(("10.0.0.2".to_owned(), 6380));
        assert_eq!(switched(b"main 10.0.0.1 6379 10.0.0.2 6380", "main"), master);
        assert_eq!(switched(b"main 10.0.0.1 6379 10.0.0.2 6380", "other"), None);
        for message in ["", "main", "main 10.0.0.1 6379 10.0.0.2 port", "10.0.0.1 6379 10.0.0.2 6380"] {
            assert_eq!(switched(message.as_bytes(), "main"), None, "{message}");
        }
    }

    #[test]
    fn the_newest_configuration_counts_and_then_the_votes() {
        let port = |answers: &[(u64, u16)]| {
            let answer = |(epoch, port): &(u64, u16)| (*epoch, ("host".to_owned(), *port));
            newest(&answers.iter().map(answer).collect::<Vec<_>>()).map(|(_, port)| port)
        };
        assert_eq!(port(&[]), None);
        assert_eq!(port(&[(1, 1), (1, 1), (2, 2)]), Some(2), "the others have not heard of it yet");
        assert_eq!(port(&[(0, 1), (0, 2), (0, 1)]), Some(1), "one answer is outdated");
    }
}
