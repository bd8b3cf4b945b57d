//! What a mode does to the bytes of one direction of one connection.

use std::{mem, time::Duration};

use super::{
    mode::{Direction, Mode, Setting},
    resp,
};

#[derive(Debug)]
pub(super) struct Filter {
    direction: Direction,
    /// The setting that was in force last.
    setting: u64,
    /// How many bytes came since, except those held.
    position: usize,
    /// Whether the reply that has to be replaced was replaced.
    replaced: bool,
    /// The beginning of the reply that has to be replaced.
    held: Vec<u8>,
    /// Whether something was swallowed.
    lost: bool,
}

/// What happens to some bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Passed {
    pub(super) bytes: Vec<u8>,
    pub(super) delay: Duration,
    /// Whether the connection has to be closed once the bytes have been forwarded.
    pub(super) close: bool,
}

impl Filter {
    pub(super) fn new(direction: Direction) -> Self {
        Self { direction, setting: 0, position: 0, replaced: false, held: Vec::new(), lost: false }
    }

    pub(super) fn pass(&mut self, setting: &Setting, mut bytes: Vec<u8>) -> Passed {
        if self.setting != setting.number {
            self.setting = setting.number;
            self.position = 0;
            self.replaced = false;
        }
        // Bytes are held only for a mode that is still in force, or because it was changed half-way.
        bytes.splice(0..0, mem::take(&mut self.held));
        let position = self.position;
        self.position += bytes.len();

        if self.lost || loses(&setting.mode, self.direction) {
            self.lost = true;
            return Passed::default();
        }
        let mut passed = Passed::default();
        match (&setting.mode, self.direction) {
            (Mode::Delay { requests, .. }, Direction::Requests) => passed.delay = *requests,
            (Mode::Delay { replies, .. }, Direction::Replies) => passed.delay = *replies,
            (Mode::Truncate(length), Direction::Replies) => {
                passed.close = position + bytes.len() >= *length;
                bytes.truncate(length.saturating_sub(position));
            }
            (Mode::Corrupt(positions), Direction::Replies) => {
                for wrong in positions {
                    if let Some(byte) = wrong.checked_sub(position).and_then(|at| bytes.get_mut(at)) {
                        *byte = !*byte;
                    }
                }
            }
            (Mode::Replace(with), Direction::Replies) if !self.replaced => match resp::length(&bytes) {
                Some(length) => {
                    bytes.splice(..length, with.iter().copied());
                    self.replaced = true;
                }
                None => {
                    self.position = position;
                    self.held = mem::take(&mut bytes);
                }
            },
            _ => {}
        }
        passed.bytes = bytes;
        passed
    }
}

fn loses(mode: &Mode, direction: Direction) -> bool {
    match mode {
        Mode::BlackHole => true,
        Mode::LoseReplies => direction == Direction::Replies,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(mode: Mode, number: u64) -> Setting {
        Setting { mode, number }
    }

    fn replies(filter: &mut Filter, setting: &Setting, bytes: &str) -> (String, bool) {
        let passed = filter.pass(setting, bytes.into());
        (String::from_utf8_lossy(&passed.bytes).into_owned(), passed.close)
    }

    #[test]
    fn replies_are_cut_at_the_byte() {
        let mut filter = Filter::new(Direction::Replies);
        let cut = set(Mode::Truncate(5), 1);
        assert_eq!(replies(&mut filter, &cut, "abc"), ("abc".to_owned(), false));
        assert_eq!(replies(&mut filter, &cut, "defg"), ("de".to_owned(), true));
        let all = set(Mode::Truncate(0), 2);
        assert_eq!(replies(&mut filter, &all, "abc"), (String::new(), true));
    }

    #[test]
    fn bytes_are_counted_from_when_the_mode_was_set() {
        let mut filter = Filter::new(Direction::Replies);
        assert_eq!(replies(&mut filter, &set(Mode::Pass, 0), "abc").0, "abc");
        let wrong = set(Mode::Corrupt(vec![1, 4, 9]), 1);
        let passed = filter.pass(&wrong, b"def".to_vec());
        assert_eq!(passed.bytes, [b'd', !b'e', b'f']);
        let passed = filter.pass(&wrong, b"ghi".to_vec());
        assert_eq!(passed.bytes, [b'g', !b'h', b'i']);
    }

    #[test]
    fn one_reply_is_replaced_however_it_comes() {
        let wrong = set(Mode::Replace(b"-WRONG\r\n".to_vec()), 1);
        let mut filter = Filter::new(Direction::Replies);
        assert_eq!(replies(&mut filter, &wrong, "$3\r\nab").0, "");
        assert_eq!(replies(&mut filter, &wrong, "c\r\n:1\r\n").0, "-WRONG\r\n:1\r\n");
        assert_eq!(replies(&mut filter, &wrong, ":2\r\n").0, ":2\r\n");
        let again = set(Mode::Replace(Vec::new()), 2);
        assert_eq!(replies(&mut filter, &again, ":3\r\n:4\r\n").0, ":4\r\n");
    }

    #[test]
    fn what_was_held_back_is_passed_on_with_what_follows() {
        let mut filter = Filter::new(Direction::Replies);
        assert_eq!(replies(&mut filter, &set(Mode::Replace(Vec::new()), 1), "$3\r\nab").0, "");
        assert_eq!(replies(&mut filter, &set(Mode::Pass, 2), "c\r\n").0, "$3\r\nabc\r\n");
    }

    #[test]
    fn what_has_lost_something_stays_lost() {
        for mode in [Mode::BlackHole, Mode::LoseReplies] {
            let mut filter = Filter::new(Direction::Replies);
            assert_eq!(replies(&mut filter, &set(mode, 1), "abc").0, "");
            assert_eq!(replies(&mut filter, &set(Mode::Pass, 2), "def").0, "");
        }
        let mut filter = Filter::new(Direction::Requests);
        assert_eq!(replies(&mut filter, &set(Mode::LoseReplies, 1), "abc").0, "abc");
    }
}
