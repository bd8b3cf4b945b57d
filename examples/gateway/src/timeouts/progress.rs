//! How far an exchange has come.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use super::Timeouts;

/// How far an exchange has come: what both of its bodies know of each other.
#[derive(Debug)]
pub(crate) struct Progress {
    timeouts: Timeouts,
    /// When all of it has to be over.
    end: Option<Instant>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// When something moved last, in either direction.
    moved: Instant,
    upload: Upload,
}

/// How it stands with the request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upload {
    /// The upstream has what has come, and the client has to send more.
    Awaited,
    /// It is the upstream's turn: to take what has come, or to answer.
    Delivered,
    /// The client has not sent more in time.
    Stalled,
    /// The client has gone, or what it sent makes no sense.
    Broken,
}

impl Progress {
    /// An exchange that begins now.
    pub(crate) fn new(timeouts: Timeouts) -> Self {
        let now = Instant::now();
        let end = timeouts.request.map(|limit| now + limit);
        Self { timeouts, end, state: Mutex::new(State { moved: now, upload: Upload::Delivered }) }
    }

    /// Something has moved.
    pub(super) fn moved(&self) {
        self.with(|state| state.moved = Instant::now());
    }

    pub(super) fn set_upload(&self, upload: Upload) {
        self.with(|state| {
            // How it failed is not forgotten when it is dropped.
            if !matches!(state.upload, Upload::Stalled | Upload::Broken) {
                state.upload = upload;
            }
        });
    }

    pub(crate) fn upload(&self) -> Upload {
        self.with(|state| state.upload)
    }

    /// Until when somebody who has waited since then goes on waiting for a body to move.
    pub(super) fn idle_until(&self, since: Instant) -> Instant {
        self.at_most(self.with(|state| state.moved.max(since)) + self.timeouts.idle)
    }

    /// Waits for as long as the upstream has for its answer. That time does not run while it is the client who is waited for.
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

    /// Whether all of it has taken too long.
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
