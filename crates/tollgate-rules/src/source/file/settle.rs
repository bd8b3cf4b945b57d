//! Waiting until those who write have written.

use std::time::Duration;

use tokio::time::Instant;

/// For how long nothing must happen before it is read. Most who write take less between two steps.
const QUIET: Duration = Duration::from_millis(50);
/// The same while somebody has the file open and has written to it. What stands there is half of it as likely as not, and
/// half of a file can make sense. Those who write it over a slow network take their time.
const WRITING: Duration = Duration::from_secs(2);
/// After how long it is read in any case, also if somebody changes it without end.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same, for somebody who does not close it.
const WRITING_PATIENCE: Duration = Duration::from_secs(10);

/// Something that has happened on the way to a file, or to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "told by the watch, which is there on Linux only")
)]
pub(super) enum Step {
    /// Somebody has written to the file, and has not closed it yet.
    Written,
    /// Whoever has written has closed the file, or another one is in its place.
    Done,
    /// Anything else.
    Other,
}

/// What has happened and has not been read yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settling(Option<Span>);

#[derive(Clone, Copy, Debug)]
struct Span {
    first: Instant,
    last: Instant,
    is_written: bool,
}

impl Settling {
    /// Something has happened.
    pub(super) fn add(&mut self, step: Step, now: Instant) {
        let before = self.0.unwrap_or(Span { first: now, last: now, is_written: false });
        let is_written = match step {
            Step::Written => true,
            Step::Done => false,
            Step::Other => before.is_written,
        };
        self.0 = Some(Span { last: now, is_written, ..before });
    }

    /// What has happened is being read.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    /// When it is to be read, if something has happened.
    pub(super) fn quiet_at(&self) -> Option<Instant> {
        self.0.map(|Span { first, last, is_written }| {
            let (quiet, patience) = if is_written { (WRITING, WRITING_PATIENCE) } else { (QUIET, PATIENCE) };
            (last + quiet).min(first + patience)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_in_quick_succession_is_one_change() {
        let start = Instant::now();
        let mut settling = Settling::default();
        assert_eq!(settling.quiet_at(), None);
        settling.add(Step::Done, start);
        assert_eq!(settling.quiet_at(), Some(start + QUIET));
        settling.add(Step::Other, start + QUIET / 2);
        assert_eq!(settling.quiet_at(), Some(start + QUIET / 2 + QUIET));
        settling.clear();
        assert_eq!(settling.quiet_at(), None);
    }

    #[test]
    fn who_writes_without_end_is_read_all_the_same() {
        let start = Instant::now();
        let mut settling = Settling::default();
        for step in 0..100 {
            settling.add(Step::Done, start + QUIET / 2 * step);
        }
        assert_eq!(settling.quiet_at(), Some(start + PATIENCE));
    }

    #[test]
    fn who_has_not_closed_the_file_is_waited_for() {
        let start = Instant::now();
        let mut settling = Settling::default();
        settling.add(Step::Written, start);
        settling.add(Step::Other, start + WRITING / 2);
        assert_eq!(settling.quiet_at(), Some(start + WRITING / 2 + WRITING));
        settling.add(Step::Done, start + WRITING);
        assert!(settling.quiet_at() <= Some(start + WRITING + QUIET));
        for step in 0..100 {
            settling.add(Step::Written, start + WRITING / 2 * step);
        }
        assert_eq!(settling.quiet_at(), Some(start + WRITING_PATIENCE));
    }
}
