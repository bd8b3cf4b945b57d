//! The task that holds a connection. It sends, reads, lets go of requests whose time is up, and gets a failed
//! server back.

mod expire;
mod recover;
mod send;
mod spin;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use ratekeeper_core::{StoreError, StoreErrorKind};
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, sleep};

use self::spin::Lookout;
use super::{Redirect, Shared};
use crate::batch::concurrency::{Crowd, FLIGHTS, NEAR};
use crate::batch::in_flight::{Failure, Flown, InFlight};
use crate::batch::server_time::ServerTime;
use crate::batch::sizing::Pace;
use crate::config::Config;
use crate::connection::connect::{Target, is_closed};
use crate::connection::probe::Tags;
use crate::denial_cache::DenialCache;
use crate::observe::LineWatch;

/// After this long without a word, an idle server is asked whether it is there. So a connection that was
/// dropped silently is detected before somebody needs it, and the breaker's state is true. It also keeps the
/// connection from being closed as idle.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Why a worker stops serving.
enum Stop {
    /// It is no longer needed.
    Closed,
    /// The server refuses to work; the connection is sound, and all answers have come.
    Refused(StoreError),
    /// The connection is of no more use.
    Broken(StoreError),
    /// All answers have come, but too late.
    Late,
}

/// The result of polling for an answer.
enum Look {
    Seen(Flown),
    /// There is something else to do meanwhile.
    Called,
    InVain,
}

/// The task that holds the connection.
pub(super) struct Worker {
    shared: Arc<Shared>,
    target: Target,
    config: Config,
    denied: Arc<DenialCache>,
    redirect: Option<Redirect>,
    /// Where a node of a cluster is probed.
    probed: Option<Tags>,
    time: ServerTime,
    connection: Option<MultiplexedConnection>,
    /// Whether the server was asked if it evicts counters.
    asked_of_eviction: bool,
    /// The server has lost its scripts.
    load_scripts: bool,
    /// Set when the server refuses to work. Nothing more is sent, and what is under way is waited for.
    refused: Option<Failure>,
    crowd: Crowd,
    pace: Pace,
    flights: [Option<InFlight>; FLIGHTS],
    pending: FuturesUnordered<BoxFuture<'static, Flown>>,
    lookout: Lookout,
    /// How long an answer usually takes.
    usual: Duration,
    /// When the server last answered.
    heard: Instant,
    line: LineWatch,
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        target: Target,
        config: &Config,
        denied: Arc<DenialCache>,
        redirect: Option<Redirect>,
        probed: Option<Tags>,
    ) -> Self {
        Self {
            shared,
            target,
            config: config.clone(),
            denied,
            redirect,
            probed,
            time: ServerTime::new(),
            connection: None,
            asked_of_eviction: false,
            load_scripts: false,
            refused: None,
            crowd: Crowd::new(config.batch),
            pace: Pace::new(config.batch, config.timeout / 2),
            flights: [const { None }; FLIGHTS],
            pending: FuturesUnordered::new(),
            lookout: Lookout::new(config.spin),
            usual: Duration::ZERO,
            heard: Instant::now(),
            line: LineWatch::default(),
        }
    }

    pub(super) async fn run(mut self) {
        while self.recover().await {
            let (error, broken) = match self.serve().await {
                Stop::Closed => return,
                Stop::Refused(error) => (error, false),
                Stop::Broken(error) => (error, true),
                Stop::Late => (StoreError::new(StoreErrorKind::Timeout), false),
            };
            self.let_go(&error);
            if broken {
                self.connection = None;
            }
        }
    }

    async fn serve(&mut self) -> Stop {
        let alarm = sleep(Duration::from_secs(86_400));
        tokio::pin!(alarm);
        let shared = Arc::clone(&self.shared);
        shared.queue().alarm = None;
        loop {
            if let Err(error) = self.look_after_connection().await {
                return Stop::Broken(error);
            }
            if let Some(stop) = self.launch() {
                return stop;
            }
            let has_room = self.free_flight().is_some();
            let alarm_at = self.next_alarm();
            if let Some(next) = alarm_at.filter(|next| *next != alarm.deadline()) {
                alarm.as_mut().reset(next);
            }
            match self.look_out(has_room, alarm_at).await {
                Look::Seen((slot, result)) => {
                    if let Some(stop) = self.land(slot, result) {
                        return stop;
                    }
                    self.wait_for_more().await;
                    continue;
                }
                Look::Called => {
                    self.wait_for_the_last().await;
                    continue;
                }
                Look::InVain => {}
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
                () = shared.hurry.notified() => {}
                () = &mut alarm, if alarm_at.is_some() => {
                    shared.queue().alarm = None;
                    if let Some(stop) = self.expire() {
                        return stop;
                    }
                }
            }
        }
    }

    /// Replaces a connection that was closed while nothing was under way, before anything is sent: nothing
    /// was lost, so nobody has to be told. If nothing was heard for long, asks whether the server is there.
    async fn look_after_connection(&mut self) -> Result<(), StoreError> {
        if !self.is_unused() {
            return Ok(());
        }
        let is_due = self.heard.elapsed() >= HEARTBEAT;
        if !is_due && self.shared.queue().has_nothing() {
            return Ok(());
        }
        if self.connection.as_mut().is_some_and(is_closed) {
            return self.reconnect().await;
        }
        if is_due {
            self.send(0, InFlight::whether_there(&self.denied));
        }
        Ok(())
    }

    /// Polls for an answer before this task goes to sleep, if a crowd waits for it, or a caller that asked
    /// right after an answer. Where Redis is near, sleeping and being woken takes both sides longer than most
    /// answers do. A caller that comes now and then finds both asleep, and nothing is gained. Anything else
    /// that is to be done meanwhile goes first.
    async fn look_out(&mut self, has_room: bool, alarm: Option<Instant>) -> Look {
        if self.pending.is_empty() || self.crowd.is_idle() {
            return Look::InVain;
        }
        if !self.crowd.is_large() && self.heard.elapsed() > self.config.spin {
            return Look::InVain;
        }
        let Some(until) = self.lookout.until(std::time::Instant::now()) else { return Look::InVain };
        loop {
            let flown = poll_fn(|cx| Poll::Ready(self.pending.poll_next_unpin(cx))).await;
            if let Poll::Ready(Some(flown)) = flown {
                self.lookout.seen();
                return Look::Seen(flown);
            }
            if alarm.is_some_and(|alarm| Instant::now() >= alarm) {
                return Look::InVain;
            }
            if std::time::Instant::now() >= until {
                self.lookout.in_vain();
                return Look::InVain;
            }
            tokio::select! {
                biased;
                () = self.shared.wake.notified(), if has_room => return Look::Called,
                () = tokio::task::yield_now() => {}
            }
        }
    }

    /// If nothing is under way, lets callers that were just answered ask again: until half of the crowd has,
    /// or all that are about to.
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

    /// If the next answer is far away, lets callers that are about to ask come along, since they would have
    /// to wait for it otherwise.
    async fn wait_for_the_last(&mut self) {
        if !self.crowd.is_idle() && self.is_far() {
            tokio::task::yield_now().await;
        }
    }

    /// Whether nothing is under way.
    fn is_unused(&self) -> bool {
        self.flights.iter().all(Option::is_none)
    }

    /// When the next request's time is up, or the server is to be asked whether it is there. The alarm is set
    /// for the earliest such moment, and not postponed whenever that no longer matters.
    fn next_alarm(&self) -> Option<Instant> {
        let flights = self.flights.iter().flatten().map(|flight| flight.next_alarm(&self.config));
        // Requests wait for others to come along only while the server counts as near.
        let has_room = self.flights[NEAR..].iter().any(Option::is_none);
        let far_at = self.flights.iter().flatten().map(|flight| flight.sent + self.config.near());
        let flights = flights.chain(far_at.filter(|far_at| has_room && *far_at > Instant::now()));
        let heartbeat = self.is_unused().then(|| self.heard + HEARTBEAT);
        // Noted under the lock: a request that gets in line afterwards sees whether it is early enough.
        let mut queue = self.shared.queue();
        queue.alarm = flights.chain(heartbeat).chain(queue.next_deadline()).chain(queue.alarm).min();
        queue.alarm
    }
}
