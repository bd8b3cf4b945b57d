//! A process that ends when it is dropped.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, ExitStatus},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::{
    Error, Result,
    scratch::{PID_FILE, Scratch},
    wait,
};

/// How a process is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Without being asked (`SIGKILL`).
    Kill,
    /// By telling it to quit immediately (`SIGQUIT`), for one that has its own processes and memory to
    /// release.
    Quit,
}

impl End {
    /// What the shell passes to `kill`.
    fn argument(self) -> &'static str {
        match self {
            Self::Kill => "-KILL",
            Self::Quit => "-QUIT",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Process {
    pid: u32,
    end: End,
    pid_file: PathBuf,
    child: Mutex<Child>,
    paused: AtomicBool,
}

impl Process {
    /// Starts `command` as the one process of `scratch`.
    pub(crate) fn spawn(command: &mut Command, scratch: &Scratch) -> std::io::Result<Self> {
        Self::spawn_ended_by(End::Kill, command, scratch)
    }

    /// The same, but ended as `end` says.
    pub(crate) fn spawn_ended_by(
        end: End,
        command: &mut Command,
        scratch: &Scratch,
    ) -> std::io::Result<Self> {
        let pid_file = scratch.file(PID_FILE);
        let child = command.spawn()?;
        let (pid, paused) = (child.id(), AtomicBool::new(false));
        let process = Self { pid, end, pid_file, child: Mutex::new(child), paused };
        fs::write(&process.pid_file, format!("{} {pid}", end.argument()))?;
        Ok(process)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&self) -> Result<Option<ExitStatus>> {
        let status = self.child().try_wait()?;
        if status.is_some() {
            self.forget();
        }
        Ok(status)
    }

    /// Stops it, and returns when it has stopped.
    pub(crate) fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        if self.paused.swap(true, Ordering::Relaxed) {
            // A stop is reported only once.
            return Ok(());
        }
        let pid = Pid::from_child(&self.child());
        wait::until("the process to stop", wait::LIMIT, || {
            // Only for stops: its end is left to the child's own wait.
            match waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG) {
                Ok(Some(_)) => Ok(()),
                Ok(None) => Err("it runs".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        })
    }

    pub(crate) fn resume(&self) -> Result<()> {
        self.paused.store(false, Ordering::Relaxed);
        self.signal(Signal::CONT)
    }

    /// Ends it without asking, and returns when it has ended. Does nothing if it already has.
    pub(crate) fn kill(&self) -> Result<()> {
        let mut child = self.child();
        if child.try_wait()?.is_none() {
            match self.end {
                End::Kill => child.kill()?,
                End::Quit => {
                    kill_process(Pid::from_child(&child), Signal::QUIT).map_err(std::io::Error::from)?;
                }
            }
            // Until the child is waited for, its process id is not reused.
            self.forget();
            child.wait()?;
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let mut child = self.child();
        // Once it has been waited for, its process id may belong to another process.
        if let Some(status) = child.try_wait()? {
            return Err(Error::new(format!("the process has ended: {status}")));
        }
        kill_process(Pid::from_child(&child), signal).map_err(std::io::Error::from)?;
        Ok(())
    }

    /// Tells the shell that this process needs no killing.
    fn forget(&self) {
        let _ = fs::remove_file(&self.pid_file);
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A destructor cannot do more about a failure; the shell will kill it.
        let _ = self.kill();
    }
}
