//! Looking inside a server.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use ratekeeper_core::Timestamp;
use ratekeeper_servers::RedisServer;
use redis::Connection;

/// A connection that inspects the server's content.
pub(crate) struct Inspector(Connection);

/// What is stored under a name.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) value: Vec<u8>,
    /// When it expires, in milliseconds since the Unix epoch; `None` if never.
    pub(crate) expires: Option<u64>,
    /// The server's time when this was read.
    pub(crate) now: Timestamp,
}

impl Inspector {
    pub(crate) fn new(server: &RedisServer) -> Self {
        Self(server.connect().expect("the server works"))
    }

    /// Sends a command.
    pub(crate) fn ask<T: redis::FromRedisValue>(&mut self, command: &[&[u8]]) -> T {
        let mut packed = redis::Cmd::new();
        for part in command {
            packed.arg(part);
        }
        let name = String::from_utf8_lossy(command[0]).into_owned();
        packed.query(&mut self.0).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// All names.
    pub(crate) fn names(&mut self) -> Vec<Vec<u8>> {
        self.ask(&[b"KEYS", b"*"])
    }

    pub(crate) fn server_time(&mut self) -> Timestamp {
        let (seconds, micros): (u64, u64) = self.ask(&[b"TIME"]);
        Timestamp::from_micros(seconds * 1_000_000 + micros)
    }

    /// What is stored under a name, all read at one moment.
    pub(crate) fn kept(&mut self, name: &[u8]) -> Option<Kept> {
        let mut all = redis::pipe();
        all.atomic().cmd("TIME").cmd("GET").arg(name).cmd("PTTL").arg(name).cmd("TIME");
        type Time = (u64, u64);
        let (before, value, left, after): (Time, Option<Vec<u8>>, i64, Time) =
            all.query(&mut self.0).expect("the server works");
        let millis = |(seconds, micros): Time| seconds * 1_000 + micros / 1_000;
        if millis(before) != millis(after) {
            // The clock advanced in between: it is unknown which of the two times the rest belongs to.
            return self.kept(name);
        }
        let expires = u64::try_from(left).ok().map(|left| millis(before) + left);
        let now = Timestamp::from_micros(before.0 * 1_000_000 + before.1);
        value.map(|value| Kept { value, expires, now })
    }

    /// The remaining lifetime of keys in milliseconds; -1 if they never expire, -2 if they do not exist.
    pub(crate) fn time_left(&mut self, names: impl Iterator<Item = String>) -> Vec<i64> {
        let mut all = redis::pipe();
        names.for_each(|name| {
            all.cmd("PTTL").arg(name);
        });
        all.query(&mut self.0).expect("the server works")
    }

    /// How many keys there are, and how many of them expire.
    pub(crate) fn key_counts(&mut self) -> (u64, u64) {
        let info: String = self.ask(&[b"INFO", b"keyspace"]);
        let Some(line) = info.lines().find_map(|line| line.strip_prefix("db0:")) else { return (0, 0) };
        let fields: HashMap<_, _> =
            line.trim().split(',').filter_map(|field| field.split_once('=')).collect();
        let number = |name: &str| fields[name].parse().expect("it is a number");
        (number("keys"), number("expires"))
    }

    /// How often a command was called, by clients and by scripts.
    pub(crate) fn calls(&mut self, command: &str) -> u64 {
        let info: String = self.ask(&[b"INFO", b"commandstats"]);
        let line = format!("cmdstat_{command}:calls=");
        let rest = info.lines().find_map(|found| found.strip_prefix(&line));
        rest.map_or(0, |rest| rest.split(',').next().and_then(|n| n.parse().ok()).expect("it is a number"))
    }
}

/// Monitors every command sent to a server.
pub(crate) struct Monitor(BufReader<TcpStream>);

impl Monitor {
    pub(crate) fn new(server: &RedisServer) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("the server works");
        stream.write_all(b"MONITOR\r\n").expect("the server listens");
        let mut monitor = Self(BufReader::new(stream));
        assert_eq!(monitor.line(), "+OK");
        monitor
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).expect("the server goes on");
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    /// Every command up to now.
    pub(crate) fn heard(&mut self, inspector: &mut Inspector) -> Vec<String> {
        let end = format!("the end at {}", inspector.server_time());
        inspector.ask::<String>(&[b"ECHO", end.as_bytes()]);
        std::iter::from_fn(|| Some(self.line()).filter(|line| !line.contains(&end))).collect()
    }
}
