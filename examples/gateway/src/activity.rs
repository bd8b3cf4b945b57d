//! Whether anything happens on a connection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What happens on one connection.
///
/// Before its first bytes nobody knows whether a connection speaks HTTP/1 or HTTP/2, and a client of HTTP/2 may keep one open
/// and ask for nothing. So it is not for either of them to say that nothing happens.
#[derive(Clone, Debug)]
pub(crate) struct Activity(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Requests that are being served.
    open: usize,
    /// When there was one last.
    since: Instant,
}

/// A request that is being served until this is dropped.
#[derive(Debug)]
pub(crate) struct Served(Activity);

impl Activity {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(State { open: 0, since: Instant::now() })))
    }

    pub(crate) fn begin(&self) -> Served {
        self.state().open += 1;
        Served(self.clone())
    }

    /// Waits until no request has been served for so long.
    pub(crate) async fn ceases_for(&self, limit: Duration) {
        loop {
            let until = {
                let state = self.state();
                if state.open > 0 { Instant::now() + limit } else { state.since + limit }
            };
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.open -= 1;
        state.since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_requests_is_idle() {
        let start = Instant::now();
        Activity::new().ceases_for(LIMIT).await;
        assert_eq!(start.elapsed().as_secs_f64().round(), 10.0);
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
        assert_eq!(start.elapsed().as_secs_f64().round(), 110.0);
    }
}
