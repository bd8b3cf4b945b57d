//! Which refused requests are sent again, and how often.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Method;

/// A retry, in the units of a [`RetryBudget`].
const RETRY: u64 = 1_000;

/// Which refused requests are sent again.
///
/// A request is sent again if the server refused it (429, 503, or the like), if its method is idempotent, if
/// its body can be copied, and if the retry budget allows it. The wait is the server's, or else a backoff
/// with full jitter.
///
/// ```
/// use std::time::Duration;
/// use ratekeeper_client::Retries;
///
/// let retries = Retries::new().max_retries(2).budget(20, 0.1).backoff(Duration::from_millis(50), Duration::from_secs(5));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Retries {
    pub(crate) max_retries: u32,
    pub(crate) all_methods: bool,
    pub(crate) capacity: u32,
    pub(crate) share: f64,
    pub(crate) base: Duration,
    pub(crate) max: Duration,
}

impl Retries {
    /// Up to three retries of a request, and a budget of 100 retries that gets a fifth of a retry back with each
    /// success.
    pub const fn new() -> Self {
        Self {
            max_retries: 3,
            all_methods: false,
            capacity: 100,
            share: 0.2,
            base: Duration::from_millis(100),
            max: Duration::from_secs(20),
        }
    }

    /// No retries.
    pub const fn none() -> Self {
        Self::new().max_retries(0)
    }

    /// How often one request is sent again at most.
    pub const fn max_retries(mut self, max: u32) -> Self {
        self.max_retries = max;
        self
    }

    /// Whether to send requests of any method again. By default, only those of idempotent methods are.
    ///
    /// A server that answers 429 has not processed the request. One that answers 503 may have.
    pub const fn all_methods(mut self, on: bool) -> Self {
        self.all_methods = on;
        self
    }

    /// A budget of `capacity` retries, shared by all requests. Each success gives back a `share` of a retry.
    ///
    /// So a server that refuses nearly everything gets few retries, whatever the number of callers.
    pub const fn budget(mut self, capacity: u32, share: f64) -> Self {
        self.capacity = capacity;
        self.share = share;
        self
    }

    /// The backoff if the server does not say how long to wait: a random time below `base`, doubled with each
    /// retry, and at most `max`.
    pub const fn backoff(mut self, base: Duration, max: Duration) -> Self {
        self.base = base;
        self.max = max;
        self
    }

    pub(crate) fn allows(&self, method: &Method) -> bool {
        self.max_retries > 0 && (self.all_methods || method.is_idempotent())
    }

    /// The wait before retry number `retry`, which counts from zero.
    pub(crate) fn backoff_before(&self, retry: u32, random: f64) -> Duration {
        let ceiling = self.base.saturating_mul(1_u32.checked_shl(retry).unwrap_or(u32::MAX)).min(self.max);
        ceiling.mul_f64(random)
    }
}

impl Default for Retries {
    fn default() -> Self {
        Self::new()
    }
}

/// How many retries may still be made.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    tokens: AtomicU64,
    max: u64,
    refill: u64,
}

impl RetryBudget {
    pub(crate) fn new(retries: &Retries) -> Self {
        let max = u64::from(retries.capacity) * RETRY;
        let refill = (retries.share.clamp(0.0, 1.0) * RETRY as f64) as u64;
        Self { tokens: AtomicU64::new(max), max, refill }
    }

    pub(crate) fn succeeded(&self) {
        let refill = |tokens: u64| (tokens < self.max).then(|| (tokens + self.refill).min(self.max));
        // An error means that the budget is full.
        let _ = self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, refill);
    }

    /// Takes one retry, if there is one.
    pub(crate) fn withdraw(&self) -> bool {
        let take = |tokens: u64| tokens.checked_sub(RETRY);
        self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_idempotent_methods_are_repeated_by_default() {
        let retries = Retries::new();
        assert!(retries.allows(&Method::GET) && retries.allows(&Method::PUT));
        assert!(!retries.allows(&Method::POST) && !retries.allows(&Method::PATCH));
        assert!(Retries::new().all_methods(true).allows(&Method::POST));
        assert!(!Retries::none().allows(&Method::GET));
    }

    #[test]
    fn the_budget_gets_a_share_of_each_success_back() {
        let budget = RetryBudget::new(&Retries::new().budget(2, 0.25));
        assert!(budget.withdraw() && budget.withdraw() && !budget.withdraw());
        (0..3).for_each(|_| budget.succeeded());
        assert!(!budget.withdraw());
        budget.succeeded();
        assert!(budget.withdraw() && !budget.withdraw());
        (0..100).for_each(|_| budget.succeeded());
        assert!(budget.withdraw() && budget.withdraw() && !budget.withdraw(), "never above its capacity");
    }

    #[test]
    fn the_backoff_doubles_up_to_its_maximum_and_is_anything_below() {
        let retries = Retries::new().backoff(Duration::from_millis(100), Duration::from_secs(1));
        let ceilings = [0, 1, 2, 3, 4, 40].map(|retry| retries.backoff_before(retry, 1.0).as_millis());
        assert_eq!(ceilings, [100, 200, 400, 800, 1_000, 1_000]);
        assert_eq!(retries.backoff_before(3, 0.0), Duration::ZERO);
    }
}
