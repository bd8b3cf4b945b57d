//! Waiting for a condition instead of for a time.

use std::{
    fmt, thread,
    time::{Duration, Instant},
};

use crate::{Error, Result};

/// How long a server may take for what it is told. Far more than it needs, since the machine may be busy.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Asks again and again until `check` succeeds, and gives back what it found.
///
/// # Errors
///
/// Says what was waited for, and why it was not there when it was last looked for, if that took longer than
/// `limit`.
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
