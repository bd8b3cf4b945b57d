//! Lets go of requests that cannot be answered.

use ratekeeper_core::{StoreError, StoreErrorKind};
use tokio::time::Instant;

use super::{Stop, Worker};
use crate::error::unavailable;

impl Drop for Worker {
    /// The task has ended, perhaps with its runtime. Nobody may wait for what it will not do.
    fn drop(&mut self) {
        let error = unavailable("the store has ended");
        self.let_go(&error);
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
    pub(super) fn let_go(&mut self, error: &StoreError) {
        self.pending.clear();
        self.refused = None;
        self.turn_away(error);
        self.flights.iter_mut().filter_map(Option::take).for_each(|flight| flight.fail(error));
        self.crowd.lost();
    }

    /// Opens the breaker, and answers those in line. Settlements are kept.
    pub(super) fn turn_away(&mut self, error: &StoreError) {
        self.shared.breaker.open(error.clone());
        let waiting = {
            let mut queue = self.shared.queue();
            queue.put_off(error);
            queue.take_all()
        };
        self.line.is(0);
        waiting.into_iter().for_each(|ask| ask.fail(error));
    }

    /// Lets go of requests whose time is up.
    pub(super) fn expire(&mut self) -> Option<Stop> {
        let now = Instant::now();
        let error = StoreError::new(StoreErrorKind::Timeout);
        let mut overdue = false;
        for flight in self.flights.iter_mut().flatten() {
            flight.expire(now, &error);
            if now >= flight.sent + self.config.timeout {
                flight.overdue = true;
                overdue = true;
            }
            if now >= flight.sent + self.config.silence() {
                return Some(Stop::Broken(error));
            }
        }
        if overdue {
            // A request that came now would wait for nothing. The answer, if it comes, closes the breaker
            // again.
            self.turn_away(&error);
        } else {
            let late = self.shared.queue().take_late(now);
            late.into_iter().for_each(|ask| ask.fail(&error));
        }
        None
    }
}
