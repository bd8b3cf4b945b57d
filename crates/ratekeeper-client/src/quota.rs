//! A quota that the client knows in advance, and keeps to whatever the server says.
//!
//! It is charged to a store before a request is sent: to the process's memory, or to a store that a fleet
//! shares. If the shared store keeps failing, each process keeps to the quota by itself.

#[cfg(feature = "fleet")]
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ratekeeper_core::{Charge, Decision, MemoryStore, Quota, Retry, RuleName};
#[cfg(feature = "fleet")]
use ratekeeper_core::{Store, StoreError};
#[cfg(feature = "fleet")]
use tokio::time::Instant;

#[cfg(feature = "fleet")]
use crate::pause::SharedPause;

/// How long a failing store is asked again before each process goes on by itself. A connection may have to be
/// made first.
#[cfg(feature = "fleet")]
const STORE_PATIENCE: Duration = Duration::from_secs(1);
/// How long to wait before a failing store is asked again.
#[cfg(feature = "fleet")]
const STORE_RETRY: Duration = Duration::from_millis(20);
/// Denied because the cost never fits: an invalid quota, which the builder refuses.
const NEVER: Duration = Duration::from_secs(86_400);

pub(crate) struct KnownQuota {
    rule: RuleName,
    quota: Quota,
    local: MemoryStore,
    #[cfg(feature = "fleet")]
    shared: Option<Shared>,
}

#[cfg(feature = "fleet")]
struct Shared {
    store: Arc<dyn Store>,
    pause: SharedPause,
    failing_since: Mutex<Option<Instant>>,
}

/// Why a request has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The quota is used up for this long.
    Quota(Duration),
    /// Another process was told to pause, and this long is left.
    #[cfg(feature = "fleet")]
    Pause(Duration),
}

impl KnownQuota {
    pub(crate) fn new(quota: Quota) -> Self {
        Self {
            rule: rule("client-quota"),
            quota,
            local: MemoryStore::builder().max_keys(10_000).build(),
            #[cfg(feature = "fleet")]
            shared: None,
        }
    }

    #[cfg(feature = "fleet")]
    pub(crate) fn shared(quota: Quota, store: Arc<dyn Store>) -> Self {
        let shared = Shared { store, pause: SharedPause::new(), failing_since: Mutex::default() };
        Self { shared: Some(shared), ..Self::new(quota) }
    }

    /// Takes one request from the budget `key`, or says how long to wait.
    pub(crate) async fn charge(&self, key: &str) -> Result<(), Wait> {
        let quota = Charge::new(self.rule, key, &self.quota);
        #[cfg(feature = "fleet")]
        if let Some(shared) = &self.shared {
            match shared.charge(quota).await {
                Ok(decided) => return decided,
                Err(error) => {
                    crate::observe::store_failed(&error);
                    if shared.is_failing_briefly() {
                        return Err(Wait::Quota(STORE_RETRY));
                    }
                }
            }
        }
        check(&self.local.decide(&[quota]))
    }

    /// Stops every process that shares the store.
    #[cfg(feature = "fleet")]
    pub(crate) async fn pause(&self, key: &str, wait: Duration) {
        if let Some(shared) = &self.shared
            && let Err(error) = shared.pause.start(&*shared.store, key, wait).await
        {
            crate::observe::store_failed(&error);
        }
    }
}

#[cfg(feature = "fleet")]
impl Shared {
    /// Makes a charge unless there is a pause. One call: a request that has to wait is not charged.
    async fn charge(&self, quota: Charge<'_>) -> Result<Result<(), Wait>, StoreError> {
        let answer = self.store.charge(&[quota, self.pause.charge(quota.key)]);
        let decision = answer.await?;
        *self.failing_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(self.pause.check(&decision).map_err(Wait::Pause).and_then(|()| check(&decision)))
    }

    /// Notes a failure. Returns whether the store may work again soon.
    fn is_failing_briefly(&self) -> bool {
        let mut since = self.failing_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.get_or_insert_with(Instant::now).elapsed() < STORE_PATIENCE
    }
}

fn check(decision: &Decision) -> Result<(), Wait> {
    match decision.retry() {
        None => Ok(()),
        Some(Retry::After(wait)) => Err(Wait::Quota(wait)),
        Some(Retry::Never) => Err(Wait::Quota(NEVER)),
    }
}

/// The name of a counter.
pub(crate) fn rule(name: &'static str) -> RuleName {
    match RuleName::new(name) {
        Ok(rule) => rule,
        Err(error) => unreachable!("{name}: {error}"),
    }
}
