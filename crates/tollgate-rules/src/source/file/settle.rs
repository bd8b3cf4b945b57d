//! Waiting until those who write have written.

use std::time::Duration;

use tokio::time::Instant;

/// For how long nothing must happen before it is read. Most who write take less between two steps.
const QUIET: Duration = Duration::from_millis(50);
/// After how long it is read in any case, also if somebody writes without end.
const PATIENCE: Duration = Duration::from_secs(1);

/// What has happened and has not been read yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settling(Option<Span>);

#[derive(Clone, Copy, Debug)]
struct Span {
    first: Instant,
    last: Instant,
}

impl Settling {
    /// Something has happened.
    pub(super) fn add(&mut self, now: Instant) {
        let first = self.0.map_or(now, |span| span.first);
        self.0 = Some(Span { first, last: now });
    }

    /// What has happened is being read.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    /// When it is to be read, if something has happened.
    pub(super) fn quiet_at(&self) -> Option<Instant> {
        self.0.map(|Span { first, last }| (last + QUIET).min(first + PATIENCE))
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
        settling.add(start);
        assert_eq!(settling.quiet_at(), Some(start + QUIET));
        settling.add(start + QUIET / 2);
        assert_eq!(settling.quiet_at(), Some(start + QUIET / 2 + QUIET));
        settling.clear();
        assert_eq!(settling.quiet_at(), None);
    }

    #[test]
    fn who_writes_without_end_is_read_all_the_same() {
        let start = Instant::now();
        let mut settling = Settling::default();
        for step in 0..100 {
            settling.add(start + QUIET / 2 * step);
        }
        assert_eq!(settling.quiet_at(), Some(start + PATIENCE));
    }
}
