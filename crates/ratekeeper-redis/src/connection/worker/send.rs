//! Sends what waits, and reads what was answered.

use std::time::Duration;

use ratekeeper_core::{StoreError, StoreErrorKind};
use redis::{RedisError, Value};
use tokio::time::Instant;

use super::{Stop, Worker};
use crate::batch::concurrency::{FLIGHTS, NEAR};
use crate::batch::in_flight::{Commands, Failure, Fate, InFlight, Landed};
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

impl Worker {
    /// Sends what waits, if there is room.
    pub(super) fn launch(&mut self) -> Option<Stop> {
        while let Some(slot) = self.free_flight() {
            // One go at a time settles, so that settlements accumulate, and the other go is free for incoming
            // requests. To a server that is late, none are sent before it has answered: if it never did, it
            // would be unknown what was done.
            let under_way = self.flights.iter().any(Option::is_some);
            let settling = self.flights.iter().flatten().any(|flight| flight.settles)
                || (under_way && self.shared.breaker.is_open());
            let mut queue = self.shared.queue();
            self.crowd.seen(queue.len());
            let (most, enough) = match self.is_far() {
                true => (self.pace.at_once().min(self.crowd.room()), 1),
                false => (self.crowd.half(), self.crowd.enough()),
            };
            queue.wake_at = if most == 0 { usize::MAX } else { enough };
            // The more of them wait, the more go. Otherwise incoming requests could cause more settlements
            // than are ever sent.
            let many = (queue.unsettled() / 4).clamp(SETTLEMENTS.0, SETTLEMENTS.1).min(self.pace.at_once());
            let is_quiet = self.heard.elapsed() > QUIET;
            let settlements = queue.take_settlements(if settling || is_quiet { 0 } else { many });
            queue.wake_to_settle = !settling && queue.unsettled() == 0 && settlements.is_empty();
            let enough = queue.len() >= queue.wake_at;
            if !enough && settlements.is_empty() {
                if queue.unsettled() > 0 && !under_way {
                    drop(queue);
                    self.send(slot, InFlight::whether_there(&self.denied));
                    continue;
                }
                return match () {
                    () if under_way => None,
                    () if queue.closed => Some(Stop::Closed),
                    // Nothing gets in line, and no answer will come that could close the breaker.
                    () if self.shared.breaker.is_open() => Some(Stop::Late),
                    () => None,
                };
            }
            // What can hardly be answered in time is not sent. It would be void, and with it everything in
            // the same call: requests that have waited too long would spoil it for those that could still be
            // served.
            let now = Instant::now();
            let by = now + (self.usual * 2).min(self.config.timeout / 2);
            // The settlement that it is behind takes one or two answers, and the request itself one more.
            let hurry = now + self.usual * 4 + self.config.timeout / 4;
            let Taken { first: asks, late, left_behind } =
                queue.take(if enough { most } else { 0 }, by, hurry);
            let left_others = queue.len() > left_behind || queue.unsettled() > 0;
            self.line.is(queue.len());
            drop(queue);
            late.into_iter().for_each(|ask| ask.fail(&StoreError::new(StoreErrorKind::Timeout)));
            if asks.is_empty() && settlements.is_empty() {
                match left_behind {
                    0 => continue,
                    // The settlements that they are behind are made when an answer has come.
                    _ if under_way => return None,
                    _ => {
                        self.send(slot, InFlight::whether_there(&self.denied));
                        continue;
                    }
                }
            }
            self.crowd.sent(slot, asks.len());
            if !asks.is_empty() {
                self.config.watch.sent(asks.len());
            }
            let load = std::mem::take(&mut self.load_scripts);
            let mut go = InFlight::new(settlements, asks, &self.time, &self.config, load, &self.denied);
            go.0.left_others = left_others;
            self.send(slot, go);
        }
        // Nothing can be sent before an answer has come.
        let mut queue = self.shared.queue();
        (queue.wake_at, queue.wake_to_settle) = (usize::MAX, false);
        self.line.is(queue.len());
        drop(queue);
        None
    }

    /// Whether an answer takes so long that no request can wait for others: then everything that waits is
    /// sent.
    pub(super) fn is_far(&self) -> bool {
        let near = self.config.near();
        self.usual > near || self.flights.iter().flatten().any(|flight| flight.sent.elapsed() >= near)
    }

    /// A free flight, if anything may be sent.
    pub(super) fn free_flight(&self) -> Option<usize> {
        let most = if self.is_far() && self.crowd.room() > 0 { FLIGHTS } else { NEAR };
        if self.refused.is_some() { None } else { self.flights[..most].iter().position(Option::is_none) }
    }

    pub(super) fn send(&mut self, slot: usize, (flight, commands): (InFlight, Commands)) {
        // There is one: without it, nothing is served.
        let Some(mut connection) = self.connection.clone() else { return };
        self.flights[slot] = Some(flight);
        self.pending.push(Box::pin(async move { (slot, commands.send(&mut connection).await) }));
    }

    /// Reads what was answered.
    pub(super) fn land(&mut self, slot: usize, result: Result<Vec<Value>, RedisError>) -> Option<Stop> {
        let flight = self.flights[slot].take()?;
        self.crowd.back(slot, self.shared.queue().len());
        let (sent, took, overdue) = (flight.sent, flight.sent.elapsed(), flight.overdue);
        let arrived = Instant::now();
        self.pace.learn(flight.len(), flight.left_others, took);
        self.crowd.limit(self.pace.at_once());
        let values = match result {
            Ok(values) => {
                self.heard = arrived;
                values
            }
            Err(error) => {
                let error = failed(error);
                flight.fail(&error);
                return Some(Stop::Broken(error));
            }
        };
        // Waiting requests go first, if they are as many as may go together: so the server has something to
        // do while the others are answered. (If it is time to stop, that is noticed afterwards, too.) But
        // settlements stay in order, and a server that was late, or that refuses something, is not trusted
        // before its answer is read.
        let refuses = values.iter().any(|value| matches!(value, Value::ServerError(_)));
        if !flight.settles && !overdue && !refuses && self.shared.queue().len() >= self.crowd.half() {
            drop(self.launch());
        }
        let Landed { time, again, elsewhere, scripts_missing, failure } =
            flight.land(values, &self.denied, &self.config);
        if let Some(time) = time {
            self.time.learn(time, sent, arrived);
        }
        self.load_scripts |= scripts_missing;
        // (A node of a cluster that sends everything elsewhere is healthy.)
        for (ask, error) in elsewhere {
            match &self.redirect {
                Some(redirect) => redirect(ask, Some(&error)),
                None => ask.fail(&unavailable(error)),
            }
        }
        self.send_again(again);
        let landed = self.flights.iter().all(Option::is_none);
        let failure = match (self.refused.take(), failure) {
            (Some(before), Some(failure)) => Some(before.or_worse(failure)),
            (before, failure) => before.or(failure),
        };
        if let Some(failure) = failure {
            return self.fail(failure, landed);
        }
        if overdue {
            // It works, but is it fast enough? A probe will find out, once everything that is left to do is
            // done.
            let queue = self.shared.queue();
            let idle = landed && queue.is_empty() && queue.unsettled() == 0;
            return idle.then_some(Stop::Late);
        }
        self.usual = (self.usual * 3 + took) / 4;
        if !self.flights.iter().flatten().any(|flight| flight.overdue) {
            self.shared.breaker.close();
        }
        None
    }

    /// Stops asking a server that failed. If the connection is sound, the results of everything under way
    /// will still arrive. Settlements may be among it, and would be lost if nobody listened.
    fn fail(&mut self, failure: Failure, landed: bool) -> Option<Stop> {
        let error = failure.error.clone();
        if landed || failure.connection == Fate::Broken {
            let is_kept = failure.connection == Fate::Kept;
            return Some(if is_kept { Stop::Refused(error) } else { Stop::Broken(error) });
        }
        self.refused = Some(failure);
        self.turn_away(&error);
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
