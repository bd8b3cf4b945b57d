//! The contract between those who ask and those who count.

use std::future::{Future, IntoFuture, Ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::{Charge, Debit, Decision, KeyRef, Outcome, Refund, RuleName, StoreError, Timestamp};

/// Where the counters live.
///
/// # What every store promises
///
/// - **All or nothing.** [`charge`](Self::charge) admits only if every charge fits, and then makes
///   them all; otherwise it makes none, and no counter of any rule changes. This holds against every
///   other call at the same time.
/// - **The algorithms decide.** Answers are those of [`algorithm`](crate::algorithm), to the
///   microsecond, on the store's own clock.
/// - **One counter for one rule and key.** Two rules never share a counter, nor do two keys, whatever
///   the keys contain.
/// - **Quotas may change.** A key that was last charged under another quota is re-read under the new
///   one: never an error, never without a limit, never locked for longer than
///   [`Quota::full_refill`](crate::Quota::full_refill).
/// - **Two quotas may be in use at once.** Then both are counted, whichever is asked: in any span no more is admitted than
///   the larger holds and what comes back by then under the faster (and a fixed window's limit once more, as around any
///   edge), and nobody is denied whom both would admit. A quota is in use for a full refill after it was last asked. (Two
///   fixed windows of different periods that are both used up all the time may pass half as much again as the faster; and of two
///   buckets of one rate, one that holds more than a hundred thousand times as much as the other forgets what it has passed.)
/// - **Debts are paid.** What is [debited](Self::debit) beyond a budget counts like all else, up to as much as the budget
///   holds, and locks nothing for longer than two full refills.
/// - **Time may step back.** That frees nothing, and locks nothing for longer than a full refill (or two, if it owes).
/// - **Nothing is kept for ever.** What no longer matters goes away by itself.
/// - **A failure is not a denial.** A store that cannot decide says so with a [`StoreError`], and has
///   then charged nothing that it knows of.
///
/// The `tollgate-contract` crate tests a store against these promises.
pub trait Store: Clone + Send + Sync + 'static {
    /// An answer that takes a while.
    type Charging: Future<Output = Result<Decision, StoreError>> + Send + 'static;

    /// Charges all or none, and answers at once if it can.
    ///
    /// The outcomes are in the order of the charges. A rule and key that are charged twice in one
    /// call are charged the sum. (Under two quotas at once, what is taken under the first may rarely be in the way of the
    /// second, which is then denied though the first was charged. Charge a rule and key under one quota in a call.)
    fn charge(&self, charges: &[Charge<'_>]) -> Answer<Self::Charging>;

    /// Makes one charge if this can be done here and now, and says when it was decided and what; `None`, and
    /// nothing is charged, if not, and then [`charge`](Self::charge) is asked.
    ///
    /// This is a short cut for what is asked most often, one rule: whoever implements it saves the way
    /// through a [`Decision`], and whoever does not loses nothing.
    #[inline]
    fn charge_at_once(&self, charge: &Charge<'_>) -> Option<(Timestamp, Outcome)> {
        let _ = charge;
        None
    }

    /// Answers what [`charge`](Self::charge) would, and changes nothing. Each outcome tells what
    /// there is now, before the charge.
    ///
    /// Since it changes nothing, a key that was last charged under another quota, or before the clock was set back, is read anew
    /// each time; the wait that is told is exact from the first charge on, also one that is denied.
    fn peek(&self, charges: &[Charge<'_>]) -> impl Future<Output = Result<Decision, StoreError>> + Send;

    /// Gives back.
    ///
    /// The call itself hands the refund over: it takes place even if the future is dropped, which
    /// only tells when it is done. So it can be called where nothing can be awaited.
    ///
    /// After an error it is not known whether it was made, or is yet to be: a store may keep it until it works again.
    /// So it is not to be handed over a second time.
    fn refund(&self, refunds: &[Refund<'_>]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Takes what is due, whether or not it fits: the real cost of a request turned out to be larger than what was
    /// charged for it.
    ///
    /// What was not there is owed. Nothing is admitted before it is paid off, at the quota's pace, so that it does
    /// not matter in which order costs are charged, debited and given back: if two take 50 of 100 each, and one is
    /// debited 30 more, and the other gives 40 back, 10 remain. What can be owed, and for how long, is told in
    /// [`algorithm`](crate::algorithm).
    ///
    /// Like that of [`refund`](Self::refund), the call itself hands it over.
    fn debit(&self, debits: &[Debit<'_>]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Which store this is; `None`, as by default, if it cannot tell. So it is found out that two limiters share one.
    fn id(&self) -> Option<StoreId> {
        None
    }

    /// Forgets all that was charged to a key under a rule.
    fn reset(&self, rule: RuleName, key: KeyRef<'_>) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Tells stores apart: clones of one have the same, and two that are alive at the same time have different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreId(usize);

impl StoreId {
    /// That of a store whose clones share this.
    #[must_use]
    pub fn of<T>(shared: &Arc<T>) -> Self {
        Self(Arc::as_ptr(shared).addr())
    }
}

/// A store's answer to a charge: at once, or later.
///
/// Those who can use an answer at once look for [`Answer::Now`]; the others await it.
#[derive(Debug)]
#[must_use = "the charge is made, or under way, whether or not the answer is looked at"]
pub enum Answer<F = Ready<Result<Decision, StoreError>>> {
    /// The answer.
    Now(Result<Decision, StoreError>),
    /// The answer once it is there.
    Later(F),
}

impl<F> IntoFuture for Answer<F>
where
    F: Future<Output = Result<Decision, StoreError>>,
{
    type Output = F::Output;
    type IntoFuture = Answering<F>;

    fn into_future(self) -> Answering<F> {
        match self {
            Self::Now(answer) => Answering { now: Some(answer), later: None },
            Self::Later(later) => Answering { now: None, later: Some(later) },
        }
    }
}

pin_project! {
    /// The future of an [`Answer`].
    #[derive(Debug)]
    pub struct Answering<F> {
        now: Option<Result<Decision, StoreError>>,
        #[pin]
        later: Option<F>,
    }
}

impl<F> Future for Answering<F>
where
    F: Future<Output = Result<Decision, StoreError>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        match (this.later.as_pin_mut(), this.now.take()) {
            (Some(later), _) => later.poll(cx),
            (None, Some(answer)) => Poll::Ready(answer),
            // Polled again after it was ready, which the contract of futures leaves open.
            (None, None) => Poll::Pending,
        }
    }
}
