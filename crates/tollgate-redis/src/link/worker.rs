//! The task that holds a connection: it sends, reads, lets go of those whose time is up, and gets a server back that failed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};
use tokio::time::{Instant, sleep, timeout};
use tollgate_core::{StoreError, StoreErrorKind};

use crate::breaker::Pauses;
use crate::config::Config;
use crate::connect::Target;
use crate::crowd::{Crowd, FLIGHTS};
use crate::denied::Denied;
use crate::error::failed;
use crate::error::unavailable;
use crate::flight::{Commands, Flight, Flown, Landed};
use crate::observe::LineWatch;
use crate::request::Ask;
use crate::server_time::ServerTime;

use super::{Redirect, Shared};

/// How often something that was not done may be sent again.
const ATTEMPTS: u8 = 3;

/// How many settlements go together: the few that mostly wait, or at most so many. Redis takes some microseconds for
/// each, and so long do those wait who are sent along with them.
const SETTLEMENTS: (usize, usize) = (32, 256);

/// After so long without a word from the server it is asked whether it is there, before anything is settled. A
/// connection that nobody uses may be gone without anybody knowing, and what was sent into it may have been done, for
/// all that is known.
const QUIET: Duration = Duration::from_millis(100);

/// Why a worker stops serving.
enum Stop {
    /// Nobody needs it any more.
    Closed,
    /// The server refuses to work; the connection is sound.
    Refused(StoreError),
    /// The connection is of no more use.
    Broken(StoreError),
    /// All answers have come, but too late.
    Late,
}

/// The task that holds the connection.
pub(super) struct Worker {
    shared: Arc<Shared>,
    target: Target,
    config: Config,
    denied: Arc<Denied>,
    redirect: Option<Redirect>,
    time: ServerTime,
    connection: Option<MultiplexedConnection>,
    /// The server has lost its scripts.
    load_scripts: bool,
    crowd: Crowd,
    flights: [Option<Flight>; FLIGHTS],
    pending: FuturesUnordered<BoxFuture<'static, Flown>>,
    /// How long an answer usually takes.
    usual: Duration,
    /// When the server last said something.
    heard: Instant,
    line: LineWatch,
}

impl Drop for Worker {
    /// The task has ended, with its runtime perhaps: nobody may wait for what it will not do.
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
    pub(super) fn new(
        shared: Arc<Shared>,
        target: Target,
        config: &Config,
        denied: Arc<Denied>,
        redirect: Option<Redirect>,
    ) -> Self {
        Self {
            shared,
            target,
            config: config.clone(),
            denied,
            redirect,
            time: ServerTime::new(),
            connection: None,
            load_scripts: false,
            crowd: Crowd::new(config.batch),
            flights: [const { None }; FLIGHTS],
            pending: FuturesUnordered::new(),
            usual: Duration::ZERO,
            heard: Instant::now(),
            line: LineWatch::default(),
        }
    }

    pub(super) async fn run(mut self) {
        let mut stop = Stop::Broken(unavailable("not connected yet"));
        loop {
            let (error, broken) = match stop {
                Stop::Closed => return,
                Stop::Refused(error) => (error, false),
                Stop::Broken(error) => (error, true),
                Stop::Late => (StoreError::new(StoreErrorKind::Timeout), false),
            };
            self.let_go(&error);
            if broken {
                self.connection = None;
            }
            if !self.recover().await {
                return;
            }
            stop = self.serve().await;
        }
    }

    /// Opens the breaker, and answers all who wait. Settlements that wait are kept; of those that are under way
    /// nobody knows whether they were made, so they are not made again.
    fn let_go(&mut self, error: &StoreError) {
        self.shared.breaker.open(error.clone());
        self.pending.clear();
        self.flights.iter_mut().filter_map(Option::take).for_each(|flight| flight.fail(error));
        self.crowd.lost();
        let waiting = {
            let mut queue = self.shared.queue();
            queue.put_off(error);
            queue.take_all()
        };
        self.line.is(0);
        waiting.into_iter().for_each(|ask| ask.fail(error));
    }

    /// Tries until the server works again; `false` if nobody needs it any more.
    async fn recover(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let trying = async {
            let mut pauses = Pauses::new(self.config.longest_pause);
            while let Err(error) = self.probe().await {
                self.shared.breaker.open(error);
                sleep(pauses.next()).await;
            }
            self.shared.breaker.close();
        };
        tokio::select! {
            () = trying => true,
            () = shared.closed() => false,
        }
    }

    /// Connects if need be, and sees whether the server does what is needed of it, as fast as is needed.
    async fn probe(&mut self) -> Result<(), StoreError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let connection = self.target.connect(self.config.connect_timeout).await.map_err(failed)?;
                // It may be another server, with another clock.
                self.time = ServerTime::new();
                connection
            }
        };
        let sent = Instant::now();
        let probing = Flight::probe(&mut connection, &self.config);
        let slow = |why: &'static str| StoreError::new(StoreErrorKind::Timeout).with_source(why);
        match timeout(self.config.silence(), probing).await {
            Ok(Ok(now)) => {
                self.time.learn(now, Instant::now());
                self.connection = Some(connection);
                self.load_scripts = false;
                // Whoever asked now would wait in vain.
                let took = sent.elapsed();
                if took > self.config.timeout {
                    return Err(slow("Redis answers, but takes longer than a decision may"));
                }
                (self.usual, self.heard) = (took, Instant::now());
                Ok(())
            }
            // Read-only, out of memory, still loading: perhaps another server works, perhaps this one later.
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => Err(slow("Redis does not answer")),
        }
    }

    async fn serve(&mut self) -> Stop {
        let alarm = sleep(Duration::from_secs(86_400));
        tokio::pin!(alarm);
        let mut alarm_set = false;
        let shared = Arc::clone(&self.shared);
        loop {
            if let Some(stop) = self.launch() {
                return stop;
            }
            let has_room = self.flights.iter().any(Option::is_none);
            // Set to the earliest moment that matters, but not set anew for each later one.
            match self.next_alarm() {
                Some(next) if !alarm_set || next < alarm.deadline() => {
                    alarm.as_mut().reset(next);
                    alarm_set = true;
                }
                _ => {}
            }
            tokio::select! {
                biased;
                Some((slot, result)) = self.pending.next(), if !self.pending.is_empty() => {
                    if let Some(stop) = self.land(slot, result) {
                        return stop;
                    }
                    self.wait_for_more().await;
                }
                () = shared.wake.notified(), if has_room => self.wait_for_the_last().await,
                () = &mut alarm, if alarm_set => {
                    alarm_set = false;
                    if let Some(stop) = self.expire() {
                        return stop;
                    }
                }
            }
        }
    }

    /// Lets those who were just answered ask again, if nobody is under way: until half of them have, or all who are
    /// about to.
    async fn wait_for_more(&mut self) {
        {
            let mut queue = self.shared.queue();
            queue.wake_at = self.crowd.half();
            if !self.crowd.may_be_more() || queue.len() >= queue.wake_at {
                return;
            }
        }
        tokio::select! {
            biased;
            () = self.shared.wake.notified() => {}
            () = tokio::task::yield_now() => {}
        }
    }

    /// Lets those come along who are about to ask, if others are under way and almost enough wait. Who woke this task is
    /// followed by those who were answered with it.
    async fn wait_for_the_last(&mut self) {
        if !self.crowd.is_idle() && self.shared.queue().len() < self.crowd.half() {
            tokio::task::yield_now().await;
        }
    }

    /// Sends what waits, if there is room.
    fn launch(&mut self) -> Option<Stop> {
        while let Some(slot) = self.flights.iter().position(Option::is_none) {
            // One go at a time settles, so that what is to be settled gathers, and the other is free for those at the
            // door. To a server that is late nothing is sent before it has answered: if it never did, nobody would
            // know what was done.
            let under_way = self.flights.iter().any(Option::is_some);
            let settling = self.flights.iter().flatten().any(|flight| flight.settles)
                || (under_way && self.shared.breaker.is_open());
            let mut queue = self.shared.queue();
            self.crowd.seen(queue.len());
            queue.wake_at = self.crowd.enough();
            // The more of them wait, the more go: else those at the door could make more than are ever sent.
            let many = (queue.unsettled() / 4).clamp(SETTLEMENTS.0, SETTLEMENTS.1);
            let is_quiet = self.heard.elapsed() > QUIET;
            let settlements = queue.take_settlements(if settling || is_quiet { 0 } else { many });
            queue.wake_to_settle = !settling && queue.unsettled() == 0 && settlements.is_empty();
            let enough = queue.len() >= queue.wake_at;
            if !enough && settlements.is_empty() {
                if queue.unsettled() > 0 && !under_way {
                    drop(queue);
                    self.send(slot, Flight::whether_there(&self.denied));
                    continue;
                }
                return match () {
                    () if under_way => None,
                    () if queue.closed => Some(Stop::Closed),
                    // Nobody gets in line, and no answer will come that could close it.
                    () if self.shared.breaker.is_open() => Some(Stop::Late),
                    () => None,
                };
            }
            // What can hardly be answered in time any more is not sent. It would be void, and with it all that is sent
            // in the same call: those who have waited too long would spoil it for those who could still be served.
            let now = Instant::now() + (self.usual * 2).min(self.config.timeout / 2);
            let (asks, late) = queue.take(if enough { self.crowd.half() } else { 0 }, now);
            self.line.is(queue.len());
            drop(queue);
            late.into_iter().for_each(|ask| ask.fail(&StoreError::new(StoreErrorKind::Timeout)));
            if asks.is_empty() && settlements.is_empty() {
                continue;
            }
            self.crowd.sent(slot, asks.len());
            if !asks.is_empty() {
                self.config.watch.sent(asks.len());
            }
            let load = std::mem::take(&mut self.load_scripts);
            let go = Flight::new(settlements, asks, &self.time, &self.config, load, &self.denied);
            self.send(slot, go);
        }
        // Nobody can go before an answer has come.
        let mut queue = self.shared.queue();
        (queue.wake_at, queue.wake_to_settle) = (usize::MAX, false);
        self.line.is(queue.len());
        drop(queue);
        None
    }

    fn send(&mut self, slot: usize, (flight, commands): (Flight, Commands)) {
        // There is one: without, nothing is served.
        let Some(mut connection) = self.connection.clone() else { return };
        self.flights[slot] = Some(flight);
        self.pending.push(Box::pin(async move { (slot, commands.send(&mut connection).await) }));
    }

    /// Reads what was answered.
    fn land(&mut self, slot: usize, result: Result<Vec<Value>, RedisError>) -> Option<Stop> {
        let flight = self.flights[slot].take()?;
        self.crowd.back(slot, self.shared.queue().len());
        let (took, overdue) = (flight.sent.elapsed(), flight.overdue);
        let values = match result {
            Ok(values) => {
                self.heard = Instant::now();
                values
            }
            Err(error) => {
                let error = failed(error);
                flight.fail(&error);
                return Some(Stop::Broken(error));
            }
        };
        // Those who wait go first, if they are as many as may: so the server has something to do while the others are
        // answered. (If it is time to stop, that is seen afterwards, too.) But what is settled stays in order, and a
        // server that was late is not trusted before its answer is read.
        if !flight.settles && !overdue && self.shared.queue().len() >= self.crowd.half() {
            drop(self.launch());
        }
        let Landed { time, again, elsewhere, scripts_missing, failure } =
            flight.land(values, &self.denied, &self.config);
        if let Some(time) = time {
            self.time.learn(time, Instant::now());
        }
        self.load_scripts |= scripts_missing;
        // (A node of a cluster that sends everything elsewhere is sound.)
        for (ask, error) in elsewhere {
            match &self.redirect {
                Some(redirect) => redirect(ask, Some(&error)),
                None => ask.fail(&unavailable(error)),
            }
        }
        self.send_again(again);
        match failure {
            Some(failure) if failure.broken => return Some(Stop::Broken(failure.error)),
            Some(failure) => return Some(Stop::Refused(failure.error)),
            None => {}
        }
        if overdue {
            // It works, but is it fast enough? A probe will tell, when all that is left to do is done.
            let queue = self.shared.queue();
            let idle = self.flights.iter().all(Option::is_none) && queue.is_empty() && queue.unsettled() == 0;
            return idle.then_some(Stop::Late);
        }
        self.usual = (self.usual * 3 + took) / 4;
        if !self.flights.iter().flatten().any(|flight| flight.overdue) {
            self.shared.breaker.close();
        }
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

    /// Lets go of those whose time is up.
    fn expire(&mut self) -> Option<Stop> {
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
            // Whoever comes now would wait in vain; the answer, if it comes, closes the breaker again.
            self.shared.breaker.open(error.clone());
        }
        let mut queue = self.shared.queue();
        let late = if overdue {
            queue.put_off(&error);
            queue.take_all().into()
        } else {
            queue.take_late(now)
        };
        drop(queue);
        late.into_iter().for_each(|ask| ask.fail(&error));
        None
    }

    /// When the next one's time is up; `None` if nobody waits.
    fn next_alarm(&self) -> Option<Instant> {
        let flights = self.flights.iter().flatten().map(|flight| flight.next_alarm(&self.config));
        let waiting = self.shared.queue().next_deadline();
        flights.chain(waiting).min()
    }
}
