//! The options of a server.

use std::{ffi::OsStr, fmt::Write as _, path::PathBuf, sync::Mutex};

use super::{
    Certificates, RedisServer,
    launch::{self, Failure, Launch},
};
use crate::{Error, Result, ports::Port, scratch::Scratch};

/// How many ports are tried. Each fails only if somebody else took it a moment before.
const ATTEMPTS: usize = 32;

/// The options of a [`RedisServer`].
#[derive(Clone, Debug, Default)]
#[must_use = "a server has to be started"]
pub struct Builder {
    lines: Vec<String>,
    arguments: Vec<&'static str>,
    unix_socket: bool,
    tls: Option<Tls>,
    password: Option<String>,
    user: Option<User>,
}

#[derive(Clone, Copy, Debug)]
enum Tls {
    Server,
    Mutual,
}

/// A user of the server's access-control list.
#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) password: String,
}

impl Builder {
    /// Adds a line as in `redis.conf`, such as `hz 100`.
    pub fn config(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Also listens on a Unix socket: [`RedisServer::socket`].
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Also listens on a port with TLS: [`RedisServer::tls_port`]. The certificate is for `localhost` and
    /// `127.0.0.1`, and is signed by the authority in [`RedisServer::certificates`].
    pub fn tls(mut self) -> Self {
        self.tls = Some(Tls::Server);
        self
    }

    /// Like [`tls`](Self::tls), but also asks clients for a certificate.
    pub fn mutual_tls(mut self) -> Self {
        self.tls = Some(Tls::Mutual);
        self
    }

    /// Asks for this password (`requirepass`).
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Adds a user with the permissions in `rules`, such as `~ratekeeper:* +@all`. The server's URLs are for
    /// this user.
    ///
    /// The default user exists as well, with the password if there is one.
    pub fn user(
        mut self,
        name: impl Into<String>,
        password: impl Into<String>,
        rules: impl AsRef<str>,
    ) -> Self {
        let user = User { name: name.into(), password: password.into() };
        self.lines.push(format!(
            "user {} on {} {}",
            user.name,
            quoted(format!(">{}", user.password)),
            rules.as_ref()
        ));
        self.user = Some(user);
        self
    }

    /// Refuses what needs more memory than this many bytes (`noeviction`).
    pub fn max_memory(self, bytes: u64) -> Self {
        self.config(format!("maxmemory {bytes}")).config("maxmemory-policy noeviction")
    }

    /// Starts the server, and returns when it answers.
    ///
    /// # Errors
    ///
    /// Says what to install if there is no server, and what the server printed if it does not start.
    pub fn start(self) -> Result<RedisServer> {
        let mut last = Error::new("no port was tried");
        for _ in 0..ATTEMPTS {
            match self.start_on(Port::reserve()) {
                Ok(server) => return Ok(server),
                Err(Failure::InUse(error)) => last = error,
                Err(Failure::Other(error)) => return Err(error),
            }
        }
        Err(last)
    }

    /// Adds an argument to the command line.
    pub(crate) fn argument(mut self, argument: &'static str) -> Self {
        self.arguments.push(argument);
        self
    }

    /// Makes it follow a master with the same password, and lets replicas follow it, without the usual
    /// delays.
    pub(crate) fn replicating(self) -> Self {
        let authentication =
            self.password.as_ref().map(|password| format!("masterauth {}", quoted(password)));
        let options = self.config("repl-diskless-sync yes").config("repl-diskless-sync-delay 0");
        match authentication {
            Some(line) => options.config(line),
            None => options,
        }
    }

    fn start_on(&self, port: Port) -> Result<RedisServer, Failure> {
        let scratch = Scratch::new()?;
        let tls_port = self.tls.map(|_| Port::reserve());
        let certificates = self.tls.map(|_| Certificates::new(&scratch)).transpose()?;
        let config = self.file(&port, &scratch, tls_port.as_ref().zip(certificates.as_ref()));
        let launch = Launch::new(config, self.arguments.clone());
        let process =
            launch.start(&scratch, |pid| launch::is_ready(port.number(), self.default_password(), pid))?;
        Ok(RedisServer {
            process: Mutex::new(process),
            launch,
            options: self.clone(),
            port,
            tls_port,
            certificates,
            scratch,
        })
    }

    /// The configuration file.
    fn file(&self, port: &Port, scratch: &Scratch, tls: Option<(&Port, &Certificates)>) -> String {
        let mut file = format!(
            "bind 127.0.0.1\nport {}\nprotected-mode no\ndaemonize no\nsave \"\"\nappendonly no\ndir {}\n",
            port.number(),
            quoted(scratch.path())
        );
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(file, "{name} {value}");
        };
        if let Some(socket) = self.socket(scratch) {
            line("unixsocket", &quoted(&socket));
        }
        if let Some((port, certificates)) = tls {
            line("tls-port", &port.number().to_string());
            line("tls-cert-file", &quoted(certificates.server_file()));
            line("tls-key-file", &quoted(certificates.server_key_file()));
            line("tls-ca-cert-file", &quoted(certificates.authority_file()));
            line("tls-auth-clients", if matches!(self.tls, Some(Tls::Mutual)) { "yes" } else { "no" });
        }
        if let Some(password) = &self.password {
            line("requirepass", &quoted(password));
        }
        for own in &self.lines {
            file.push_str(own);
            file.push('\n');
        }
        file
    }

    pub(super) fn socket(&self, scratch: &Scratch) -> Option<PathBuf> {
        self.unix_socket.then(|| scratch.file("socket"))
    }

    pub(crate) fn default_password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    pub(super) fn client_user(&self) -> Option<&User> {
        self.user.as_ref()
    }
}

/// A text as one word of a configuration file.
fn quoted(text: impl AsRef<OsStr>) -> String {
    format!("{:?}", text.as_ref())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_port_that_somebody_took_meanwhile_is_told_from_other_failures() {
        let port = Port::reserve();
        let _other = TcpListener::bind(("127.0.0.1", port.number())).expect("nobody else is there");
        let failure = Builder::default().start_on(port).expect_err("it cannot listen");
        assert!(matches!(failure, Failure::InUse(_)), "{}", Error::from(failure));
        let failure =
            Builder::default().config("nonsense").start_on(Port::reserve()).expect_err("it refuses");
        assert!(matches!(failure, Failure::Other(_)), "{}", Error::from(failure));
    }
}
