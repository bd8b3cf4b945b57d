//! What a proxy does.

use std::time::Duration;

/// What a [`Proxy`](super::Proxy) does with connections and with what they carry.
///
/// It applies to existing connections as well as to new ones. Bytes and replies are counted for each
/// connection separately, from when the mode was set or the connection made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Everything is forwarded.
    #[default]
    Pass,
    /// New connections are refused, since nobody listens. Existing ones continue.
    Refuse,
    /// Connections are accepted, and everything is swallowed in both directions.
    ///
    /// A connection that has lost something stays lost: if it continued later, with a gap, the two sides
    /// would misunderstand each other.
    BlackHole,
    /// Requests reach the server, but its replies are swallowed. A connection that has lost one stays lost.
    LoseReplies,
    /// Requests and replies are delayed by this much, in steps of a millisecond, however many are on their
    /// way.
    Delay {
        /// How late the server receives what the client sent.
        requests: Duration,
        /// How late the client receives what the server sent.
        replies: Duration,
    },
    /// This many bytes of replies are forwarded, and then the connection is closed.
    Truncate(usize),
    /// These bytes of the replies are inverted. The first one is number 0.
    Corrupt(Vec<usize>),
    /// The next reply is replaced by these bytes, and those after it are forwarded.
    Replace(Vec<u8>),
}

impl Mode {
    /// Requests and replies are each delayed by this much.
    #[must_use]
    pub fn delay(each: Duration) -> Self {
        Self::Delay { requests: each, replies: each }
    }
}

/// A mode, and when it was set.
#[derive(Debug, Default)]
pub(super) struct Setting {
    pub(super) mode: Mode,
    /// Grows with each mode that is set.
    pub(super) number: u64,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Requests,
    Replies,
}
