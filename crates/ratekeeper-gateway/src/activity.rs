//! Whether anything happens on a connection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Tracks what happens on one connection.
///
/// Before its first bytes it is unknown whether a connection speaks HTTP/1 or HTTP/2. A client of HTTP/2 may
/// keep a connection open and send no requests, or read nothing of the responses. So neither protocol's own
/// timeouts can detect an idle connection.
#[derive(Clone, Debug)]
pub(crate) struct Activity(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Requests that are being served.
    open: usize,
    /// Those of them that are waiting for a response, or for more of it.
    awaited: usize,
    /// When any of this changed, or more of a response arrived.
    since: Instant,
}

/// A request that is being served until this is dropped.
#[derive(Debug)]
pub(crate) struct Served {
    activity: Activity,
    is_awaited: bool,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(State { open: 0, awaited: 0, since: Instant::now() })))
    }

    /// Starts a request that is waiting for its response.
    pub(crate) fn begin(&self) -> Served {
        self.change(|state| {
            state.open += 1;
            state.awaited += 1;
        });
        Served { activity: self.clone(), is_awaited: true }
    }

    /// Waits until no request has been served for this long.
    pub(crate) async fn ceases_for(&self, limit: Duration) {
        self.lasts(limit, |state| state.open == 0).await;
    }

    /// Waits until every response has more to send, and for this long the client has read nothing of any.
    pub(crate) async fn stalls_for(&self, limit: Duration) {
        self.lasts(limit, |state| state.open > 0 && state.awaited == 0).await;
    }

    /// Waits until this has been so, without any change, for this long.
    async fn lasts(&self, limit: Duration, is_so: impl Fn(&State) -> bool) {
        loop {
            let until = {
                let state = self.state();
                if is_so(&state) { state.since + limit } else { Instant::now() + limit }
            };
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        state.since = Instant::now();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Served {
    /// Records that more of the response was asked for, and whether it had to be waited for.
    pub(crate) fn asked(&mut self, must_wait: bool) {
        if self.is_awaited && must_wait {
            return;
        }
        self.activity.change(|state| {
            state.awaited -= usize::from(self.is_awaited);
            state.awaited += usize::from(must_wait);
        });
        self.is_awaited = must_wait;
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.activity.change(|state| {
            state.open -= 1;
            state.awaited -= usize::from(self.is_awaited);
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, timeout};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn seconds(start: Instant) -> f64 {
        start.elapsed().as_secs_f64().round()
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_requests_is_idle() {
        let start = Instant::now();
        Activity::new().ceases_for(LIMIT).await;
        assert_eq!(seconds(start), 10.0);
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_not_while_one_is_served() {
        let activity = Activity::new();
        let start = Instant::now();
        let requests = async {
            let first = activity.begin();
            sleep(Duration::from_secs(95)).await;
            let second = activity.begin();
            drop(first);
            sleep(Duration::from_secs(5)).await;
            drop(second);
        };
        tokio::join!(activity.ceases_for(LIMIT), requests);
        assert_eq!(seconds(start), 110.0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_stalls_it() {
        let activity = Activity::new();
        let mut served = activity.begin();
        let start = Instant::now();
        let answer = async {
            // While the upstream is waited for, the client is not at fault.
            sleep(Duration::from_secs(95)).await;
            served.asked(false);
            sleep(Duration::from_secs(5)).await;
            served.asked(true);
            sleep(Duration::from_secs(50)).await;
            served.asked(false);
        };
        tokio::join!(activity.stalls_for(LIMIT), answer);
        assert_eq!(seconds(start), 160.0);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_waits_for_the_upstream_keeps_the_others() {
        let activity = Activity::new();
        let mut taken = activity.begin();
        taken.asked(false);
        let awaited = activity.begin();
        assert!(timeout(100 * LIMIT, activity.stalls_for(LIMIT)).await.is_err());
        drop(awaited);
        activity.stalls_for(LIMIT).await;
        drop(taken);
        assert!(timeout(100 * LIMIT, activity.stalls_for(LIMIT)).await.is_err());
    }
}
