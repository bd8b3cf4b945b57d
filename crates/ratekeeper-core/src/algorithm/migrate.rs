//! A state that is carried over to another quota.

use super::gcra::Bucket;
use super::log::Log;
use super::state::State;
use super::window::{FixedWindow, SlidingWindow};
use crate::{Algorithm, Quota, Timestamp};

/// What may be an error of floating point, in units.
const ERROR: f64 = 1e-6;

/// The state under the quota `to` of a key that was counted under `from`. What was used stays used, up to
/// what the new quota holds.
///
/// At the same rate, the state means the same, and is only cut. Otherwise it is made from the number of units
/// used. That number is in floating point, unlike everything else. It is computed once, from few numbers, so
/// errors do not add up; and a script in a store that has no other numbers computes it to the same bits. A
/// fraction is rounded up, unless it is so small that it may be an error.
pub(super) fn migrate(state: &State, from: &Quota, to: &Quota, now: Timestamp) -> State {
    if from.has_rate_of(to) {
        let mut state = state.clone();
        state.get_mut().cut(to, now);
        return state;
    }
    let used = state.get().used(from, now).min(f64::from(to.max()));
    let whole = (used - ERROR).ceil() as u32;
    match to.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => State::Bucket(Bucket::seed(to, used, now)),
        Algorithm::FixedWindow => State::FixedWindow(FixedWindow::seed(to, whole, now)),
        Algorithm::SlidingWindow => State::SlidingWindow(SlidingWindow::seed(to, whole, now)),
        Algorithm::SlidingLog => State::Log(Log::seed(to, whole, now)),
    }
}
