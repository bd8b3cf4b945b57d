//! One Redis or Valkey.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use redis::{Connection, Value};

use self::launch::{Failure, Launch};
use crate::{Error, Result, ports::Port, process::Process, scratch::Scratch, wait};

mod builder;
mod certificates;
pub(crate) mod info;
mod launch;
mod urls;

pub use self::{
    builder::Builder,
    certificates::Certificates,
    info::{Product, Version},
};

/// How long a connection of [`RedisServer::command`] waits for an answer.
const ANSWER: Duration = Duration::from_secs(10);

/// A Redis or Valkey server, which ends when it is dropped.
///
/// It listens on 127.0.0.1 and saves nothing; its [`Builder`] adds options.
#[derive(Debug)]
pub struct RedisServer {
    // Before the directory, so that it has ended when the directory is removed.
    process: Mutex<Process>,
    launch: Launch,
    options: Builder,
    port: Port,
    tls_port: Option<Port>,
    certificates: Option<Certificates>,
    scratch: Scratch,
}

impl RedisServer {
    /// Starts a server without any options.
    ///
    /// # Errors
    ///
    /// Those of [`Builder::start`].
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// Options for a server to be started.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The port for connections without TLS.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The port for connections with TLS, if [`Builder::tls`] asked for one.
    #[must_use]
    pub fn tls_port(&self) -> Option<u16> {
        self.tls_port.as_ref().map(Port::number)
    }

    /// What a client needs for TLS, if [`Builder::tls`] asked for it.
    #[must_use]
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    /// The Unix socket, if [`Builder::unix_socket`] asked for one.
    #[must_use]
    pub fn socket(&self) -> Option<PathBuf> {
        self.options.socket(&self.scratch)
    }

    /// The id of the process, or of the last one if it has ended.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// Whether the process has not ended.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self.process().ended(), Ok(None))
    }

    /// The directory of the server's files, including its log.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// Stops the process (`SIGSTOP`). Connections stay open, and the system accepts new ones, but nothing is
    /// answered. Returns when it has stopped.
    ///
    /// # Errors
    ///
    /// If the process has ended.
    pub fn pause(&self) -> Result<()> {
        self.process().pause()
    }

    /// Lets a paused process continue (`SIGCONT`), with everything that was sent to it meanwhile.
    ///
    /// # Errors
    ///
    /// If the process has ended.
    pub fn resume(&self) -> Result<()> {
        self.process().resume()
    }

    /// Ends the process immediately (`SIGKILL`). Connections are closed and the port is free when this
    /// returns.
    ///
    /// # Errors
    ///
    /// If the system refuses to.
    pub fn kill(&self) -> Result<()> {
        self.process().kill()
    }

    /// Ends the process as an administrator does, with `SHUTDOWN NOSAVE`.
    ///
    /// # Errors
    ///
    /// If the command cannot be sent, or the server continues to run.
    pub fn shutdown(&self) -> Result<()> {
        let process = self.process();
        let mut connection = self.connect()?;
        // It does not answer if it obeys.
        if let Err(error) = redis::cmd("SHUTDOWN").arg("NOSAVE").query::<()>(&mut connection)
            && !error.is_io_error()
        {
            return Err(Error::from(error).context("SHUTDOWN"));
        }
        wait::until("the server to shut down", wait::LIMIT, || match process.ended() {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err("it runs".to_owned()),
            Err(error) => Err(error.to_string()),
        })
    }

    /// Restarts it on the same port and without data; kills it first if it runs.
    ///
    /// # Errors
    ///
    /// If it does not answer in time.
    pub fn restart(&self) -> Result<()> {
        let mut process = self.process();
        process.kill()?;
        // For a moment somebody else who looks for a free port may have it.
        *process = wait::until("the port to be free again", wait::LIMIT, || {
            match self.launch.start(&self.scratch, |pid| self.is_ready(pid)) {
                Err(Failure::InUse(error)) => Err(error),
                other => Ok(other),
            }
        })??;
        Ok(())
    }

    /// Sends one command over a new connection, as the default user.
    ///
    /// # Errors
    ///
    /// If the server answers with an error or cannot be reached.
    pub fn command(&self, command: &[&str]) -> Result<Value> {
        self.query(command)
    }

    /// A new blocking connection of the default user.
    ///
    /// It gives up waiting for an answer after ten seconds.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached.
    pub fn connect(&self) -> Result<Connection> {
        launch::connect(self.port(), self.options.default_password())
    }

    /// Sends one command, and reads the answer as a `T`.
    pub(crate) fn query<T: redis::FromRedisValue>(&self, command: &[&str]) -> Result<T> {
        launch::query(&mut self.connect()?, command)
    }

    /// Whether this server answers, and not another process on its port.
    fn is_ready(&self, pid: u32) -> Result<()> {
        launch::is_ready(self.port(), self.options.default_password(), pid)
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
