//! Waiting for a condition instead of for a time.

use std::{
    fmt, thread,
    time::{Duration, Instant},
};

use crate::{Error, Result};

/// How long a server may take to obey. This is far more than it needs, since the machine may be busy.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Tries again and again until `check` succeeds, and returns what it found.
///
/// # Errors
///
/// If it took longer than `limit`: what was waited for, and why the last check failed.
pub fn until<T, E: fmt::Display>(
    what: &str,
    limit: Duration,
    mut check: impl FnMut() -> Result<T, E>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    loop {
        match check() {
            Ok(found) => return Ok(found),
            Err(last) if Instant::now() >= deadline => {
                return Err(Error::new(format!("waited {limit:?} for {what}, and still: {last}")));
            }
            Err(_) => {}
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_what_was_found() {
        let mut left = 3;
        let found = until("three", LIMIT, || {
            left -= 1;
            if left == 0 { Ok("found") } else { Err("not yet") }
        });
        assert_eq!(found.expect("it is there at the third time"), "found");
    }

    #[test]
    fn says_what_was_missing() {
        let error = until::<(), _>("the moon", Duration::ZERO, || Err("it is noon")).expect_err("never");
        assert_eq!(error.to_string(), "waited 0ns for the moon, and still: it is noon");
    }
}
