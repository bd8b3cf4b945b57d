use ratekeeper_core::{Algorithm, Quota, Timestamp};

/// Everything that was admitted to one key under two or more quotas that were in use at once, and what
/// follows from it.
///
/// It is computed from what the quotas mean, without the state of any store.
///
/// ```
/// use ratekeeper_contract::Ledger;
/// use ratekeeper_core::{MINUTE, Quota, Timestamp};
///
/// let (free, pro) = (Quota::per_minute(10), Quota::sliding_log(100, MINUTE));
/// let now = Timestamp::from_secs(1_700_000_040);
/// let mut ledger = Ledger::new([free, pro]);
/// ledger.admit(50, now);
/// assert!(!ledger.would_admit(&free, 1, now));
/// assert!(ledger.would_admit(&pro, 50, now));
/// ledger.assert_within_the_looser();
/// ```
#[derive(Clone, Debug)]
pub struct Ledger {
    quotas: Vec<Quota>,
    /// Microseconds and costs, oldest first.
    admitted: Vec<(u64, u64)>,
}

impl Ledger {
    /// A ledger for a key to which nothing was admitted yet.
    #[must_use]
    pub fn new(quotas: impl IntoIterator<Item = Quota>) -> Self {
        Self { quotas: quotas.into_iter().collect(), admitted: Vec::new() }
    }

    /// Records what was admitted, in any order.
    pub fn admit(&mut self, cost: u32, at: Timestamp) {
        let place = self.admitted.partition_point(|(earlier, _)| *earlier <= at.as_micros());
        self.admitted.insert(place, (at.as_micros(), cost.into()));
    }

    /// How much was admitted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.admitted.iter().map(|(_, cost)| cost).sum()
    }

    /// Whether a quota on its own would admit `cost`, if everything admitted until then is counted under it.
    #[must_use]
    pub fn would_admit(&self, quota: &Quota, cost: u32, at: Timestamp) -> bool {
        let (now, period) = (at.as_micros(), quota.period().as_micros() as u64);
        let since = |start: u64| self.between(start, now + 1);
        let (cost, max) = (u128::from(cost), u128::from(quota.max()));
        match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                let used = self.used(u128::from(quota.limit()), u128::from(period), now);
                used + cost * u128::from(period) <= max * u128::from(period)
            }
            Algorithm::FixedWindow => since(now - now % period) + cost <= max,
            Algorithm::SlidingLog => since(now - period + 1) + cost <= max,
            Algorithm::SlidingWindow => {
                let start = now - now % period;
                let left = u128::from(start + period - now);
                let before = self.between(start - period, start);
                before * left + (since(start) + cost) * u128::from(period) <= max * u128::from(period)
            }
            other => unreachable!("no case has a quota of {other:?}"),
        }
    }

    /// Checks that in no span more was admitted than the loosest of the quotas allows.
    ///
    /// That is what the largest of them holds, plus what comes back in that span under the fastest. A fixed
    /// window admits its limit once more around an edge, so that is allowed here, too. With more than two
    /// quotas, a fixed window is allowed its limit twice more. A sliding window is then allowed its limit
    /// once more, because it is no longer known to the fraction when another takes its place.
    ///
    /// # Panics
    ///
    /// If more was admitted; the message says how much, and when.
    pub fn assert_within_the_looser(&self) {
        let most = self.quotas.iter().map(|quota| u128::from(quota.max())).max().unwrap_or(0) + self.edges();
        let rates = self.quotas.iter().map(|quota| (u128::from(quota.limit()), quota.period().as_micros()));
        let faster =
            |(a, p): (u128, u128), (b, q): (u128, u128)| if a * q >= b * p { (a, p) } else { (b, q) };
        let Some((limit, period)) = rates.reduce(faster) else { return };
        for (used, at) in self.levels(limit, period) {
            assert!(
                used <= most * period,
                "{:?}: {} beyond {most} by {}",
                self.quotas,
                (used - most * period) as f64 / period as f64,
                Timestamp::from_micros(at)
            );
        }
        self.assert_within_the_larger_limit();
    }

    /// What windows may admit once more. Windows with the same edges admit it there together.
    fn edges(&self) -> u128 {
        let mut edges: Vec<(Algorithm, u128, u128)> = Vec::new();
        for quota in &self.quotas {
            let has_edge = match quota.algorithm() {
                Algorithm::FixedWindow => true,
                Algorithm::SlidingWindow => self.quotas.len() > 2,
                _ => false,
            };
            let (algorithm, period) = (quota.algorithm(), quota.period().as_micros());
            // With several quotas, it is unknown what a fixed window admitted before the edge at which
            // another came.
            let times =
                if self.quotas.len() > 2 && quota.algorithm() == Algorithm::FixedWindow { 2 } else { 1 };
            let max = times * u128::from(quota.max());
            match edges.iter_mut().find(|(other, its, _)| (*other, *its) == (algorithm, period)) {
                Some((_, _, edge)) => *edge = max.max(*edge),
                None if has_edge => edges.push((algorithm, period, max)),
                None => {}
            }
        }
        edges.iter().map(|(_, _, edge)| edge).sum()
    }

    /// Windows of the same algorithm and period differ only in their limits.
    fn assert_within_the_larger_limit(&self) {
        let [one, other] = self.quotas[..] else { return };
        if one.algorithm() != other.algorithm() || one.period() != other.period() {
            return;
        }
        let (period, larger) = (one.period().as_micros() as u64, one.max().max(other.max()).into());
        for (at, _) in &self.admitted {
            let start = match one.algorithm() {
                Algorithm::FixedWindow => at - at % period,
                Algorithm::SlidingLog => at - period + 1,
                _ => return,
            };
            assert!(self.between(start, at + 1) <= larger, "{one} and {other}");
        }
    }

    /// What was admitted from one microsecond on, and before another.
    fn between(&self, from: u64, to: u64) -> u128 {
        let within = self.admitted.iter().filter(|(at, _)| (from..to).contains(at));
        within.map(|(_, cost)| u128::from(*cost)).sum()
    }

    /// How much of a budget to which `limit` come back in `period` is used after each admission, times the
    /// period.
    fn levels(&self, limit: u128, period: u128) -> impl Iterator<Item = (u128, u64)> {
        let (mut used, mut last) = (0_u128, 0);
        self.admitted.iter().map(move |(at, cost)| {
            used = used.saturating_sub(u128::from(at - last) * limit) + u128::from(*cost) * period;
            last = *at;
            (used, last)
        })
    }

    /// The same, as of now.
    fn used(&self, limit: u128, period: u128, now: u64) -> u128 {
        let last = self.levels(limit, period).take_while(|(_, at)| *at <= now).last();
        last.map_or(0, |(used, at)| used.saturating_sub(u128::from(now - at) * limit))
    }
}
