//! How far an exchange has progressed.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use super::Timeouts;

/// How far an exchange has progressed: what its two bodies know of each other.
#[derive(Debug)]
pub(crate) struct Progress {
    timeouts: Timeouts,
    /// When the whole exchange has to be over.
    end: Option<Instant>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// When something last moved, in either direction.
    moved: Instant,
    upload: Upload,
}

/// The state of the request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upload {
    /// The upstream has what has arrived, and the client has to send more.
    Awaited,
    /// It is the upstream's turn: to take what has arrived, or to respond.
    Delivered,
    /// The client has not sent more in time.
    Stalled,
    /// The client has gone, or sent something invalid.
    Broken,
}

impl Progress {
    /// An exchange that begins now.
    pub(crate) fn new(timeouts: Timeouts) -> Self {
        let now = Instant::now();
        let end = timeouts.request.map(|limit| now + limit);
        Self { timeouts, end, state: Mutex::new(State { moved: now, upload: Upload::Delivered }) }
    }

    /// Records that something has moved.
    pub(super) fn moved(&self) {
        self.with(|state| state.moved = Instant::now());
    }

    pub(super) fn set_upload(&self, upload: Upload) {
        self.with(|state| {
            // Dropping the body does not change how it failed.
            if !matches!(state.upload, Upload::Stalled | Upload::Broken) {
                state.upload = upload;
            }
        });
    }

    pub(crate) fn upload(&self) -> Upload {
        self.with(|state| state.upload)
    }

    /// Until when to wait for a body to move, if the wait began at `since`.
    pub(super) fn idle_until(&self, since: Instant) -> Instant {
        self.at_most(self.with(|state| state.moved.max(since)) + self.timeouts.idle)
    }

    /// Waits for as long as the upstream has for its response. Time spent waiting for the client does not
    /// count.
    pub(crate) async fn answer_is_late(&self) {
        let mut since = self.with(|state| state.moved);
        loop {
            let until = self.at_most(since + self.timeouts.response);
            tokio::time::sleep_until(until).await;
            if self.is_over() {
                return;
            }
            let (moved, upload) = self.with(|state| (state.moved, state.upload));
            if upload == Upload::Awaited {
                since = Instant::now();
            } else if moved > since {
                since = moved;
            } else {
                return;
            }
        }
    }

    /// Whether the whole exchange has taken too long.
    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some_and(|end| end <= Instant::now())
    }

    fn at_most(&self, time: Instant) -> Instant {
        self.end.map_or(time, |end| end.min(time))
    }

    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
