//! One PostgreSQL.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use self::user::User;
use crate::{
    Error, Result,
    ports::Port,
    process::{End, Process},
    scratch::Scratch,
    wait,
};

mod binaries;
mod user;

/// The user that has all rights.
const USER: &str = "ratekeeper";
const LOG: &str = "server.log";

/// Settings for a server that nobody relies on: what it writes need not survive a crash of the machine,
/// though it does survive one of the server, and all files it leaves behind are in its directory.
const SETTINGS: &[&str] = &[
    "fsync=off",
    "full_page_writes=off",
    "dynamic_shared_memory_type=mmap",
    "listen_addresses=127.0.0.1",
    "max_connections=50",
    "shared_buffers=8MB",
    "autovacuum=off",
];

/// A PostgreSQL server, which ends when it is dropped. Unlike a Redis server, it keeps its data when it is
/// restarted.
///
/// Starting one takes some seconds, so the tests of a binary share it, and each has its
/// [own database](Self::create_database).
#[derive(Debug)]
pub struct PostgresServer {
    // Before the directory, so that it has ended when the directory is removed.
    process: Mutex<Process>,
    binaries: PathBuf,
    user: Option<User>,
    port: Port,
    scratch: Scratch,
}

impl PostgresServer {
    /// Starts an empty server.
    ///
    /// # Errors
    ///
    /// If PostgreSQL is not found, or does not start in time.
    pub fn start() -> Result<Self> {
        let (binaries, user) = (binaries::directory()?, User::unprivileged()?);
        let scratch = Scratch::new()?;
        if let Some(user) = user {
            user.own(&scratch)?;
        }
        let port = Port::reserve();
        initialise(&binaries, user, &scratch)?;
        let process = Mutex::new(launch(&binaries, user, &scratch, &port)?);
        Ok(Self { process, binaries, user, port, scratch })
    }

    /// Creates a database, and returns its [connection string](Self::connection_string).
    ///
    /// # Errors
    ///
    /// If the server refuses to.
    pub fn create_database(&self) -> Result<String> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.execute("postgres", &format!("CREATE DATABASE {name}"))?;
        Ok(self.connection_string(&name))
    }

    /// How clients reach a database, as the user that has all rights.
    #[must_use]
    pub fn connection_string(&self, database: &str) -> String {
        format!("host=127.0.0.1 port={} user={USER} dbname={database}", self.port.number())
    }

    /// Runs SQL in a database with the client that comes with the server, over a new connection.
    ///
    /// # Errors
    ///
    /// If the server answers with an error or cannot be reached.
    pub fn execute(&self, database: &str, sql: &str) -> Result<String> {
        output(self.client(database).args(["--command", sql]))
    }

    /// Runs a file of SQL in one transaction, as somebody who migrates a database by hand would.
    ///
    /// # Errors
    ///
    /// If the server answers with an error or cannot be reached.
    pub fn execute_file(&self, database: &str, path: &Path) -> Result<String> {
        output(self.client(database).arg("--single-transaction").arg("--file").arg(path))
    }

    fn client(&self, database: &str) -> Command {
        let mut command = Command::new(self.binaries.join("psql"));
        command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"]);
        command.arg(self.connection_string(database));
        command
    }

    /// The directory of the server's files, including its log.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// Ends the server immediately, as a crash would. Connections are closed when this returns.
    ///
    /// # Errors
    ///
    /// If the system refuses to.
    pub fn kill(&self) -> Result<()> {
        self.process().kill()
    }

    /// Restarts it on the same port and with its data; kills it first if it runs.
    ///
    /// # Errors
    ///
    /// If it does not answer in time.
    pub fn restart(&self) -> Result<()> {
        let mut process = self.process();
        process.kill()?;
        *process = launch(&self.binaries, self.user, &self.scratch, &self.port)?;
        Ok(())
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn data(scratch: &Scratch) -> PathBuf {
    scratch.file("data")
}

/// Creates the directory of the server's data.
fn initialise(binaries: &Path, user: Option<User>, scratch: &Scratch) -> Result<()> {
    let mut command = Command::new(binaries.join("initdb"));
    command.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--username", USER]);
    command.arg("--pgdata").arg(data(scratch)).current_dir(scratch.path());
    if let Some(user) = user {
        user.run(&mut command);
    }
    output(&mut command).map(drop)
}

/// Starts the server, and returns when it answers.
fn launch(binaries: &Path, user: Option<User>, scratch: &Scratch, port: &Port) -> Result<Process> {
    let log = fs::File::create(scratch.file(LOG))?;
    let mut command = Command::new(binaries.join("postgres"));
    command
        .arg("-D")
        .arg(data(scratch))
        .arg("-k")
        .arg(scratch.path())
        .args(["-p", &port.number().to_string()]);
    command.args(SETTINGS.iter().flat_map(|setting| ["-c", setting]));
    command.current_dir(scratch.path()).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    if let Some(user) = user {
        user.run(&mut command);
    }
    // On `SIGQUIT` it cleans up after itself, and otherwise behaves as if it had been killed.
    let process = Process::spawn_ended_by(End::Quit, &mut command, scratch)?;
    wait::until("PostgreSQL to answer", wait::LIMIT, || {
        if let Some(status) = process.ended()? {
            let log = fs::read_to_string(scratch.file(LOG)).unwrap_or_default();
            return Ok(Err(Error::new(format!("PostgreSQL has ended: {status}. It said:\n{log}"))));
        }
        let mut ready = Command::new(binaries.join("pg_isready"));
        ready.args(["--quiet", "--host=127.0.0.1", "--port", &port.number().to_string()]);
        output(&mut ready).map(|_| Ok(()))
    })??;
    Ok(process)
}

/// Runs a program, and returns its output.
fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output =
        command.output().map_err(|error| Error::from(error).context(format!("cannot run `{program}`")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let (said, status) = (String::from_utf8_lossy(&output.stderr).into_owned(), output.status);
    Err(Error::new(format!("`{program}` has ended: {status}. It said:\n{}", said.trim())))
}
