//! A handle to the connection to one server.
//!
//! A dedicated task holds the connection. It sends what waits in batches, and reads the replies. An idle
//! server is asked now and then whether it is there.
//!
//! When Redis fails, the task opens the breaker, which rejects new requests, fails all that wait, and tries
//! with growing pauses to get the server back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ratekeeper_core::StoreError;
use redis::RedisError;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::breaker::Breaker;
use super::connect::{Address, Target};
use super::probe::Tags;
use super::worker::Worker;
use crate::batch::queue::Queue;
use crate::config::Config;
use crate::denial_cache::DenialCache;
use crate::error::unavailable;
use crate::request::Ask;

/// A handle to the connection to one server.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
}

/// What a connection's handles share with its task.
#[derive(Debug)]
pub(super) struct Shared {
    queue: Mutex<Queue>,
    pub(super) wake: Notify,
    /// Makes the task set its alarm again, even while it can send nothing.
    pub(super) hurry: Notify,
    /// Makes the task try a failed server before its pause is over.
    pub(super) retry: Notify,
    /// Makes the task leave its server.
    pub(super) leave: Notify,
    /// The server, if sentinels said which one it is.
    pub(super) server: Mutex<Option<Address>>,
    pub(super) breaker: Breaker,
    max_waiting: usize,
}

/// What to do with something that belongs to another server according to this error; or, without an error,
/// with a settlement that was kept here and will not be made here.
pub(crate) type Redirect = Arc<dyn Fn(Ask, Option<&RedisError>) + Send + Sync>;

impl Connection {
    /// Starts the task that serves a server. `redirect` and `probed` are for nodes of a cluster.
    pub(crate) fn start(
        target: Target,
        config: &Config,
        denied: Arc<DenialCache>,
        redirect: Option<Redirect>,
        probed: Option<Tags>,
    ) -> Self {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Notify::new(),
            hurry: Notify::new(),
            retry: Notify::new(),
            leave: Notify::new(),
            server: Mutex::default(),
            breaker: Breaker::new(),
            max_waiting: config.max_waiting,
        });
        let connection = Self { shared: Arc::clone(&shared) };
        let mut followers = JoinSet::new();
        if let Target::Sentinel(sentinels) = &target {
            followers.spawn(sentinels.clone().follow(connection.clone(), config.connect_timeout));
        }
        let worker = Worker::new(shared, target, config, denied, redirect, probed);
        tokio::spawn(async move {
            worker.run().await;
            drop(followers);
        });
        connection
    }

    /// Puts something in line. It always gets an answer.
    pub(crate) fn put(&self, ask: Ask) {
        if ask.settlement().is_some() {
            return self.keep(ask);
        }
        let mut queue = self.shared.queue();
        // Checked under the lock: whoever opens the breaker takes the lock afterwards to let go of those that
        // wait, so nothing gets in line unnoticed after that.
        let refused = self.refuses().or_else(|| {
            (queue.len() >= self.shared.max_waiting).then(|| unavailable("too many requests wait for Redis"))
        });
        if let Some(error) = refused {
            drop(queue);
            return ask.fail(&error);
        }
        // Usually the last to arrive is the last to stop waiting. But one that another server sent here has
        // waited before.
        let hurried = queue.is_before_alarm(ask.deadline);
        queue.push_back(ask);
        let enough = queue.len() >= queue.wake_at;
        drop(queue);
        if enough {
            self.shared.wake.notify_one();
        } else if hurried {
            self.shared.hurry.notify_one();
        }
    }

    /// Puts a settlement in line, even while the server fails. It is then made when the server works again,
    /// and a caller that waits for it is told immediately that the server fails. If too many wait, it is not
    /// made.
    fn keep(&self, mut ask: Ask) {
        let mut queue = self.shared.queue();
        let refused = if queue.ended {
            Some(unavailable("the store has ended"))
        } else if queue.unsettled() >= self.shared.max_waiting {
            Some(unavailable("too many refunds and debits wait for Redis"))
        } else {
            None
        };
        if let Some(error) = refused {
            drop(queue);
            return ask.fail(&error);
        }
        if let Some(error) = self.refuses() {
            ask.expire(&error);
        }
        queue.push_back(ask);
        let wake = queue.wake_to_settle;
        drop(queue);
        if wake {
            self.shared.wake.notify_one();
        }
    }

    /// The error to answer with instead of asking.
    pub(crate) fn refuses(&self) -> Option<StoreError> {
        if self.shared.breaker.is_open() { self.shared.breaker.error() } else { None }
    }

    pub(crate) fn breaker(&self) -> &Breaker {
        &self.shared.breaker
    }

    /// Has a failed server tried immediately, since something has changed.
    pub(crate) fn retry(&self) {
        if self.shared.breaker.is_open() {
            self.shared.retry.notify_one();
        }
    }

    /// Leaves the server unless it is this one: the sentinels have replaced it.
    pub(super) fn leave_unless_at(&self, master: &Address) {
        let server = self.shared.server.lock().unwrap_or_else(PoisonError::into_inner);
        if server.as_ref().is_some_and(|server| server != master) {
            self.shared.leave.notify_one();
        }
    }

    /// Lets the task end once everything that waits is answered.
    pub(crate) fn close(&self) {
        self.shared.queue().closed = true;
        self.shared.wake.notify_one();
    }
}

impl Shared {
    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing done under the lock panics half-way.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the server is no longer needed.
    pub(super) async fn closed(&self) {
        while !self.queue().closed {
            self.wake.notified().await;
        }
    }
}
