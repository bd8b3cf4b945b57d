//! The output of a command, and whether all is well.

use std::io::{self, Write};
use std::process::ExitCode;

/// What is printed, and whether something is wrong.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// What was asked for.
    pub(crate) out: String,
    /// What is wrong.
    pub(crate) err: String,
    pub(crate) is_wrong: bool,
}

impl Outcome {
    /// Prints it, and returns the exit code: 0 if all is well, 1 if something is wrong.
    pub(crate) fn print(self) -> ExitCode {
        let printed = io::stdout()
            .write_all(self.out.as_bytes())
            .and_then(|()| io::stdout().flush())
            .and_then(|()| io::stderr().write_all(self.err.as_bytes()));
        match printed {
            // A reader that has stopped reading, such as `head`, has seen enough.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
            _ if self.is_wrong => ExitCode::FAILURE,
            _ => ExitCode::SUCCESS,
        }
    }
}
