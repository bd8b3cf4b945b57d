//! A Prometheus that scrapes one server.

use std::{
    env, fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{Error, Result, ports::Port, process::Process, scratch::Scratch, wait};

const LOG: &str = "prometheus.log";
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(20);

/// A Prometheus, which ends when it is dropped.
///
/// It is the binary that the environment variable `PROMETHEUS` names, or else `prometheus` on the `PATH`.
#[derive(Debug)]
pub struct Prometheus {
    // Before the directory, so that it has ended when the directory is removed.
    _process: Process,
    port: Port,
    _scratch: Scratch,
}

impl Prometheus {
    /// Starts one that scrapes `/metrics` of this address every fifth of a second, and has these alerts.
    ///
    /// # Errors
    ///
    /// If there is no Prometheus, or it does not start in time.
    pub fn start(target: SocketAddr, alerts: &Path) -> Result<Self> {
        let (scratch, port) = (Scratch::new()?, Port::reserve());
        let config = scratch.file("prometheus.yml");
        let alerts = fs::canonicalize(alerts)?;
        fs::write(
            &config,
            format!(
                "global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}}\n\
                 rule_files: [{:?}]\n\
                 scrape_configs:\n\
                 - job_name: ratekeeper\n\
                 \x20 static_configs: [{{targets: ['{target}']}}]\n",
                alerts.display().to_string()
            ),
        )?;
        let log = fs::File::create(scratch.file(LOG))?;
        let binary = env::var("PROMETHEUS").unwrap_or_else(|_| "prometheus".to_owned());
        let mut command = Command::new(&binary);
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", scratch.file("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{}", port.number()))
            .current_dir(scratch.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let process = Process::spawn(&mut command, &scratch).map_err(|error| {
            Error::new(format!(
                "cannot run `{binary}`: {error}. Install the package prometheus of your system (`./scripts/test` does), \
                 or set PROMETHEUS to the path of the program"
            ))
        })?;
        let started = Self { _process: process, port, _scratch: scratch };
        wait::until("Prometheus to be ready", wait::LIMIT, || {
            if let Some(status) = started._process.ended()? {
                let log = fs::read_to_string(started._scratch.file(LOG)).unwrap_or_default();
                return Ok(Err(Error::new(format!("Prometheus has ended: {status}. It said:\n{log}"))));
            }
            started.get("/-/ready").map(|_| Ok(()))
        })??;
        Ok(started)
    }

    /// The server's answer to an instant query: the body, which is JSON.
    ///
    /// # Errors
    ///
    /// If the server rejects the query or cannot be reached.
    pub fn query(&self, expression: &str) -> Result<String> {
        let expression = utf8_percent_encode(expression, NON_ALPHANUMERIC);
        self.get(&format!("/api/v1/query?query={expression}"))
    }

    fn get(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port.number()))?;
        stream.set_read_timeout(Some(ANSWER))?;
        // HTTP/1.0, so that the body is not chunked and ends with the connection.
        write!(stream, "GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) =
            answer.split_once("\r\n\r\n").ok_or_else(|| Error::new("an answer without a head"))?;
        let status = head.split_whitespace().nth(1);
        if status == Some("200") { Ok(body.to_owned()) } else { Err(Error::new(format!("{path}: {answer}"))) }
    }
}
