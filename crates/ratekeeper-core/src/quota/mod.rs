//! How much, per how long, how large a burst: an algorithm with its numbers.

mod algorithm;
mod error;
mod share;
mod text;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

pub use algorithm::Algorithm;
pub use error::{ParseQuotaError, QuotaError};
pub use share::{Share, ShareError};
use text::Spelling;

/// One second.
pub const SECOND: Duration = Duration::from_secs(1);
/// One minute.
pub const MINUTE: Duration = Duration::from_secs(60);
/// One hour.
pub const HOUR: Duration = Duration::from_secs(60 * 60);
/// One day.
pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The shortest period.
const MIN_PERIOD: Duration = Duration::from_millis(1);
/// The longest period.
const MAX_PERIOD: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);
/// The longest that a budget may take to fill, in microseconds: some 142 years. Added to the clock, it stays
/// well below 2^53, so that stores which compute in floating point are exact too.
const MAX_FILL: u64 = 1 << 52;

/// A length of time in microseconds and `1/n` parts of a microsecond, where `n` belongs to a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) micros: u64,
    pub(crate) parts: u32,
}

impl PartialOrd for Span {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }

    // Mostly, the microseconds differ. The derived functions compare the parts nevertheless.

    #[inline]
    fn lt(&self, other: &Self) -> bool {
        self.micros < other.micros || self.micros == other.micros && self.parts < other.parts
    }

    #[inline]
    fn gt(&self, other: &Self) -> bool {
        other < self
    }
}

impl Ord for Span {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.micros, self.parts).cmp(&(other.micros, other.parts))
    }
}

/// An algorithm with its numbers.
///
/// `Quota::per_second(10)` is ten each second: a token bucket that holds ten and refills at ten a second.
/// Quotas can be made in a `const`, and from text.
///
/// ```
/// use ratekeeper_core::{MINUTE, Quota};
///
/// const API: Quota = Quota::per_second(10).burst(20);
/// assert_eq!(API, "10/s burst 20".parse()?);
///
/// let login = Quota::sliding_log(5, MINUTE);
/// assert_eq!(login.to_string(), "5/minute sliding-log");
/// # Ok::<(), ratekeeper_core::quota::ParseQuotaError>(())
/// ```
///
/// # Text
///
/// ```text
/// quota  = limit ("/" | " per ") period [" " algorithm] [(" burst " | " capacity ") number]
/// period = [number] unit
/// ```
///
/// Algorithms are `token-bucket`, `fixed-window`, `sliding-window`, `sliding-log` and `leaky-bucket`; units are
/// [`Quota::units`]. Where there is a space there may be several, and also around the text, around `/` and
/// before the unit. Other white space is an error. A quota prints the way it was written, and an invalid one
/// as a text that is not accepted.
///
/// # Invalid numbers
///
/// A quota of zero, a burst on a window and the like do not panic, because quotas may be computed while a
/// request waits. Such a quota admits nothing that costs anything. [`Quota::check`] reports what is wrong
/// with it, and everything that takes a quota as configuration rejects it.
#[derive(Clone, Copy)]
pub struct Quota {
    algorithm: Algorithm,
    spelling: Spelling,
    fault: Option<QuotaError>,
    limit: u32,
    /// Burst or queue length; for windows, the limit. Zero if there is a fault.
    capacity: u32,
    /// Microseconds.
    period: NonZeroU64,

    // The fields below are derived from those above, once, so that a decision needs as few divisions as
    // possible.
    /// Everything that a count depends on: how much the quota holds, the algorithm, and the rate in lowest
    /// terms for buckets or the period for the others.
    identity: [u64; 2],
    // The rate in lowest terms: `rate_units` per `rate_micros`.
    rate_units: NonZeroU32,
    rate_micros: NonZeroU64,
    /// How long one unit takes to come back.
    unit: Span,
    /// How long the whole capacity takes to come back.
    fill: Span,
}

impl Quota {
    /// `limit` per second by token bucket.
    #[must_use]
    pub const fn per_second(limit: u32) -> Self {
        Self::token_bucket(limit, SECOND)
    }

    /// `limit` per minute by token bucket.
    #[must_use]
    pub const fn per_minute(limit: u32) -> Self {
        Self::token_bucket(limit, MINUTE)
    }

    /// `limit` per hour by token bucket.
    #[must_use]
    pub const fn per_hour(limit: u32) -> Self {
        Self::token_bucket(limit, HOUR)
    }

    /// `limit` per day by token bucket.
    #[must_use]
    pub const fn per_day(limit: u32) -> Self {
        Self::token_bucket(limit, DAY)
    }

    /// A bucket that holds `limit` and refills at `limit` per `period`.
    ///
    /// Over any span *d*, at most burst + rate × *d* are admitted. [`burst`](Self::burst) sets a burst other
    /// than `limit`.
    #[must_use]
    pub const fn token_bucket(limit: u32, period: Duration) -> Self {
        Self::new(Algorithm::TokenBucket, limit, period)
    }

    /// At most `limit` in each window of `period`; windows are aligned to the Unix epoch.
    ///
    /// Up to twice the limit can pass around the edge between two windows; that is the price of the simplest
    /// of all counters.
    #[must_use]
    pub const fn fixed_window(limit: u32, period: Duration) -> Self {
        Self::new(Algorithm::FixedWindow, limit, period)
    }

    /// About `limit` in every trailing `period`.
    ///
    /// The previous window counts in proportion to the part of it that the trailing period still covers.
    #[must_use]
    pub const fn sliding_window(limit: u32, period: Duration) -> Self {
        Self::new(Algorithm::SlidingWindow, limit, period)
    }

    /// At most `limit` in every trailing `period`, exactly, for memory in proportion to `limit`.
    #[must_use]
    pub const fn sliding_log(limit: u32, period: Duration) -> Self {
        Self::new(Algorithm::SlidingLog, limit, period)
    }

    /// A queue that lets out `limit` per `period`, evenly spaced, and holds at most `limit`.
    ///
    /// [`capacity`](Self::capacity) sets a capacity other than `limit`. It includes the request that leaves
    /// immediately.
    #[must_use]
    pub const fn leaky_bucket(limit: u32, period: Duration) -> Self {
        Self::new(Algorithm::LeakyBucket, limit, period)
    }

    const fn new(algorithm: Algorithm, limit: u32, period: Duration) -> Self {
        Self::derive(algorithm, limit, period, limit, None, Spelling::of(period))
    }

    /// Sets how much a token bucket holds: how many may come at once after a pause.
    #[must_use]
    pub const fn burst(self, burst: u32) -> Self {
        let fault = match (self.algorithm, burst) {
            (Algorithm::TokenBucket, 0) => Some(QuotaError::ZeroBurst),
            (Algorithm::TokenBucket, _) => None,
            (other, _) => Some(QuotaError::BurstWithout(other)),
        };
        self.with_capacity(burst, fault)
    }

    /// Sets how many a leaky bucket's queue holds, including the one that leaves immediately.
    #[must_use]
    pub const fn capacity(self, capacity: u32) -> Self {
        let fault = match (self.algorithm, capacity) {
            (Algorithm::LeakyBucket, 0) => Some(QuotaError::ZeroCapacity),
            (Algorithm::LeakyBucket, _) => None,
            (other, _) => Some(QuotaError::CapacityWithout(other)),
        };
        self.with_capacity(capacity, fault)
    }

    const fn with_capacity(self, capacity: u32, fault: Option<QuotaError>) -> Self {
        let fault = match self.fault {
            // The previous capacity was too large for the rate. It is replaced, so that is no fault of this
            // quota.
            None | Some(QuotaError::TooSlow) => fault,
            earlier => earlier,
        };
        let period = Duration::from_micros(self.period.get());
        Self::derive(self.algorithm, self.limit, period, capacity, fault, self.spelling.with_capacity())
    }

    const fn derive(
        algorithm: Algorithm,
        limit: u32,
        period: Duration,
        capacity: u32,
        fault: Option<QuotaError>,
        spelling: Spelling,
    ) -> Self {
        let mut fault = match fault {
            Some(fault) => Some(fault),
            None => fault_of(limit, period),
        };
        let period = at_least_one(crate::time::micros_ceil(period));

        let shared = gcd(limit as u64, period.get());
        let rate_units = (limit as u64 / shared) as u32;
        let rate_units = match NonZeroU32::new(rate_units) {
            Some(units) => units,
            None => NonZeroU32::MIN,
        };
        let rate_micros = at_least_one(period.get() / shared);
        let unit = Span {
            micros: rate_micros.get() / rate_units.get() as u64,
            parts: (rate_micros.get() % rate_units.get() as u64) as u32,
        };
        let fill_parts = capacity as u128 * rate_micros.get() as u128;
        if fault.is_none() && fill_parts / rate_units.get() as u128 > MAX_FILL as u128 {
            fault = Some(QuotaError::TooSlow);
        }
        let (capacity, fill) = if fault.is_some() {
            (0, Span { micros: 0, parts: 0 })
        } else {
            let micros = (fill_parts / rate_units.get() as u128) as u64;
            (capacity, Span { micros, parts: (fill_parts % rate_units.get() as u128) as u32 })
        };
        Self {
            algorithm,
            spelling,
            fault,
            limit,
            capacity,
            period,
            identity: match algorithm {
                Algorithm::TokenBucket | Algorithm::LeakyBucket => [
                    (rate_units.get() as u64) << 32 | capacity as u64,
                    rate_micros.get() << 3 | algorithm as u64,
                ],
                Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::SlidingLog => {
                    [capacity as u64, period.get() << 3 | algorithm as u64]
                }
            },
            rate_units,
            rate_micros,
            unit,
            fill,
        }
    }

    /// Checks whether the numbers are valid.
    ///
    /// # Errors
    ///
    /// Reports what is wrong. A quota with an error admits nothing that costs anything.
    pub const fn check(&self) -> Result<(), QuotaError> {
        match self.fault {
            None => Ok(()),
            Some(fault) => Err(fault),
        }
    }

    /// How requests are counted.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// How many per [`period`](Self::period).
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// The period that [`limit`](Self::limit) applies to.
    #[must_use]
    pub const fn period(&self) -> Duration {
        Duration::from_micros(self.period.get())
    }

    /// The most that can be available at once: a token bucket's burst, a leaky bucket's queue, a window's
    /// limit. Zero if [`check`](Self::check) finds a fault.
    #[must_use]
    pub const fn max(&self) -> u32 {
        self.capacity
    }

    /// How long a spent budget takes at most to be full again, rounded up to a microsecond.
    #[must_use]
    pub const fn full_refill(&self) -> Duration {
        Duration::from_micros(match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                self.fill.micros + (self.fill.parts > 0) as u64
            }
            Algorithm::FixedWindow | Algorithm::SlidingLog => self.period.get(),
            Algorithm::SlidingWindow => self.period.get().saturating_mul(2),
        })
    }

    /// The rate in lowest terms: how many units come back in how many microseconds.
    ///
    /// ```
    /// # use ratekeeper_core::Quota;
    /// assert_eq!(Quota::per_minute(100).rate(), (1, 600_000));
    /// assert_eq!(Quota::per_second(30).rate(), (3, 100_000));
    /// ```
    #[must_use]
    pub const fn rate(&self) -> (u32, u64) {
        (self.rate_units.get(), self.rate_micros.get())
    }

    /// How long `cost` units take to come back at the quota's rate.
    ///
    /// In microseconds and parts of a microsecond. As many parts make a microsecond as the [rate](Self::rate)
    /// has units. A cost above [`max`](Self::max) takes as long as `max`.
    #[must_use]
    pub const fn time_of(&self, cost: u32) -> (u64, u32) {
        let Span { micros, parts } = self.span(if cost < self.capacity { cost } else { self.capacity });
        (micros, parts)
    }

    /// The same for units that are taken [whether or not they fit](crate::Store::debit).
    ///
    /// Never more than the longest debt takes to be paid off, which is two full refills, or 142 years if
    /// those take longer.
    #[must_use]
    pub fn time_of_debit(&self, cost: u32) -> (u64, u32) {
        let Span { micros, parts } = self.span_of_any(cost).min(self.longest_debt());
        (micros, parts)
    }

    const fn meaning(&self) -> (Algorithm, u32, u32, NonZeroU64) {
        (self.algorithm, self.limit, self.capacity, self.period)
    }

    #[inline]
    pub(crate) const fn identity(&self) -> &[u64; 2] {
        &self.identity
    }

    /// Whether a count under one of the quotas is a count under the other: the algorithm, the rate (for
    /// windows and logs the period) and what they hold are the same.
    #[inline]
    pub(crate) fn counts_like(&self, other: &Self) -> bool {
        self.identity == other.identity
    }

    #[inline]
    pub(crate) const fn is_bucket(&self) -> bool {
        matches!(self.algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket)
    }

    /// Whether the quotas differ at most in what they hold.
    pub(crate) const fn has_rate_of(&self, other: &Self) -> bool {
        let ([a, b], [c, d]) = (self.identity, other.identity);
        a >> 32 == c >> 32 && b == d
    }

    pub(crate) const fn period_micros(&self) -> u64 {
        self.period.get()
    }

    pub(crate) const fn rate_units(&self) -> u32 {
        self.rate_units.get()
    }

    pub(crate) const fn rate_units_nonzero(&self) -> NonZeroU32 {
        self.rate_units
    }

    pub(crate) const fn rate_micros(&self) -> NonZeroU64 {
        self.rate_micros
    }

    pub(crate) const fn fill(&self) -> Span {
        self.fill
    }

    /// How long `cost` units take to come back. `cost` must not be above the capacity, which bounds the
    /// result by [`MAX_FILL`].
    pub(crate) const fn span(&self, cost: u32) -> Span {
        if cost == 1 {
            return self.unit;
        }
        let parts = cost as u64 * self.unit.parts as u64;
        let units = self.rate_units.get() as u64;
        Span { micros: cost as u64 * self.unit.micros + parts / units, parts: (parts % units) as u32 }
    }

    /// How long `cost` units take to come back, whether or not they fit.
    pub(crate) fn span_of_any(&self, cost: u32) -> Span {
        let parts = u128::from(cost) * u128::from(self.rate_micros.get());
        let units = u128::from(self.rate_units.get());
        // Cut to a length to which others can be added.
        let micros = (parts / units).min(u128::from(2 * MAX_FILL)) as u64;
        Span { micros, parts: (parts % units) as u32 }
    }

    /// How long a budget that owes takes at most to be full. It owes no more than it holds, so no key is
    /// locked for longer than two full refills.
    pub(crate) fn longest_debt(&self) -> Span {
        let parts = 2 * u64::from(self.fill.parts);
        let units = u64::from(self.rate_units.get());
        let twice = Span { micros: 2 * self.fill.micros + parts / units, parts: (parts % units) as u32 };
        twice.min(Span { micros: MAX_FILL, parts: 0 }).max(self.fill)
    }

    /// How long a budget that owes, or from which tokens are reserved, takes at most to be full.
    pub(crate) fn longest_wait(&self) -> Span {
        let reserved = self.fill.micros + crate::Charge::MAX_WAIT.as_micros() as u64;
        self.longest_debt().max(Span { micros: reserved, parts: self.fill.parts })
    }
}

const fn fault_of(limit: u32, period: Duration) -> Option<QuotaError> {
    let nanos = period.as_nanos();
    if limit == 0 {
        Some(QuotaError::ZeroLimit)
    } else if nanos < MIN_PERIOD.as_nanos() {
        Some(QuotaError::PeriodTooShort)
    } else if nanos > MAX_PERIOD.as_nanos() {
        Some(QuotaError::PeriodTooLong)
    } else if !nanos.is_multiple_of(1_000) {
        Some(QuotaError::PeriodTooFine)
    } else {
        None
    }
}

const fn at_least_one(n: u64) -> NonZeroU64 {
    match NonZeroU64::new(n) {
        Some(n) => n,
        None => NonZeroU64::MIN,
    }
}

pub(crate) const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    if a == 0 { 1 } else { a }
}

impl PartialEq for Quota {
    /// Quotas are equal if they mean the same, however they were written.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.meaning() == other.meaning()
    }
}

impl Eq for Quota {}

impl Hash for Quota {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.meaning().hash(state);
    }
}

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quota({self})")?;
        self.fault.map_or(Ok(()), |fault| write!(f, " /* {fault} */"))
    }
}

#[cfg(test)]
mod tests;
