//! Fails requests that cannot be answered.

use ratekeeper_core::{StoreError, StoreErrorKind};
use tokio::time::Instant;

use super::{Stop, Worker};
use crate::error::unavailable;

impl Drop for Worker {
    /// The task has ended, perhaps with its runtime. Nobody may wait for what it will not do.
    fn drop(&mut self) {
        let error = unavailable("the store has ended");
        self.fail_all(&error);
        let kept = {
            let mut queue = self.shared.queue();
            queue.ended = true;
            queue.take_settlements(usize::MAX)
        };
        for ask in kept {
            match &self.redirect {
                Some(redirect) => redirect(ask, None),
                None => ask.fail(&error),
            }
        }
    }
}

impl Worker {
    /// Opens the breaker, and answers everything that waits. Waiting settlements are kept. Whether those
    /// under way were made is unknown, so they are not made again.
    pub(super) fn fail_all(&mut self, error: &StoreError) {
        self.refused = None;
        self.fail_waiting(error);
        self.in_flight.iter_mut().filter_map(Option::take).for_each(|batch| batch.fail(error));
        self.sizing.lost();
    }

    /// Opens the breaker, and answers those in line. Settlements are kept.
    pub(super) fn fail_waiting(&mut self, error: &StoreError) {
        self.shared.breaker.open(error.clone());
        let waiting = {
            let mut queue = self.shared.queue();
            queue.put_off(error);
            queue.take_all()
        };
        self.queue_watch.waiting(0);
        waiting.into_iter().for_each(|ask| ask.fail(error));
    }

    /// Fails requests whose deadline has passed.
    pub(super) fn expire(&mut self) -> Option<Stop> {
        let now = Instant::now();
        let error = StoreError::new(StoreErrorKind::Timeout);
        let mut overdue = false;
        for batch in self.in_flight.iter_mut().flatten() {
            batch.expire(now, &error);
            if now >= batch.sent + self.config.timeout {
                batch.overdue = true;
                overdue = true;
            }
            if now >= batch.sent + self.config.silence() {
                return Some(Stop::Broken(error));
            }
        }
        if overdue {
            // A request that came now would wait for nothing. The answer, if it comes, closes the breaker
            // again.
            self.fail_waiting(&error);
        } else {
            let late = self.shared.queue().take_late(now);
            late.into_iter().for_each(|ask| ask.fail(&error));
        }
        None
    }
}
