//! What can be wrong with the setup of a store, and how Redis's errors become a store's.

use std::error::Error;
use std::fmt;

use ratekeeper_core::{StoreError, StoreErrorKind};
use redis::{ErrorKind, RedisError};

use crate::script::REFUSED;

/// A store cannot be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum SetupError {
    /// An address is invalid. (It is not repeated here, as it may contain a password.)
    Address(RedisError),
    /// No address was given.
    NoServers,
    /// A prefix must be short and printable, and have no braces, which have a meaning in Redis.
    Prefix(String),
    /// A duration must not be zero.
    ZeroTimeout,
    /// A store was built outside a tokio runtime, which it needs.
    NoRuntime,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(_) => f.write_str("the address of a Redis server makes no sense"),
            Self::NoServers => f.write_str("no Redis server was given"),
            Self::Prefix(prefix) => write!(
                f,
                "the prefix {prefix:?} cannot be used: it must have 1 to 64 printable ASCII characters, and no braces or spaces"
            ),
            Self::ZeroTimeout => f.write_str("a timeout of zero would let nobody in"),
            Self::NoRuntime => f.write_str("a Redis store must be made within a tokio runtime"),
        }
    }
}

impl Error for SetupError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Address(error) => Some(error),
            _ => None,
        }
    }
}

/// Converts an error of Redis or its client into a store's error.
pub(crate) fn failed(error: RedisError) -> StoreError {
    match error.kind() {
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
            StoreError::new(StoreErrorKind::Protocol).with_source(error)
        }
        _ => unavailable(error),
    }
}

pub(crate) fn unavailable(source: impl Into<Box<dyn Error + Send + Sync>>) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable).with_source(source)
}

/// The codes of errors by which Redis or Valkey says that it has done nothing of what it was asked.
const REFUSALS: [&str; 15] = [
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOPERM",
    "NOREPLICAS",
    "NOSCRIPT",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "WRONGPASS",
];

/// Whether an error is Redis's own statement that it has done nothing. Any other error leaves that open: it
/// may be a proxy's, whose server has done what it was asked.
pub(crate) fn is_refusal(error: &RedisError) -> bool {
    match error.code() {
        // Redis before version 7 reports it like this if a command of a script is refused. Either all of a
        // script's commands are refused or none: the first that writes decides.
        Some("ERR") => {
            let detail = error.detail().filter(|detail| detail.starts_with("Error running script"));
            let mut words = detail.into_iter().flat_map(str::split_whitespace);
            words.any(|word| word.strip_prefix('-').is_some_and(|code| REFUSALS.contains(&code)))
        }
        code => code.is_some_and(|code| code == REFUSED || REFUSALS.contains(&code)),
    }
}

/// What Redis says if a command, or a command of a script, is not permitted or not known.
const PERMISSION: [&str; 4] = ["NOPERM", "can't run this command", "nknown Redis command", "unknown command"];

/// Whether an error concerns only the requests that share the call, and none of them was counted: a command
/// that some of them need is not permitted or does not exist, or a script could not read a counter. Other
/// requests may need other commands; but without those that call scripts nothing works.
pub(crate) fn is_of_the_call(error: &RedisError) -> bool {
    let text = error.to_string();
    let any = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let is_script = error.code() == Some(REFUSED) && !any(&REFUSALS);
    let is_permission = error.code() == Some("NOPERM") || any(&PERMISSION);
    (is_script || is_permission) && !text.to_lowercase().contains("'eval")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(line: &str) -> RedisError {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        value.extract_error().unwrap_err()
    }

    #[test]
    fn only_redis_says_that_it_has_done_nothing() {
        let refusals = [
            "OOM command not allowed when used memory > 'maxmemory'.",
            "READONLY You can't write against a read only replica. script: 12, on @user_script:211.",
            "BUSY Redis is busy running a script.",
            "NOREPLICAS Not enough good replicas to write.",
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "CLUSTERDOWN The cluster is down",
            "ERR Error running script (call to f_12): @user_script:211: @user_script: 211: -OOM command not allowed",
        ];
        for line in refusals {
            assert!(is_refusal(&error(line)), "{line}");
        }
        let unknown = [
            "ERR upstream failure",
            "ERR -OOM upstream failure",
            "ERR Error running script (call to f_12): @user_script:1: user_script:1: attempt to index a nil value",
            "BACKEND OOM",
            "-",
        ];
        for line in unknown {
            assert!(!is_refusal(&error(line)), "{line}");
        }
        assert!(!is_refusal(&RedisError::from((ErrorKind::Io, "broken"))));
    }

    #[test]
    fn a_permission_concerns_some_requests_unless_it_is_to_call_scripts() {
        for line in [
            "ERR The user executing the script can't run this command or subcommand script: f, on @user_script:1.",
            "ERR Unknown Redis command called from script script: f, on @user_script:1.",
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            "NOPERM this user has no permissions to run the 'del' command",
            "ERR unknown command 'DEL', with args beginning with: 'a'",
            "RKREFUSED ERR The user executing the script can't run this command or subcommand",
            "RKREFUSED WRONGTYPE Operation against a key holding the wrong kind of value",
        ] {
            assert!(is_of_the_call(&error(line)), "{line}");
        }
        for line in [
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "ERR unknown command 'EVAL', with args beginning with: 'a'",
            "OOM command not allowed when used memory > 'maxmemory'.",
            "RKREFUSED MASTERDOWN Link with MASTER is down",
        ] {
            assert!(!is_of_the_call(&error(line)), "{line}");
        }
    }
}
