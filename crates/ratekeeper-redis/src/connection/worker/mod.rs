//! The task that holds a connection. It sends batches, reads their replies, fails requests whose deadline has
//! passed, and gets a failed server back.

mod expire;
mod recover;
mod send;

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{StoreError, StoreErrorKind};
use tokio::time::{Instant, sleep};

use super::connect::Target;
use super::handle::{Redirect, Shared};
use super::probe::Tags;
use super::socket::{Event, Socket};
use crate::batch::in_flight::{Failure, InFlight};
use crate::batch::server_time::ServerTime;
use crate::batch::sizing::{MAX_IN_FLIGHT, Sizing};
use crate::config::Config;
use crate::denial_cache::DenialCache;
use crate::observe::QueueWatch;

/// After this long without a reply, an idle server is asked whether it is there. So a connection that was
/// dropped silently is detected before a request needs it, and the breaker's state is true. It also keeps the
/// connection from being closed as idle.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Why a worker stops serving.
enum Stop {
    /// It is no longer needed.
    Closed,
    /// The server refuses to work; the connection is sound, and all replies have come.
    Refused(StoreError),
    /// The connection is of no more use.
    Broken(StoreError),
    /// All replies have come, but too late.
    Late,
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
    socket: Option<Socket>,
    /// Whether the server was asked if it evicts counters.
    checked_eviction: bool,
    /// The server has lost its scripts.
    scripts_missing: bool,
    /// Until when each request gets a call of its own, because the server refuses some of them.
    apart_until: Option<Instant>,
    /// Set when the server refuses to work. Nothing more is sent, and what is in flight is waited for.
    refused: Option<Failure>,
    /// Another server has taken over. Nothing more is sent to this one.
    leaving: bool,
    sizing: Sizing,
    in_flight: [Option<InFlight>; MAX_IN_FLIGHT],
    /// When the server last replied.
    heard: Instant,
    queue_watch: QueueWatch,
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
            socket: None,
            checked_eviction: false,
            scripts_missing: false,
            apart_until: None,
            refused: None,
            leaving: false,
            sizing: Sizing::new(config.batch, config.timeout),
            in_flight: [const { None }; MAX_IN_FLIGHT],
            heard: Instant::now(),
            queue_watch: QueueWatch::default(),
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
            self.fail_all(&error);
            if broken {
                self.socket = None;
            }
        }
    }

    async fn serve(&mut self) -> Stop {
        let alarm = sleep(Duration::from_secs(86_400));
        tokio::pin!(alarm);
        let shared = Arc::clone(&self.shared);
        shared.queue().alarm = None;
        loop {
            if let Err(error) = self.keep_connected().await {
                return Stop::Broken(error);
            }
            if let Some(stop) = self.send_batches() {
                return stop;
            }
            let has_room = self.free_batch().is_some();
            let alarm_at = self.next_alarm();
            if let Some(next) = alarm_at.filter(|next| *next != alarm.deadline()) {
                alarm.as_mut().reset(next);
            }
            // There is one: without it, nothing is served.
            let Some(socket) = &mut self.socket else { return Stop::Late };
            tokio::select! {
                biased;
                event = socket.next() => match event {
                    Event::Replies(batch, replies) => {
                        if let Some(stop) = self.receive(batch, replies) {
                            return stop;
                        }
                        self.wait_for_more().await;
                    }
                    // It is replaced before anything is sent.
                    Event::Closed => {}
                },
                () = shared.wake.notified(), if has_room => {
                    // Callers that are about to ask come along. If the server is far and they do not, the few
                    // that may be in flight are soon used up by small batches.
                    if self.sizing.is_far() && !self.is_unused() {
                        tokio::task::yield_now().await;
                    }
                }
                () = shared.hurry.notified() => {}
                () = shared.leave.notified() => self.leaving = true,
                () = &mut alarm, if alarm_at.is_some() => {
                    shared.queue().alarm = None;
                    if let Some(stop) = self.expire() {
                        return stop;
                    }
                }
            }
        }
    }

    /// Replaces a connection that was closed or is to be left, if nothing is in flight. Nothing was lost, so
    /// nobody has to be told. If there was no reply for long, asks whether the server is there.
    async fn keep_connected(&mut self) -> Result<(), StoreError> {
        if !self.is_unused() {
            return Ok(());
        }
        let is_closed = match &mut self.socket {
            Some(socket) => socket.is_closed().await,
            None => true,
        };
        if is_closed || self.leaving {
            return self.reconnect().await;
        }
        if self.heard.elapsed() >= HEARTBEAT {
            self.send(0, InFlight::whether_there(&self.denied));
        }
        Ok(())
    }

    /// If nothing is in flight, lets callers that were just answered ask again: until there are enough for a
    /// batch, or none is about to.
    async fn wait_for_more(&mut self) {
        {
            let mut queue = self.shared.queue();
            queue.wake_at = self.sizing.half();
            if !self.sizing.expects_more() || queue.len() >= queue.wake_at {
                return;
            }
        }
        tokio::select! {
            biased;
            () = self.shared.wake.notified() => {}
            () = tokio::task::yield_now() => {}
        }
    }

    /// Whether nothing is in flight.
    fn is_unused(&self) -> bool {
        self.in_flight.iter().all(Option::is_none)
    }

    /// When the next request's deadline passes, or the server is to be asked whether it is there. The alarm is
    /// set for the earliest such moment, and not postponed whenever that no longer matters.
    fn next_alarm(&self) -> Option<Instant> {
        let in_flight = self.in_flight.iter().flatten().map(|batch| batch.next_alarm(&self.config));
        let heartbeat = self.is_unused().then(|| self.heard + HEARTBEAT);
        // Noted under the lock: a request that gets in line afterwards sees whether it is early enough.
        let mut queue = self.shared.queue();
        let far_at = self.sizing.far_at().filter(|_| !queue.is_empty());
        let alarms = in_flight.chain(heartbeat).chain(far_at).chain(queue.next_deadline());
        queue.alarm = alarms.chain(queue.alarm).min();
        queue.alarm
    }
}
