//! Sends batches, and reads their replies.

use std::time::Duration;

use ratekeeper_core::{StoreError, StoreErrorKind};
use redis::{RedisError, Value};
use tokio::time::Instant;

use super::{Stop, Worker};
use crate::batch::in_flight::{Commands, Failure, Fate, InFlight, Mode, Received};
use crate::batch::queue::Taken;
use crate::error::{failed, unavailable};
use crate::request::Ask;

/// How often something that was not done is sent to a working server. After that it would not be done the
/// next time either, and what is refused for its own sake must not keep the breaker open for everything else.
const ATTEMPTS: u8 = 3;

/// How many settlements go together: the few that usually wait, and the maximum. Redis takes some
/// microseconds for each, and the requests sent along with them wait for that long.
const SETTLEMENTS: (usize, usize) = (32, 256);

/// After this long without a word from the server, it is asked whether it is there before anything is
/// settled. An unused connection may be gone without anybody knowing, and then it would be unknown whether
/// what was sent into it was done.
const QUIET: Duration = Duration::from_millis(100);

/// For how long each request gets a call of its own after the server has refused a call, for instance for
/// lack of a permission that only some requests need: the others must not share their fate.
const APART: Duration = Duration::from_secs(1);

impl Worker {
    /// Sends what waits, as far as more batches may be in flight.
    pub(super) fn send_batches(&mut self) -> Option<Stop> {
        while let Some(batch) = self.free_batch() {
            // One batch at a time settles, so that settlements accumulate, and the other is free for incoming
            // requests. To a server that is late, none are sent before it has replied: if it never did, it
            // would be unknown what was done.
            let unused = self.is_unused();
            let settling = self.in_flight.iter().flatten().any(|batch| batch.settles)
                || (!unused && self.shared.breaker.is_open());
            let mut queue = self.shared.queue();
            self.sizing.waiting(queue.len());
            let (most, enough) = self.sizing.next();
            queue.wake_at = if most == 0 { usize::MAX } else { enough };
            // The more of them wait, the more go. Otherwise incoming requests could cause more settlements
            // than are ever sent.
            let many = (queue.unsettled() / 4).clamp(SETTLEMENTS.0, SETTLEMENTS.1).min(self.sizing.cap());
            let is_quiet = self.heard.elapsed() > QUIET;
            let settlements = queue.take_settlements(if settling || is_quiet { 0 } else { many });
            queue.wake_to_settle = !settling && queue.unsettled() == 0 && settlements.is_empty();
            let enough = queue.len() >= queue.wake_at;
            if !enough && settlements.is_empty() {
                if queue.unsettled() > 0 && unused {
                    drop(queue);
                    self.send(batch, InFlight::whether_there(&self.denied));
                    continue;
                }
                return match () {
                    () if !unused => None,
                    () if queue.closed => Some(Stop::Closed),
                    // Nothing gets in line, and no reply will come that could close the breaker.
                    () if self.shared.breaker.is_open() => Some(Stop::Late),
                    () => None,
                };
            }
            // What can hardly be answered in time is not sent. It would be void, and with it everything in
            // the same call: requests that have waited too long would spoil it for those that could still be
            // served.
            let (now, usual) = (Instant::now(), self.sizing.usual());
            let by = now + (usual * 2).min(self.config.timeout / 2);
            // The settlement that it is behind takes one or two replies, and the request itself one more.
            let hurry = now + usual * 4 + self.config.timeout / 4;
            let Taken { first: asks, late, left_behind } =
                queue.take(if enough { most } else { 0 }, by, hurry);
            let left_others = queue.len() > left_behind || queue.unsettled() > 0;
            self.queue_watch.waiting(queue.len());
            drop(queue);
            late.into_iter().for_each(|ask| ask.fail(&StoreError::new(StoreErrorKind::Timeout)));
            if asks.is_empty() && settlements.is_empty() {
                match left_behind {
                    0 => continue,
                    // The settlements that they are behind are made when a reply has come.
                    _ if !unused => return None,
                    _ => {
                        self.send(batch, InFlight::whether_there(&self.denied));
                        continue;
                    }
                }
            }
            if !asks.is_empty() {
                self.config.watch.sent(asks.len());
            }
            let requests = asks.len();
            let mode = Mode {
                with_bodies: std::mem::take(&mut self.scripts_missing),
                apart: self.apart_until.is_some_and(|until| now < until),
            };
            let mut new = InFlight::new(settlements, asks, &self.time, &self.config, mode, &self.denied);
            new.0.left_others = left_others;
            self.send(batch, new);
            self.sizing.sent(batch, requests);
        }
        // Nothing can be sent before a reply has come.
        let mut queue = self.shared.queue();
        (queue.wake_at, queue.wake_to_settle) = (usize::MAX, false);
        self.queue_watch.waiting(queue.len());
        drop(queue);
        None
    }

    /// The number of a batch that may be sent, if one may.
    pub(super) fn free_batch(&self) -> Option<usize> {
        if self.refused.is_some() || self.leaving {
            return None;
        }
        self.in_flight[..self.sizing.max_in_flight()].iter().position(Option::is_none)
    }

    pub(super) fn send(&mut self, batch: usize, (sent, commands): (InFlight, Commands)) {
        // There is one: without it, nothing is served.
        let Some(socket) = &mut self.socket else { return };
        self.in_flight[batch] = Some(sent);
        socket.send(batch, commands);
        self.sizing.sent(batch, 0);
    }

    /// Reads the replies to a batch.
    pub(super) fn receive(&mut self, number: usize, replies: Result<Vec<Value>, RedisError>) -> Option<Stop> {
        let batch = self.in_flight[number].take()?;
        let (arrived, sent, overdue) = (Instant::now(), batch.sent, batch.overdue);
        let took = arrived - sent;
        let oldest = self.in_flight.iter().flatten().map(|batch| batch.sent).min();
        let waiting = self.shared.queue().len();
        self.sizing.answered(number, (batch.len(), took), batch.left_others, waiting, oldest);
        let values = match replies {
            Ok(values) => {
                self.heard = arrived;
                values
            }
            Err(error) => {
                let error = failed(error);
                batch.fail(&error);
                return Some(Stop::Broken(error));
            }
        };
        // Waiting requests go first, if there are enough for a batch: so the server has something to do while
        // the others are answered. (If it is time to stop, that is noticed afterwards, too.) But settlements
        // stay in order, and a server that was late, or that refuses something, is not trusted before its
        // replies are read.
        let refuses = values.iter().any(|value| matches!(value, Value::ServerError(_)));
        if !batch.settles && !overdue && !refuses && waiting >= self.sizing.half() {
            drop(self.send_batches());
        }
        let Received { time, again, elsewhere, scripts_missing, refused_some, failure } =
            batch.receive(values, &self.denied, &self.config);
        if let Some(time) = time {
            self.time.learn(time, sent, arrived);
        }
        self.scripts_missing |= scripts_missing;
        if refused_some {
            self.apart_until = Some(arrived + APART);
        }
        // (A node of a cluster that sends everything elsewhere is healthy.)
        for (ask, error) in elsewhere {
            match &self.redirect {
                Some(redirect) => redirect(ask, Some(&error)),
                None => ask.fail(&unavailable(error)),
            }
        }
        self.send_again(again);
        let unused = self.is_unused();
        let failure = match (self.refused.take(), failure) {
            (Some(before), Some(failure)) => Some(before.or_worse(failure)),
            (before, failure) => before.or(failure),
        };
        if let Some(failure) = failure {
            return self.fail(failure, unused);
        }
        if overdue {
            // It works, but is it fast enough? A probe will find out, once everything that is left to do is
            // done.
            let queue = self.shared.queue();
            let idle = unused && queue.is_empty() && queue.unsettled() == 0;
            return idle.then_some(Stop::Late);
        }
        self.sizing.in_time(took);
        if !self.in_flight.iter().flatten().any(|batch| batch.overdue) {
            self.shared.breaker.close();
        }
        None
    }

    /// Stops asking a server that failed. If the connection is sound, the results of everything under way
    /// will still arrive. Settlements may be among it, and would be lost if nobody listened.
    fn fail(&mut self, failure: Failure, unused: bool) -> Option<Stop> {
        let error = failure.error.clone();
        if unused || failure.connection == Fate::Broken {
            let is_kept = failure.connection == Fate::Kept;
            return Some(if is_kept { Stop::Refused(error) } else { Stop::Broken(error) });
        }
        self.refused = Some(failure);
        self.fail_waiting(&error);
        None
    }

    /// Puts what was not done back at the head of the line.
    fn send_again(&mut self, again: Vec<Ask>) {
        let mut queue = self.shared.queue();
        for mut ask in again.into_iter().rev() {
            ask.attempts += 1;
            if ask.attempts < ATTEMPTS {
                queue.push_front(ask);
            } else {
                ask.fail(&unavailable("Redis did not do what it was asked, several times"));
            }
        }
    }
}
