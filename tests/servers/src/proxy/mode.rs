//! What a proxy does.

use std::time::Duration;

/// What a [`Proxy`](super::Proxy) does with connections and with what they carry.
///
/// It holds for the connections that are there as well as for new ones. Where bytes or replies are counted, this
/// is done for each connection by itself, from when the mode was set or the connection made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// All is passed on.
    #[default]
    Pass,
    /// New connections are refused, since nobody listens. Those that are there go on.
    Refuse,
    /// Connections are accepted, and whatever comes is swallowed in both directions.
    ///
    /// A connection that has lost something so stays lost: if it went on later, with a gap, the two sides would
    /// misunderstand each other.
    BlackHole,
    /// Requests get to the server, but its replies are swallowed. A connection that has lost one stays lost.
    LoseReplies,
    /// Requests and replies are as late as this, in milliseconds' steps. How many are on their way does not
    /// matter.
    Delay {
        /// How late the server gets what the client sent.
        requests: Duration,
        /// How late the client gets what the server sent.
        replies: Duration,
    },
    /// So many bytes of replies are passed on, and then the connection is closed.
    Truncate(usize),
    /// These bytes of the replies are inverted. The first one is number 0.
    Corrupt(Vec<usize>),
    /// The next reply is replaced by these bytes, and those after it are passed on.
    Replace(Vec<u8>),
}

impl Mode {
    /// Requests and replies are as late as this, each.
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
