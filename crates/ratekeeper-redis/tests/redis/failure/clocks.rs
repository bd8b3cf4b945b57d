//! Servers whose clock differs from ours.
//!
//! A test cannot set the clock of a real server. This one knows only what time it is, and whether a charge is
//! late by that clock.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ratekeeper_redis::RedisStore;

use super::tally::Caller;
use super::{DEADLINE, hasty, ready};
use crate::support::PATIENCE;

const HOUR: i64 = 3_600_000_000;

#[derive(Debug, Default)]
pub(super) struct Clock {
    /// How many microseconds it is ahead of ours.
    ahead: AtomicI64,
    /// How long the server does nothing before it reads its clock, in milliseconds.
    asleep: AtomicU32,
    /// How many charges came in time, including the probes.
    in_time: AtomicU32,
    late: AtomicU32,
}

/// A server that ends with the test process.
fn start(ahead: i64) -> (Arc<Clock>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let clock = Arc::new(Clock { ahead: ahead.into(), ..Clock::default() });
    let shared = Arc::clone(&clock);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let clock = Arc::clone(&shared);
            thread::spawn(move || serve(&stream, &clock));
        }
    });
    (clock, format!("redis://127.0.0.1:{port}"))
}

fn serve(stream: &TcpStream, clock: &Clock) -> std::io::Result<()> {
    let (mut from, mut to) = (BufReader::new(stream), stream);
    loop {
        let command = command(&mut from)?;
        let reply = match (command.first(), command.last()) {
            // A probe settles nothing, and so has nothing to say.
            (Some(name), Some(ask)) if name == b"EVALSHA" && ask.len() > 18 => clock.decide(ask),
            _ => b"+OK\r\n".to_vec(),
        };
        to.write_all(&reply)?;
    }
}

fn number(from: &mut impl BufRead) -> std::io::Result<usize> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    // The first character is the type.
    line.get(1..).and_then(|rest| rest.trim().parse().ok()).ok_or(std::io::ErrorKind::UnexpectedEof.into())
}

pub(super) fn command(from: &mut impl BufRead) -> std::io::Result<Vec<Vec<u8>>> {
    let words = number(from)?;
    let word = |_| {
        let mut word = vec![0; number(from)? + 2];
        from.read_exact(&mut word)?;
        word.truncate(word.len() - 2);
        Ok(word)
    };
    (0..words).map(word).collect()
}

impl Clock {
    pub(super) fn decide(&self, ask: &[u8]) -> Vec<u8> {
        thread::sleep(Duration::from_millis(self.asleep.load(Ordering::SeqCst).into()));
        let micros = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_micros();
        let now = (micros as i64 + self.ahead.load(Ordering::SeqCst)) as f64;
        let deadline = f64::from_le_bytes(*ask.first_chunk().expect("a deadline"));
        let is_late = deadline > 0.0 && now > deadline;
        let mut reply = ask[16..20].to_vec();
        reply.extend(now.to_le_bytes());
        if is_late {
            self.late.fetch_add(1, Ordering::SeqCst);
            reply.push(1);
        } else {
            self.in_time.fetch_add(1, Ordering::SeqCst);
            // All are admitted, and the only counter did not exist.
            reply.extend([0, 0, 0, 0, 0]);
        }
        [format!("${}\r\n", reply.len()).as_bytes(), &reply, b"\r\n"].concat()
    }

    fn step(&self, micros: i64) {
        self.ahead.fetch_add(micros, Ordering::SeqCst);
    }
}

/// Less than the smallest step of half a second, by which everything would be late. Otherwise as long as
/// possible, because what is to be answered in time must be so on a busy machine as well.
const UNHURRIED: Duration = Duration::from_millis(400);

async fn unhurried(url: &str) -> RedisStore {
    let store = hasty(url).timeout(UNHURRIED).build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("the server works");
    store
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_that_are_wrong_and_that_are_set() {
    for ahead in [0, 24 * HOUR, -24 * HOUR] {
        let (clock, url) = start(ahead);
        let store = unhurried(&url).await;
        for step in [0, HOUR, -HOUR, 500_000, -500_000] {
            clock.step(step);
            for _ in 0..3 {
                let tally = Caller::new("clock").tally_many(&store, 1).await;
                assert_eq!(tally.admitted, 1, "{ahead} {step}: {tally:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_is_what_is_late_by_the_clock_of_the_server() {
    for ahead in [24 * HOUR, -24 * HOUR] {
        let (clock, url) = start(ahead);
        let store = ready(&url).await;
        let before = clock.in_time.load(Ordering::SeqCst);
        clock.asleep.store(3 * DEADLINE.as_millis() as u32, Ordering::SeqCst);
        let tally = Caller::new("clock").tally_many(&store, 1).await;
        tally.assert_orderly();
        assert_eq!(tally.timeout, 1, "{tally:?}");
        // The probes that follow come later still, and have no deadline.
        let seen = async {
            while clock.late.load(Ordering::SeqCst) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, seen).await.expect("it is void");
        assert_eq!(clock.in_time.load(Ordering::SeqCst), before);
    }
}

/// Also if by less than the deadline: what was known about the clock is not trusted from the next answer on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_is_late_after_the_clock_was_set_back_a_little() {
    for back in [900_000, 60_000] {
        let (clock, url) = start(0);
        let store = unhurried(&url).await;
        assert_eq!(Caller::new("clock").tally_many(&store, 1).await.admitted, 1);
        clock.step(-back);
        for _ in 0..3 {
            assert_eq!(Caller::new("clock").tally_many(&store, 1).await.admitted, 1);
        }
        let before = clock.in_time.load(Ordering::SeqCst);
        let asleep = UNHURRIED + Duration::from_millis(30);
        clock.asleep.store(asleep.as_millis() as u32, Ordering::SeqCst);
        let tally = Caller::new("clock").tally_many(&store, 1).await;
        assert_eq!(tally.timeout, 1, "{back}: {tally:?}");
        // The probes that follow come later still, and have no deadline.
        let seen = async {
            while clock.late.load(Ordering::SeqCst) == 0 && clock.in_time.load(Ordering::SeqCst) == before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, seen).await.expect("it is looked at");
        assert_eq!(
            clock.in_time.load(Ordering::SeqCst),
            before,
            "{back}: a charge was made after its deadline"
        );
    }
}
