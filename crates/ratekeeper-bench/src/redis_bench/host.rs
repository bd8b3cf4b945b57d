//! The servers that do the work, and how long that takes them.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ratekeeper_servers::RedisServer;

/// A server whose time is counted.
#[derive(Clone)]
pub enum Host {
    /// A Redis server.
    Redis(Arc<RedisServer>),
    /// Throttlecrab's own server.
    Throttlecrab(Arc<Throttlecrab>),
}

impl Host {
    /// The processor time that it has used.
    ///
    /// # Panics
    ///
    /// If it does not report that.
    #[must_use]
    pub fn cpu_used(&self) -> Duration {
        match self {
            Self::Redis(server) => server.cpu_used().expect("the server tells its time"),
            Self::Throttlecrab(server) => server.cpu_used(),
        }
    }
}

/// The processor time that this process has used, on all of its threads. (Linux reports it for each thread,
/// in nanoseconds.)
///
/// # Panics
///
/// If the system does not report it.
#[must_use]
pub(super) fn own_cpu_used() -> Duration {
    let threads = fs::read_dir("/proc/self/task").expect("Linux lists the threads");
    let used = threads.flatten().filter_map(|thread| {
        let stat = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        stat.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(used.sum())
}

/// A running throttlecrab.
#[derive(Debug)]
pub struct Throttlecrab {
    process: Child,
    port: u16,
}

impl Throttlecrab {
    /// Starts the binary that `THROTTLECRAB` names; `None` if it names none.
    ///
    /// # Panics
    ///
    /// If it does not start.
    #[must_use]
    pub fn start() -> Option<Self> {
        let binary = std::env::var_os("THROTTLECRAB")?;
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let port = listener.local_addr().expect("it has a number").port();
        drop(listener);
        let process = Command::new(binary)
            .args(["--redis", "--redis-host", "127.0.0.1", "--redis-port", &port.to_string()])
            .args(["--log-level", "error"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("THROTTLECRAB is a program");
        let server = Self { process, port };
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(started.elapsed() < Duration::from_secs(10), "throttlecrab listens");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(server)
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    fn cpu_used(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id())).expect("it runs");
        // After the name, which is in brackets: the 12th and the 13th field, in hundredths of a second.
        let rest = stat.rsplit_once(')').expect("it has a name").1;
        let ticks: u64 = rest.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 10)
    }
}

impl Drop for Throttlecrab {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
