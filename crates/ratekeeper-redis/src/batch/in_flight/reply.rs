//! The results of what was sent.

use ratekeeper_core::{StoreError, StoreErrorKind, Timestamp};
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::Instant;

use super::{Command, CommandKind, InFlight, is_elsewhere};
use crate::batch::call::Few;
use crate::batch::decode::{Answered, Garbled};
use crate::config::Config;
use crate::denial_cache::{DenialCache, Passed};
use crate::error::{is_of_the_call, is_refusal, unavailable};
use crate::request::{Ask, Charges, Intent};

/// The result of a flight.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// The server's time.
    pub(crate) time: Option<Timestamp>,
    /// Not done, and to be sent again.
    pub(crate) again: Vec<Ask>,
    /// Not done, because it belongs to another server, and the error that says so.
    pub(crate) elsewhere: Vec<(Ask, RedisError)>,
    pub(crate) scripts_missing: bool,
    /// Whether the server has refused a call for the sake of some of its requests.
    pub(crate) refused_some: bool,
    pub(crate) failure: Option<Failure>,
}

/// The server cannot be used.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) error: StoreError,
    pub(crate) connection: Fate,
}

/// What happens to the connection to a server that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    /// It is kept: the server refuses to work, and may work later.
    Kept,
    /// It is closed when all answers have come: another server may be the one to ask.
    Left,
    /// It is given up: answers can no longer be matched to questions.
    Broken,
}

impl Failure {
    /// The worse of two failures, or the first of equals: if one answer makes the connection useless, no
    /// other makes it good.
    pub(crate) fn or_worse(self, other: Self) -> Self {
        if other.connection > self.connection { other } else { self }
    }
}

impl Received {
    /// Remembers that the server failed.
    fn fail(&mut self, error: &StoreError, connection: Fate) {
        let failure = Failure { error: error.clone(), connection };
        self.failure = Some(match self.failure.take() {
            Some(before) => before.or_worse(failure),
            None => failure,
        });
    }
}

impl InFlight {
    /// Reads the answers, and passes them on.
    pub(crate) fn receive(self, values: Vec<Value>, denied: &DenialCache, config: &Config) -> Received {
        let mut received = Received::default();
        if values.len() != self.commands.len() {
            let error =
                StoreError::new(StoreErrorKind::Protocol).with_source("Redis gave another number of answers");
            received.fail(&error, Fate::Broken);
            self.fail(&error);
            return received;
        }
        let sent_at = self.sent_at;
        for (command, value) in self.commands.into_iter().zip(values) {
            let value = match value.extract_error() {
                Ok(value) => value,
                Err(error) => {
                    command.refused(error, config, &mut received);
                    continue;
                }
            };
            match (&command.kind, value) {
                (CommandKind::Script(_), Value::BulkString(reply)) => {
                    command.answered(&reply, sent_at, denied, &mut received);
                }
                (CommandKind::Settle | CommandKind::Reset, Value::Int(_)) => command.done(denied),
                (CommandKind::Asking | CommandKind::Time, _) => {}
                _ => command.garbled("Redis answered something else than it was asked", &mut received),
            }
        }
        received
    }
}

impl Command {
    /// The script has decided.
    fn answered(mut self, reply: &[u8], sent_at: Passed, denied: &DenialCache, received: &mut Received) {
        let CommandKind::Script(call) = &self.kind else { return };
        let answer = match call.read(reply) {
            Ok((time, answer)) => {
                received.time = Some(time);
                answer
            }
            Err(Garbled(why)) => return self.garbled(why, received),
        };
        let Some(answer) = answer else {
            // It was too late by what was known of the server's clock. Now more is known.
            let (in_time, late): (Vec<_>, Vec<_>) =
                self.asks.into_iter().flatten().partition(|ask| ask.deadline > Instant::now());
            received.again.extend(in_time);
            late.into_iter().for_each(|ask| ask.fail(&StoreError::new(StoreErrorKind::Timeout)));
            return;
        };
        let charges: Few<&Charges> = self.asks.iter().flatten().filter_map(Ask::charges).collect();
        let intents: Few<_> = self.asks.iter().flatten().map(Ask::intent).collect();
        let peek = intents.first() == Some(&Some(Intent::Peek));
        let mut all = Few::with_capacity(charges.len());
        let parts: Few<bool> = intents.iter().map(|intent| *intent == Some(Intent::ChargePart)).collect();
        let decided = call.decide(&charges, &parts, &answer, |answered, counters, places| {
            // A peek has changed nothing, so there is nothing new to learn.
            if !peek && !answered.is_disputed {
                denied.learn(charges[answered.request], counters, places, &answered.decision, sent_at);
            }
            all.push(answered);
        });
        drop(charges);
        if let Err(Garbled(why)) = decided {
            return self.garbled(why, received);
        }
        for Answered { request, decision, before, .. } in all {
            if let Some(ask) = self.asks[request].take() {
                received.again.extend(ask.decided(decision, before));
            }
        }
    }

    fn done(self, denied: &DenialCache) {
        for ask in self.asks.into_iter().flatten() {
            if let Some(counter) = ask.changed() {
                denied.forget(counter);
            }
            ask.done();
        }
    }

    fn garbled(self, why: &'static str, received: &mut Received) {
        let error = StoreError::new(StoreErrorKind::Protocol).with_source(why);
        received.fail(&error, Fate::Broken);
        self.asks.into_iter().flatten().for_each(|ask| ask.fail(&error));
    }

    /// Redis has done nothing, and said why; or something on the way says that it failed.
    fn refused(self, error: RedisError, config: &Config, received: &mut Received) {
        let asks = self.asks.into_iter().flatten();
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::NoScript) => {
                received.scripts_missing = true;
                received.again.extend(asks);
            }
            _ if config.cluster && is_elsewhere(&error) => {
                received.elsewhere.extend(asks.map(|ask| (ask, error.clone())));
            }
            _ if is_of_the_call(&error) => {
                received.refused_some = true;
                let mut asks: Vec<_> = asks.collect();
                match asks.pop() {
                    // Only some of those that shared the call may be to blame. Nothing was counted, and from
                    // now on each has a call of its own.
                    Some(last) if !asks.is_empty() => received.again.extend(asks.into_iter().chain([last])),
                    only => only.into_iter().for_each(|ask| ask.fail(&unavailable(error.clone()))),
                }
            }
            kind => {
                // A read-only server may have been the master. Connecting again finds the current one.
                let only_reads = kind == ErrorKind::Server(ServerErrorKind::ReadOnly);
                // Settlements are tried again when the server works, because the script does all or nothing.
                // But if the error is not Redis's own, it is unknown which of the two it did.
                let nothing_done = is_refusal(&error);
                let error = unavailable(error);
                let (settlements, others): (Vec<_>, Vec<_>) =
                    asks.partition(|ask| nothing_done && ask.settlement().is_some());
                received.again.extend(settlements);
                others.into_iter().for_each(|ask| ask.fail(&error));
                received.fail(&error, if only_reads { Fate::Left } else { Fate::Kept });
            }
        }
    }
}
