use ratekeeper_core::{Algorithm, Quota, Timestamp};

/// What rounding may amount to, in units.
const EPSILON: f64 = 1e-9;

/// A key that is charged under changing quotas, as the promise says: the key keeps what was taken under its
/// last two quotas, each charge is decided under its own, and counted under both.
///
/// It is computed from lists of what was taken and from what the quotas mean, without the arithmetic of any
/// store. Its clock does not step back.
///
/// ```
/// use ratekeeper_contract::Model;
/// use ratekeeper_core::{MINUTE, Quota, Timestamp};
///
/// let (free, pro) = (Quota::per_minute(10), Quota::sliding_log(100, MINUTE));
/// let now = Timestamp::from_secs(1_700_000_040);
/// let mut model = Model::new(&pro);
/// model.ask(&pro, now);
/// model.admit(50, now);
/// assert_eq!(model.ask(&free, now), 0.0);
/// assert_eq!(model.ask(&pro, now), 50.0);
/// ```
#[derive(Clone, Debug)]
pub struct Model {
    current: Taken,
    previous: Option<Taken>,
}

/// What was taken under one quota.
#[derive(Clone, Debug)]
struct Taken {
    quota: Quota,
    /// Microseconds and units, oldest first.
    units: Vec<(u64, f64)>,
}

impl Model {
    /// A key that was never charged.
    #[must_use]
    pub fn new(quota: &Quota) -> Self {
        Self { current: Taken { quota: *quota, units: Vec::new() }, previous: None }
    }

    /// Switches to a quota, and returns how many units are left under it.
    pub fn ask(&mut self, quota: &Quota, now: Timestamp) -> f64 {
        self.switch_to(quota, now.as_micros());
        (f64::from(quota.max()) - self.current.used(now.as_micros())).max(0.0)
    }

    /// Counts a cost that was admitted under the quota that was asked last.
    pub fn admit(&mut self, cost: u32, now: Timestamp) {
        self.current.units.push((now.as_micros(), cost.into()));
        if let Some(previous) = &mut self.previous {
            previous.count(cost.into(), now.as_micros());
        }
    }

    /// Whether `left`, which may be rounded, is enough for a cost; `None` if that cannot be told.
    #[must_use]
    pub fn fits(left: f64, cost: u32) -> Option<bool> {
        let spare = left - f64::from(cost);
        (spare == 0.0 || spare.abs() > EPSILON).then_some(spare >= 0.0)
    }

    /// The whole units of `left`, which may be rounded.
    #[must_use]
    pub fn whole(left: f64) -> u32 {
        (left + EPSILON).floor() as u32
    }

    fn switch_to(&mut self, quota: &Quota, now: u64) {
        // A key that counts nothing is like a new one.
        if self.current.used(now) < EPSILON {
            self.previous.take_if(|previous| previous.used(now) < EPSILON);
        }
        if same(&self.current.quota, quota) {
            return;
        }
        if let Some(previous) = self.previous.as_mut().filter(|previous| same(&previous.quota, quota)) {
            std::mem::swap(&mut self.current, previous);
            return;
        }
        // What counts nothing is no state.
        while self.current.used(now) < EPSILON {
            let Some(previous) = self.previous.take() else {
                *self = Self::new(quota);
                return;
            };
            self.current = previous;
        }
        let migrated = self.current.migrate(quota, now);
        self.previous = Some(std::mem::replace(&mut self.current, migrated));
    }
}

impl Taken {
    fn period(&self) -> u64 {
        self.quota.period().as_micros() as u64
    }

    fn max(&self) -> f64 {
        self.quota.max().into()
    }

    /// The start of the window that a moment is in.
    fn window(&self, at: u64) -> u64 {
        at - at % self.period()
    }

    /// What was taken from one microsecond on, and before another.
    fn between(&self, from: u64, to: u64) -> f64 {
        self.units.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, units)| units).sum()
    }

    /// How many units are used now.
    fn used(&self, now: u64) -> f64 {
        match self.quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                let rate = |micros: u64| {
                    micros as f64 * f64::from(self.quota.limit()) / self.quota.period().as_micros() as f64
                };
                let (mut level, mut last) = (0.0_f64, 0);
                for (at, units) in self.units.iter().copied().chain([(now, 0.0)]) {
                    level = (level - rate(at - last)).max(0.0) + units;
                    last = at;
                }
                level
            }
            Algorithm::FixedWindow => self.between(self.window(now), now + 1),
            Algorithm::SlidingLog => self.between(now - self.period() + 1, now + 1),
            Algorithm::SlidingWindow => {
                let start = self.window(now);
                let left = (start + self.period() - now) as f64 / self.period() as f64;
                self.between(start - self.period(), start) * left + self.between(start, now + 1)
            }
            other => unreachable!("no case has a quota of {other:?}"),
        }
    }

    /// Counts what was admitted under another quota, up to what this one holds.
    fn count(&mut self, units: f64, now: u64) {
        let used = match self.quota.algorithm() {
            Algorithm::SlidingLog => 0.0,
            Algorithm::SlidingWindow => self.between(self.window(now), now + 1),
            _ => self.used(now),
        };
        self.units.push((now, units.min((self.max() - used).max(0.0))));
        self.cut_log(now);
    }

    /// A log forgets its oldest, which leave first.
    fn cut_log(&mut self, now: u64) {
        if self.quota.algorithm() == Algorithm::SlidingLog {
            self.units.retain(|(at, _)| at + self.quota.period().as_micros() as u64 > now);
            let mut excess = self.used(now) - self.max();
            for (_, units) in &mut self.units {
                let cut = excess.clamp(0.0, *units);
                (*units, excess) = (*units - cut, excess - cut);
            }
        }
    }

    /// What was taken, as seen under another quota.
    fn migrate(&self, quota: &Quota, now: u64) -> Self {
        let mut to = Self { quota: *quota, units: Vec::new() };
        let (algorithm, start) = (quota.algorithm(), to.window(now));
        to.units = if !same_rate(&self.quota, quota) {
            // Rounded up to what the other counts: parts of a microsecond, or units.
            let (parts, error) = match algorithm {
                Algorithm::TokenBucket | Algorithm::LeakyBucket => (quota.rate().1 as f64, 1e-3),
                _ => (1.0, 1e-6),
            };
            let used = self.used(now).min(to.max());
            vec![(now, (used * parts - error).ceil().max(0.0) / parts)]
        } else {
            match algorithm {
                Algorithm::SlidingLog => self.units.clone(),
                Algorithm::SlidingWindow => vec![
                    (start - 1, self.between(start - self.period(), start).min(to.max())),
                    (now, self.between(start, now + 1).min(to.max())),
                ],
                _ => vec![(now, self.used(now).min(to.max()))],
            }
        };
        to.cut_log(now);
        to
    }
}

/// Whether two quotas differ at most in what they hold.
fn same_rate(one: &Quota, other: &Quota) -> bool {
    let rate = |quota: &Quota| match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => quota.rate(),
        _ => (1, quota.period().as_micros() as u64),
    };
    one.algorithm() == other.algorithm() && rate(one) == rate(other)
}

fn same(one: &Quota, other: &Quota) -> bool {
    same_rate(one, other) && one.max() == other.max()
}
