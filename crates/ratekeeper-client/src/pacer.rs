//! The state that layers and middleware share: options, and one queue for each budget.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, Method, Uri, header};
use ratekeeper_core::{Quota, QuotaError};

use crate::queue::Queue;
use crate::quota::KnownQuota;
use crate::retry::{Retries, RetryBudget};

/// The longest wait that can be configured: a year.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

type KeyFn = dyn Fn(&Target<'_>) -> String + Send + Sync;

/// Paces the requests to any number of servers.
///
/// Clones share their budgets. Use one pacer for all clients of a server in a process.
///
/// ```
/// use std::time::Duration;
/// use ratekeeper_client::{Pacer, Retries};
///
/// let pacer = Pacer::builder()
///     .max_wait(Duration::from_secs(10))
///     .retries(Retries::new().max_retries(2))
///     .build();
/// ```
#[derive(Clone, Debug)]
pub struct Pacer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: Options,
    retry_budget: RetryBudget,
    queues: Mutex<HashMap<Box<str>, Arc<Queue>>>,
}

pub(crate) struct Options {
    pub(crate) max_wait: Duration,
    pub(crate) max_pause: Duration,
    pub(crate) max_waiting: usize,
    pub(crate) retries: Retries,
    pub(crate) quota: Option<KnownQuota>,
    max_budgets: usize,
    key: Option<Box<KeyFn>>,
}

/// Builds a [`Pacer`].
#[derive(Debug)]
#[must_use]
pub struct PacerBuilder {
    options: Options,
}

/// What identifies the budget of a request.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Target<'a> {
    /// The method.
    pub method: &'a Method,
    /// The address.
    pub uri: &'a Uri,
    /// The header fields.
    pub headers: &'a HeaderMap,
}

impl<'a> Target<'a> {
    pub(crate) const fn new(method: &'a Method, uri: &'a Uri, headers: &'a HeaderMap) -> Self {
        Self { method, uri, headers }
    }

    /// The host and port, from the address or else from the `Host` field. Empty if neither has it.
    #[must_use]
    pub fn host(&self) -> &'a str {
        match self.uri.authority() {
            Some(authority) => authority.as_str(),
            None => self.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default(),
        }
    }
}

impl Pacer {
    /// A pacer with the default options: a budget for each host.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Options for a pacer.
    pub fn builder() -> PacerBuilder {
        PacerBuilder {
            options: Options {
                max_wait: Duration::from_secs(60),
                max_pause: Duration::from_secs(300),
                max_waiting: 1_024,
                retries: Retries::new(),
                quota: None,
                max_budgets: 1_024,
                key: None,
            },
        }
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }

    pub(crate) fn retry_budget(&self) -> &RetryBudget {
        &self.0.retry_budget
    }

    /// The queue of a request's budget.
    pub(crate) fn queue(&self, target: &Target<'_>) -> Arc<Queue> {
        match &self.0.options.key {
            Some(key) => self.queue_of(&key(target)),
            None => self.queue_of(target.host()),
        }
    }

    fn queue_of(&self, key: &str) -> Arc<Queue> {
        let mut queues = self.0.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(key) {
            return Arc::clone(queue);
        }
        if queues.len() >= self.0.options.max_budgets {
            queues.retain(|_, queue| Arc::strong_count(queue) > 1 || !queue.is_idle());
        }
        let queue = Queue::new(key);
        // If all are in use, the new one is forgotten after this request.
        if queues.len() < self.0.options.max_budgets {
            queues.insert(key.into(), Arc::clone(&queue));
        }
        queue
    }
}

impl Default for Pacer {
    fn default() -> Self {
        Self::new()
    }
}

impl PacerBuilder {
    /// How long a request waits at most, in all: for its turn, for the end of pauses, and before retries. A
    /// request that would have to wait longer fails immediately. A minute by default.
    pub const fn max_wait(mut self, max: Duration) -> Self {
        self.options.max_wait = max;
        self
    }

    /// The longest wait that is believed. Whatever a server asks for, it is not obeyed for longer than this.
    /// Five minutes by default.
    pub const fn max_pause(mut self, max: Duration) -> Self {
        self.options.max_pause = max;
        self
    }

    /// How many requests wait for one budget at most. Others fail immediately. 1,024 by default.
    pub const fn max_waiting(mut self, max: usize) -> Self {
        self.options.max_waiting = max;
        self
    }

    /// How many budgets are remembered. 1,024 by default.
    pub const fn max_budgets(mut self, max: usize) -> Self {
        self.options.max_budgets = max;
        self
    }

    /// Which refused requests are sent again.
    pub fn retries(mut self, retries: Retries) -> Self {
        self.options.retries = retries;
        self
    }

    /// Tells budgets apart. By default, there is one for each host and port.
    ///
    /// ```
    /// use ratekeeper_client::Pacer;
    ///
    /// // One budget for searches, another for everything else.
    /// let pacer = Pacer::builder().key(|target| {
    ///     let class = if target.uri.path().starts_with("/search") { "search" } else { "core" };
    ///     format!("{} {class}", target.host())
    /// });
    /// ```
    pub fn key(mut self, key: impl Fn(&Target<'_>) -> String + Send + Sync + 'static) -> Self {
        self.options.key = Some(Box::new(key));
        self
    }

    /// Starts from a quota that is known in advance, for each budget. Requests keep to it from the first one
    /// on, and to what the server says in addition.
    ///
    /// Use it for a server that does not describe its limits, or to stay below them.
    ///
    /// # Errors
    ///
    /// If the quota is invalid.
    pub fn quota(mut self, quota: Quota) -> Result<Self, QuotaError> {
        quota.check()?;
        self.options.quota = Some(KnownQuota::new(quota));
        Ok(self)
    }

    /// Shares a known [quota](Self::quota) with other processes, through a store such as `RedisStore`. They also
    /// share pauses: when one of them is told to wait, all of them do, for up to five minutes.
    ///
    /// If the store fails for longer than a second, each process keeps to the quota by itself until it works
    /// again. A client has time, so give the store a longer timeout than a server would: half a second, say.
    ///
    /// # Errors
    ///
    /// If the quota is invalid.
    #[cfg(feature = "fleet")]
    pub fn shared_quota(
        mut self,
        quota: Quota,
        store: impl ratekeeper_core::Store,
    ) -> Result<Self, QuotaError> {
        quota.check()?;
        self.options.quota = Some(KnownQuota::shared(quota, Arc::new(store)));
        Ok(self)
    }

    /// The pacer.
    #[must_use]
    pub fn build(self) -> Pacer {
        let mut options = self.options;
        // The time can be added to these.
        options.max_wait = options.max_wait.min(LONGEST);
        options.max_pause = options.max_pause.min(LONGEST);
        let retry_budget = RetryBudget::new(&options.retries);
        Pacer(Arc::new(Shared { options, retry_budget, queues: Mutex::default() }))
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("max_wait", &self.max_wait)
            .field("max_pause", &self.max_pause)
            .field("max_waiting", &self.max_waiting)
            .field("max_budgets", &self.max_budgets)
            .field("retries", &self.retries)
            .finish_non_exhaustive()
    }
}
