//! The command `ratekeeper`: checks rule files, and explains what their rules do with a request.
#![forbid(unsafe_code)]

mod args;
mod check;
mod explain;
mod outcome;
mod request;

use std::process::ExitCode;

use self::args::Args;

fn main() -> ExitCode {
    let outcome = match args::parse(std::env::args_os()) {
        Ok(Args::Check { files, format }) => check::run(&files, format),
        Ok(Args::Explain { file, asked, format }) => explain::run(&file, *asked, format),
        // Usage, or help that was asked for: clap knows which, and where to print it.
        Err(error) => error.exit(),
    };
    outcome.print()
}
