//! One call of the charge script.
//!
//! Requests that are asked together share a call. A counter is named once, however many of them charge it,
//! and equal requests are one group with a number. The script returns how often each group was admitted and
//! what each counter was before. From that, [`ratekeeper_core::algorithm`] computes the answer to each
//! request here.

use std::ops::Range;

use smallvec::SmallVec;

use crate::batch::encode::Term;
use crate::name::Counted;
use crate::request::Charges;

/// Usually one, or many. A single one takes no allocation: a lone request waits for each step on the way, and
/// memory that was not used for a while is in no near cache.
pub(crate) type Few<T> = SmallVec<[T; 1]>;

/// The requests of one call.
#[derive(Debug, Default)]
pub(crate) struct Call {
    /// Comes back with the answer, to prove that it is the answer to this question.
    pub(crate) number: u32,
    /// For each request, for each of its charges, the number of its counter.
    pub(crate) places: Few<SmallVec<[usize; 2]>>,
    /// For each counter, the request and the charge that named it.
    pub(crate) named_by: Few<(usize, usize)>,
    pub(crate) terms: Few<Term>,
    pub(crate) groups: Few<Group>,
    pub(crate) runs: Few<Run>,
    /// How many of the first groups are in runs.
    pub(crate) in_runs: usize,
}

/// Charges of the same term to counters with consecutive numbers that nothing else charges. They take the
/// fewest bytes.
#[derive(Debug)]
pub(crate) struct Run {
    /// The first of its counters.
    pub(crate) first: usize,
    pub(crate) term: u16,
    /// The groups whose charges they are.
    pub(crate) groups: Range<usize>,
}

/// Equal requests.
#[derive(Debug)]
pub(crate) struct Group {
    /// Counter and term.
    pub(crate) charges: SmallVec<[(u16, u16); 2]>,
    pub(crate) members: SmallVec<[usize; 2]>,
}

impl Call {
    /// The counters, in the order of their numbers.
    pub(crate) fn counted<'a>(
        &'a self,
        requests: &'a [&'a Charges],
    ) -> impl ExactSizeIterator<Item = &'a Counted> {
        self.named_by.iter().map(|(request, charge)| &requests[*request][*charge].counter)
    }
}
