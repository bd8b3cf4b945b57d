//! Starts a server and waits until it answers.

use std::{
    env, fs, io,
    path::{self, Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use redis::{Client, Connection, ConnectionAddr, FromRedisValue, IntoConnectionInfo, RedisConnectionInfo};

use super::{ANSWER, info};
use crate::{Error, Result, process::Process, scratch::Scratch, wait};

const CONFIG: &str = "server.conf";
const LOG: &str = "server.log";

/// How a process is started and restarted.
#[derive(Debug)]
pub(crate) struct Launch {
    config: String,
    arguments: Vec<&'static str>,
}

/// Why a server did not start.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Somebody else has its port, so it may start on another one.
    InUse(Error),
    Other(Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::InUse(error) | Failure::Other(error) => error,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Other(error.into())
    }
}

impl Launch {
    /// A server with this configuration, followed by these arguments.
    pub(crate) fn new(config: String, arguments: Vec<&'static str>) -> Self {
        Self { config, arguments }
    }

    /// Starts a process in `scratch`, and returns when `is_ready` accepts the process with its id.
    pub(crate) fn start(
        &self,
        scratch: &Scratch,
        is_ready: impl Fn(u32) -> Result<()>,
    ) -> Result<Process, Failure> {
        let config = scratch.file(CONFIG);
        fs::write(&config, &self.config)?;
        let log = fs::File::create(scratch.file(LOG))?;
        let binary = binary();
        let mut command = Command::new(&binary);
        command.arg(&config).args(&self.arguments).current_dir(scratch.path()).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        let process = Process::spawn(&mut command, scratch).map_err(|error| cannot_run(&binary, &error))?;

        let answered = wait::until("an answer", wait::LIMIT, || match process.ended() {
            Ok(None) => is_ready(process.pid()).map(|()| None),
            ended => Ok(Some(ended)),
        });
        match answered {
            Ok(None) => Ok(process),
            Ok(Some(Err(error))) => Err(Failure::Other(error)),
            Ok(Some(Ok(_))) => Err(did_not_start(&binary, scratch)),
            Err(error) => Err(error.context(format!("{} started, but", binary.display())).into()),
        }
    }
}

fn binary() -> PathBuf {
    let set = env::var_os("REDIS_SERVER").filter(|set| !set.is_empty());
    let binary = PathBuf::from(set.unwrap_or_else(|| "redis-server".into()));
    // It is run in a different directory. A bare name is looked up on the path.
    if binary.components().count() > 1 { path::absolute(&binary).unwrap_or(binary) } else { binary }
}

fn cannot_run(binary: &Path, error: &io::Error) -> Error {
    Error::new(format!(
        "cannot run `{}`: {error}. These tests need a Redis server of version 6.2 or later, or a Valkey: install \
         the package redis-server, redis or valkey of your system (`./scripts/test` does), or set REDIS_SERVER to \
         the path of the binary",
        binary.display()
    ))
}

fn did_not_start(binary: &Path, scratch: &Scratch) -> Failure {
    let log = fs::read_to_string(scratch.file(LOG)).unwrap_or_default();
    let message = format!("{} did not start. It said:\n{log}", binary.display());
    if log.contains("in use") {
        Failure::InUse(Error::new(message))
    } else if log.contains(">>> 'tls-") {
        // The first line of the configuration that it does not know.
        Failure::Other(Error::without_tls(message))
    } else {
        Failure::Other(Error::new(message))
    }
}

/// A new connection as the default user.
pub(crate) fn connect(port: u16, password: Option<&str>) -> Result<Connection> {
    let mut settings = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some(password) = password {
        settings = settings.set_password(password);
    }
    let address = ConnectionAddr::Tcp("127.0.0.1".to_owned(), port);
    let client = Client::open(address.into_connection_info()?.set_redis_settings(settings))?;
    let connection = client
        .get_connection_with_timeout(ANSWER)
        .map_err(|error| Error::from(error).context(format!("cannot connect to port {port}")))?;
    connection.set_read_timeout(Some(ANSWER))?;
    connection.set_write_timeout(Some(ANSWER))?;
    Ok(connection)
}

/// Sends one command, and reads the answer as a `T`.
pub(crate) fn query<T: FromRedisValue>(connection: &mut Connection, command: &[&str]) -> Result<T> {
    let mut words = command.iter();
    let Some(name) = words.next() else { return Err(Error::new("a command has at least one word")) };
    let mut packed = redis::cmd(name);
    packed.arg(words.as_slice());
    packed.query(connection).map_err(|error| Error::from(error).context(name))
}

/// Whether the process with this id answers on the port, and not another one.
pub(crate) fn is_ready(port: u16, password: Option<&str>, pid: u32) -> Result<()> {
    let mut connection = connect(port, password)?;
    connection.set_read_timeout(Some(Duration::from_secs(1)))?;
    query::<()>(&mut connection, &["PING"])?;
    let info: String = query(&mut connection, &["INFO", "server"])?;
    match info::field(&info, "process_id")? {
        found if found == pid.to_string() => Ok(()),
        other => Err(Error::new(format!("port {port} is answered by process {other}, and not by {pid}"))),
    }
}
