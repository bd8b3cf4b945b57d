//! A state that is carried over to another quota.

use super::gcra::Bucket;
use super::log::Log;
use super::state::State;
use super::window::{FixedWindow, SlidingWindow};
use crate::{Algorithm, Quota, Timestamp};

/// The state under the quota `to` of a key that was counted under `from`. What was used stays used, up to
/// what the new quota holds.
///
/// At the same rate, the state means the same, and is only cut. Otherwise it is made from the number of units
/// used. That number is in floating point, unlike everything else. It is computed once, from few numbers, so
/// errors do not add up; and a script in a store that has no other numbers computes it to the same bits.
pub(super) fn migrate(state: &State, from: &Quota, to: &Quota, now: Timestamp) -> State {
    if from.has_rate_of(to) {
        let mut state = state.clone();
        state.get_mut().cut(to, now);
        return state;
    }
    let used = state.get().used(from, now).min(f64::from(to.max()));
    match to.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => State::Bucket(Bucket::seed(to, used, now)),
        Algorithm::FixedWindow => State::FixedWindow(FixedWindow::seed(to, used.ceil() as u32, now)),
        Algorithm::SlidingWindow => State::SlidingWindow(SlidingWindow::seed(to, used.ceil() as u32, now)),
        Algorithm::SlidingLog => State::Log(Log::seed(to, used.ceil() as u32, now)),
    }
}
