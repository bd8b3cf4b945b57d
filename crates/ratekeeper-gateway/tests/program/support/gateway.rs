//! The gateway as a person would run it.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::wire::{PATIENCE, Wire};

pub(crate) const PATH: &str = env!("CARGO_BIN_EXE_ratekeeper-gateway");

/// Rules that admit everything.
pub(crate) const OPEN: &str = "[[rules]]\nname = \"all\"\nquota = \"1000000/s\"\n";

/// A running gateway, which is stopped when this is dropped.
pub(crate) struct Gateway {
    process: Child,
    pub(crate) address: SocketAddr,
    metrics: SocketAddr,
    log: Arc<Mutex<String>>,
    _out: BufReader<ChildStdout>,
    files: Files,
}

impl Gateway {
    /// Starts one with these rules in front of this upstream.
    pub(crate) fn start(rules: &str, upstream: impl Display, args: &[&str]) -> Self {
        Self::run(Command::new(PATH), rules, &upstream.to_string(), args)
    }

    /// Starts one that may open no more than this many files.
    pub(crate) fn with_files(files: u32, rules: &str, upstream: impl Display, args: &[&str]) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\""), PATH]);
        Self::run(command, rules, &upstream.to_string(), args)
    }

    fn run(mut command: Command, rules: &str, upstream: &str, args: &[&str]) -> Self {
        let files = Files::new();
        let rules = files.write("rules.toml", rules);
        let mut process = command
            .args(["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--log", "debug"])
            .arg("--rules")
            .arg(rules)
            .args(["--upstream", upstream])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut errors = BufReader::new(process.stderr.take().unwrap());
        let log = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&log);
        thread::spawn(move || {
            let mut line = String::new();
            while errors.read_line(&mut line).is_ok_and(|read| read > 0) {
                kept.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        let mut out = BufReader::new(process.stdout.take().unwrap());
        let mut address = |what: &str| {
            let mut line = String::new();
            out.read_line(&mut line).unwrap();
            let address = line.trim().strip_prefix(what).and_then(|line| line.strip_prefix(" on http://"));
            address
                .unwrap_or_else(|| panic!("it says where: {line:?}, {}", log.lock().unwrap()))
                .parse()
                .unwrap()
        };
        let (listening, metrics) = (address("listening"), address("metrics"));
        Self { process, address: listening, metrics, log, _out: out, files }
    }

    /// A connection to it.
    pub(crate) async fn connect(&self) -> Wire {
        Wire::connect(self.address).await
    }

    /// Requests a path on a new connection, and returns the response.
    pub(crate) async fn get(&self, path: &str) -> (crate::support::wire::Head, String) {
        let mut client = self.connect().await;
        client.send(format!("GET {path} HTTP/1.1\r\nhost: example.com\r\nconnection: close\r\n\r\n")).await;
        client.answer().await
    }

    /// A connection to its second listener.
    pub(crate) async fn connect_admin(&self) -> Wire {
        Wire::connect(self.metrics).await
    }

    /// Sends a request to the second listener.
    pub(crate) async fn admin(&self, path: &str) -> (u16, String) {
        let mut client = self.connect_admin().await;
        client.send(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await;
        let (head, body) = client.answer().await;
        (head.status(), body)
    }

    /// The value of one line of the metrics; 0 if there is none.
    pub(crate) async fn metric(&self, series: &str) -> f64 {
        let (_, text) = self.admin("/metrics").await;
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    /// Waits until one line of the metrics has this value.
    pub(crate) async fn metric_becomes(&self, series: &str, expected: f64) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let value = self.metric(series).await;
            if (value - expected).abs() < f64::EPSILON {
                return;
            }
            assert!(Instant::now() < deadline, "{series} is {value}, and not {expected}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Writes a file beside the rules, or the rules themselves.
    pub(crate) fn write(&self, name: &str, text: &str) {
        self.files.write(name, text);
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until it has logged this.
    pub(crate) async fn logs(&self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.log().contains(text) {
            assert!(Instant::now() < deadline, "it does not say {text:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Its peak memory, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it says so");
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Waits until it has exited.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end: {}", self.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if thread::panicking() {
            eprintln!("the gateway's log:\n{}", self.log());
        }
    }
}

/// A directory that is removed when this is dropped.
pub(crate) struct Files(PathBuf);

impl Files {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("gateway-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a gateway that does not start, and returns its exit code and output.
pub(crate) fn fails(args: &[&str]) -> (i32, String) {
    let mut process =
        Command::new(PATH).args(args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while process.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            let _ = process.kill();
            panic!("it has started: {args:?}");
        }
        thread::sleep(Duration::from_millis(5));
    }
    let mut error = String::new();
    process.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert!(!error.contains("panicked"), "{error}");
    (process.wait().unwrap().code().expect("it ends by itself"), error)
}
