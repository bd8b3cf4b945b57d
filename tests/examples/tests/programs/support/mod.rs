//! Running an example as a person would.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long an answer may take. Far more than it needs, since the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running program, which is stopped when this is dropped.
///
/// Failures are panics: this is for tests.
#[derive(Debug)]
pub(crate) struct Program {
    process: Child,
    address: SocketAddr,
}

impl Program {
    /// Starts the program at `path` with these environment variables, on a free port, and waits until it
    /// listens.
    ///
    /// # Panics
    ///
    /// When it does not print where it listens.
    #[must_use]
    pub(crate) fn start(path: &str, environment: &[(&str, &str)]) -> Self {
        let mut process = command(path, environment).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").expect("it says where it listens");
        Self { process, address: address.parse().unwrap() }
    }

    /// Runs a program that cannot start with this environment, and returns its output.
    ///
    /// # Panics
    ///
    /// When it exits with anything but 1, or panics.
    #[must_use]
    pub(crate) fn fails(path: &str, environment: &[(&str, &str)]) -> String {
        let output = command(path, environment).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(!error.contains("panicked"), "{error}");
        error
    }

    /// Where it listens.
    #[must_use]
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends `GET path`.
    #[must_use]
    pub(crate) fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], "")
    }

    /// Sends a request on a new connection.
    ///
    /// # Panics
    ///
    /// When there is no answer.
    #[must_use]
    pub(crate) fn send(&self, method: &str, path: &str, fields: &[(&str, &str)], body: &str) -> Reply {
        let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\n{fields}\r\n",
            self.address,
            body.len()
        );
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        Reply(text)
    }
}

fn command(path: &str, environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(path);
    // The environment of the tests may name a Redis, which is not for this.
    command.env_remove("REDIS_URL").env("LISTEN", "127.0.0.1:0").envs(environment.iter().copied());
    command
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The text of a response, head and body.
#[derive(Clone, Debug)]
pub(crate) struct Reply(String);

impl Reply {
    /// The status.
    ///
    /// # Panics
    ///
    /// When there is none.
    #[must_use]
    pub(crate) fn status(&self) -> u16 {
        self.0.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
    }

    /// The values of a header field, named in lower case: one for each of its lines.
    pub(crate) fn fields(&self, name: &str) -> impl Iterator<Item = &str> {
        let (head, _) = self.parts();
        head.lines().filter_map(move |line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// The value of a header field, named in lower case; the first if there are several.
    ///
    /// # Panics
    ///
    /// When there is none.
    #[must_use]
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields(name).next().unwrap_or_else(|| panic!("no {name} in {}", self.0))
    }

    /// The value of a header field that is a number.
    ///
    /// # Panics
    ///
    /// When there is none.
    #[must_use]
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.field(name).parse().unwrap_or_else(|_| panic!("no number in {name}: {}", self.0))
    }

    /// The body.
    #[must_use]
    pub(crate) fn body(&self) -> &str {
        self.parts().1
    }

    fn parts(&self) -> (&str, &str) {
        self.0.split_once("\r\n\r\n").unwrap_or((&self.0, ""))
    }
}
