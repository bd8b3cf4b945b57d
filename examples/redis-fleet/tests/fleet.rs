//! Two processes and a Redis, as in the README.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use tollgate_servers::{RedisServer, wait};

/// One process of the service, which ends when it is dropped.
struct Node {
    process: Child,
    address: SocketAddr,
}

impl Node {
    fn start(redis: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_redis-fleet"));
        command.env("LISTEN", "127.0.0.1:0").env("REDIS_URL", redis).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").expect("it says where it listens");
        Self { process, address: address.parse().unwrap() }
    }

    fn get(&self) -> Reply {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        Reply(text)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Reply(String);

impl Reply {
    fn status(&self) -> u16 {
        self.0.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
    }

    fn number(&self, field: &str) -> u64 {
        let value = self.0.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(": "));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {field} in {}", self.0))
    }
}

#[test]
fn two_processes_have_one_budget_and_a_half_each_without_redis() {
    let redis = RedisServer::start().unwrap_or_else(|error| panic!("{error}"));
    let nodes = [Node::start(&redis.url()), Node::start(&redis.url())];

    let replies: Vec<_> = (0..60).map(|turn| nodes[turn % 2].get()).collect();
    for (reply, left) in replies.iter().zip((0..50).rev()) {
        assert_eq!(reply.status(), 200, "{}", reply.0);
        assert!(reply.0.ends_with("hello\n"), "{}", reply.0);
        assert_eq!((reply.number("x-ratelimit-limit"), reply.number("x-ratelimit-remaining")), (50, left));
    }
    for reply in &replies[50..] {
        assert_eq!(reply.status(), 429, "{}", reply.0);
        assert_eq!((reply.number("x-ratelimit-limit"), reply.number("x-ratelimit-remaining")), (50, 0));
        assert!((1..=10).contains(&reply.number("retry-after")), "{}", reply.0);
        assert!(reply.0.contains(r#"{"error":"rate_limited""#), "{}", reply.0);
    }

    redis.kill().unwrap();
    for node in &nodes {
        // What Redis denied is denied for up to a second more.
        let first = wait::until("the process to decide by itself", wait::LIMIT, || {
            let reply = node.get();
            if reply.number("x-ratelimit-limit") == 25 { Ok(reply) } else { Err(reply.0) }
        });
        assert_eq!(first.unwrap().status(), 200);
        let statuses: Vec<_> = (0..30).map(|_| node.get().status()).collect();
        assert_eq!(statuses[..24], [200; 24]);
        assert_eq!(statuses[24..], [429; 6]);
    }

    redis.restart().unwrap();
    for node in &nodes {
        wait::until("Redis to decide again", wait::LIMIT, || {
            let reply = node.get();
            if reply.number("x-ratelimit-limit") == 50 { Ok(()) } else { Err(reply.0) }
        })
        .unwrap();
    }
}

/// Starts it with an environment that makes no sense, and returns what it says.
fn fails(name: &str, value: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_redis-fleet")).env(name, value).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(!error.contains("panicked"), "{error}");
    error
}

#[test]
fn an_address_of_redis_that_makes_no_sense_is_told_without_its_password() {
    for url in ["nonsense", "", "127.0.0.1:6379", "http://127.0.0.1", "redis://:hunter2@host:port"] {
        let error = fails("REDIS_URL", url);
        assert!(
            error.contains("REDIS_URL is not an address such as redis://127.0.0.1:6379"),
            "{url}: {error}"
        );
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn an_address_to_listen_on_that_makes_no_sense_is_named() {
    for address in ["nonsense", "", "127.0.0.1"] {
        assert!(fails("LISTEN", address).contains(&format!("LISTEN is `{address}`")));
    }
}
