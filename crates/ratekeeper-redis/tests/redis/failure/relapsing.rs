//! Servers that seem to work again, and refuse what is to be settled.
//!
//! A real server cannot be made to work for a probe and no longer. This one charges, which is all that a
//! probe needs, and otherwise does as it is told.

use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ratekeeper_core::{Debit, Store};
use ratekeeper_redis::RedisStore;

use super::clocks::{Clock, command};
use super::hasty;
use super::tally::Caller;
use crate::support::PATIENCE;

#[derive(Debug, Default)]
struct Server {
    clock: Clock,
    /// How many settlements it still refuses.
    refusals: AtomicU32,
    /// Whether it refuses the next charge as well, once it has refused a settlement.
    relapses: AtomicBool,
    /// Whether it refuses the next charge.
    is_ill: AtomicBool,
    /// What it was told to settle and did settle, each time.
    settled: Mutex<Vec<String>>,
}

/// A server that ends with the test process.
fn start(refusals: u32, relapses: bool) -> (Arc<Server>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (refusals, relapses) = (AtomicU32::new(refusals), AtomicBool::new(relapses));
    let server = Arc::new(Server { refusals, relapses, ..Server::default() });
    let shared = Arc::clone(&server);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let server = Arc::clone(&shared);
            thread::spawn(move || server.serve(&stream));
        }
    });
    (server, format!("redis://127.0.0.1:{port}"))
}

impl Server {
    fn serve(&self, stream: &TcpStream) -> std::io::Result<()> {
        let (mut from, mut to) = (BufReader::new(stream), stream);
        let mut charges = String::new();
        loop {
            let command = command(&mut from)?;
            let reply = match command.as_slice() {
                [name, text, ..] if name == b"EVAL" && text.starts_with(b"-- Uses") => b"$0\r\n\r\n".to_vec(),
                // A probe settles nothing.
                [name, .., ask] if name == b"EVALSHA" && ask.len() == 18 => b":0\r\n".to_vec(),
                [name, hash, .., ask] if name == b"EVALSHA" && hash == charges.as_bytes() => self.charge(ask),
                // The first that is not known charges.
                [name, ..] if name == b"EVALSHA" && charges.is_empty() => b"-NOSCRIPT none\r\n".to_vec(),
                [name, text, .., ask] if name == b"EVAL" => {
                    charges = redis::Script::new(&String::from_utf8_lossy(text)).get_hash().to_owned();
                    self.charge(ask)
                }
                [name, ..] if name == b"EVALSHA" => self.settle(&command),
                [name, ..] if name == b"TIME" => b"*2\r\n$1\r\n1\r\n$1\r\n1\r\n".to_vec(),
                _ => b"+OK\r\n".to_vec(),
            };
            to.write_all(&reply)?;
        }
    }

    fn charge(&self, ask: &[u8]) -> Vec<u8> {
        if self.is_ill.swap(false, Ordering::SeqCst) { refusal() } else { self.clock.decide(ask) }
    }

    fn settle(&self, command: &[Vec<u8>]) -> Vec<u8> {
        let left = self.refusals.load(Ordering::SeqCst);
        if left == 0 {
            let words = command.iter().map(|word| String::from_utf8_lossy(word));
            self.settled.lock().expect("nobody panics").push(words.collect());
            return b":1\r\n".to_vec();
        }
        self.refusals.store(left - 1, Ordering::SeqCst);
        self.is_ill.store(self.relapses.load(Ordering::SeqCst), Ordering::SeqCst);
        refusal()
    }
}

/// A store with enough time that a busy machine causes no failure.
async fn patient(url: &str) -> RedisStore {
    let store = hasty(url).timeout(PATIENCE).build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("the server works");
    store
}

fn refusal() -> Vec<u8> {
    b"-OOM command not allowed\r\n".to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_refuses_that_fails_again_and_again_is_kept() {
    let (server, url) = start(10, true);
    let store = patient(&url).await;
    store.debit(&[Debit::new(Caller::new("kept").charge_of())]).await.expect_err("it is not done yet");
    let settled = || server.settled.lock().expect("nobody panics").len();
    let done = async {
        while settled() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, done).await.expect("it is done in the end");
    store.debit(&[Debit::new(Caller::new("later").charge_of())]).await.expect("it is done");
    assert_eq!(settled(), 2, "each once");
}

/// The settlement itself may be to blame, and must not keep the breaker open for all others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_refuses_that_works_is_given_up() {
    let (server, url) = start(3, false);
    let store = patient(&url).await;
    store.debit(&[Debit::new(Caller::new("never").charge_of())]).await.expect_err("it is not done");
    let refused = async {
        while server.refusals.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("it is tried again");
    // What is handed over later is done later.
    let other = Caller::new("other");
    let done = async {
        while store.debit(&[Debit::new(other.charge_of())]).await.is_err() {
            store.ready(PATIENCE).await.expect("it works");
        }
    };
    tokio::time::timeout(PATIENCE, done).await.expect("others are served");
    let settled = server.settled.lock().expect("nobody panics");
    assert!(!settled.is_empty() && settled.iter().all(|names| !names.contains("never")), "{settled:?}");
}
