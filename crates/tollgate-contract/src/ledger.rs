use tollgate_core::{Algorithm, Quota, Timestamp};

/// All that was admitted to one key under two quotas that were in use at once, and what follows from it: reckoned from
/// what the quotas mean, without the state of any store.
///
/// ```
/// use tollgate_contract::Ledger;
/// use tollgate_core::{MINUTE, Quota, Timestamp};
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
    quotas: [Quota; 2],
    /// Microseconds and costs, oldest first.
    admitted: Vec<(u64, u64)>,
}

impl Ledger {
    /// A ledger of a key to which nothing was admitted yet.
    #[must_use]
    pub const fn new(quotas: [Quota; 2]) -> Self {
        Self { quotas, admitted: Vec::new() }
    }

    /// Enters what was admitted, in whatever order.
    pub fn admit(&mut self, cost: u32, at: Timestamp) {
        let place = self.admitted.partition_point(|(earlier, _)| *earlier <= at.as_micros());
        self.admitted.insert(place, (at.as_micros(), cost.into()));
    }

    /// How much was admitted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.admitted.iter().map(|(_, cost)| cost).sum()
    }

    /// Whether a quota by itself would admit `cost`, if all that was admitted until then is counted under it.
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

    /// Checks that in no span more was admitted than the looser of the two quotas allows: what the one of them holds
    /// that holds more, and what comes back by then under the one that is faster. A fixed window passes its limit once
    /// more around an edge, and so it does here.
    ///
    /// # Panics
    ///
    /// When more was admitted; the message says how much, and when.
    pub fn assert_within_the_looser(&self) {
        let [one, other] = self.quotas;
        let around_an_edge = |quota: &Quota| match quota.algorithm() {
            Algorithm::FixedWindow => u128::from(quota.max()),
            _ => 0,
        };
        let same_edges = one.algorithm() == other.algorithm() && one.period() == other.period();
        let [edge, other_edge] = self.quotas.map(|quota| around_an_edge(&quota));
        let edges = if same_edges { edge.max(other_edge) } else { edge + other_edge };
        let most = u128::from(one.max().max(other.max())) + edges;
        let rate = |quota: &Quota| (u128::from(quota.limit()), quota.period().as_micros());
        let ((a, p), (b, q)) = (rate(&one), rate(&other));
        let (limit, period) = if a * q >= b * p { (a, p) } else { (b, q) };
        for (used, at) in self.levels(limit, period) {
            assert!(
                used <= most * period,
                "{one} and {other}: {} beyond {most} by {}",
                (used - most * period) as f64 / period as f64,
                Timestamp::from_micros(at)
            );
        }
        self.assert_within_the_larger_limit();
    }

    /// Windows of the same algorithm and period have nothing between them but their limits.
    fn assert_within_the_larger_limit(&self) {
        let [one, other] = self.quotas;
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

    /// What was admitted from a microsecond on, and before another.
    fn between(&self, from: u64, to: u64) -> u128 {
        let within = self.admitted.iter().filter(|(at, _)| (from..to).contains(at));
        within.map(|(_, cost)| u128::from(*cost)).sum()
    }

    /// What is used of a budget from which `limit` come back in `period`, times the period: after each admission.
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
