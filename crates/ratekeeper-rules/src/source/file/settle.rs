//! Waiting until a writer has finished.

use std::time::Duration;

use tokio::time::Instant;

/// How long nothing may happen before the file is read. Most writers take less between two steps.
const QUIET: Duration = Duration::from_millis(50);
/// The same while a writer that has written to the file still has it open. Its contents are as likely as not
/// half of what is meant, and half of a file can be valid. Writing over a slow network takes its time.
const WRITING: Duration = Duration::from_secs(2);
/// After how long it is read in any case, even if it keeps changing.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same, for a writer that does not close the file.
const WRITING_PATIENCE: Duration = Duration::from_secs(10);

/// Something that has happened to the file, or on the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "told by the watch, which is there on Linux only")
)]
pub(super) enum Step {
    /// The file was written to, and has not been closed yet.
    Written,
    /// The writer has closed the file, or another file has taken its place.
    Done,
    /// Anything else.
    Other,
}

/// What has happened since the file was last read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settling(Option<Span>);

#[derive(Clone, Copy, Debug)]
struct Span {
    first: Instant,
    last: Instant,
    is_written: bool,
}

impl Settling {
    /// Records that something has happened.
    pub(super) fn add(&mut self, step: Step, now: Instant) {
        let before = self.0.unwrap_or(Span { first: now, last: now, is_written: false });
        let is_written = match step {
            Step::Written => true,
            Step::Done => false,
            Step::Other => before.is_written,
        };
        self.0 = Some(Span { last: now, is_written, ..before });
    }

    /// Forgets what has happened, as it is being read.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    /// When to read the file, if something has happened.
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
