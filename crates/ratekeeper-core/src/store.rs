//! The contract between stores and their callers.

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
/// - **All or nothing.** [`charge`](Self::charge) admits only if every charge fits, and then makes them all.
///   Otherwise it makes none, and no counter of any rule changes. This holds against all concurrent calls.
/// - **The algorithms decide.** Answers are those of [`algorithm`](crate::algorithm), to the microsecond, on
///   the store's own clock.
/// - **One counter for one rule and key.** Two rules never share a counter, nor do two keys, whatever the
///   keys contain.
/// - **Quotas may change.** A key that was last charged under another quota is re-read under the new one:
///   never an error, never without a limit, never locked for longer than
///   [`Quota::full_refill`](crate::Quota::full_refill).
/// - **Two quotas may be in use at once.** Then both are counted, whichever one a call uses. In any span, no
///   more is admitted than what the larger holds plus what comes back in that span under the faster, plus a
///   fixed window's limit once more, as around any edge. A charge that both would admit is not denied. A
///   quota is in use for a full refill after it was last asked. There are two exceptions. Two fixed windows
///   of different periods that are both used up all the time may admit half as much again as the faster. And
///   of two buckets with the same rate, one that holds more than a hundred thousand times as much as the
///   other forgets what it has admitted.
/// - **Debts are paid.** What is [debited](Self::debit) beyond a budget counts like everything else, up to as
///   much as the budget holds, and locks nothing for longer than two full refills.
/// - **Time may step back.** That frees nothing, and locks nothing for longer than a full refill, or two if
///   the budget owes.
/// - **Nothing is kept forever.** What no longer matters goes away by itself.
/// - **A failure is not a denial.** A store that cannot decide returns a [`StoreError`], and has then charged
///   nothing that it knows of. The exception is a store on several servers of which one fails: it may keep
///   what the others have charged, so that their rules are enforced if the request is let through.
///
/// The `ratekeeper-contract` crate tests a store against these promises.
pub trait Store: Clone + Send + Sync + 'static {
    /// An answer that takes a while.
    type Charging: Future<Output = Result<Decision, StoreError>> + Send + 'static;

    /// Charges all or none, and answers immediately if it can.
    ///
    /// The outcomes are in the order of the charges. A rule and key that are charged twice in one call are
    /// charged the sum. Charge a rule and key under only one quota in a call: under two at once, what is
    /// taken under the first may rarely be in the way of the second, which is then denied although the first
    /// was charged.
    fn charge(&self, charges: &[Charge<'_>]) -> Answer<Self::Charging>;

    /// Makes one charge if that is possible immediately, and returns when it was decided and the outcome.
    ///
    /// Returns `None` if it is not possible. Then nothing is charged, and [`charge`](Self::charge) is called.
    ///
    /// This is a short cut for the most common case, one rule. A store that implements it saves the detour
    /// through a [`Decision`]; one that does not loses nothing.
    #[inline]
    fn charge_at_once(&self, charge: &Charge<'_>) -> Option<(Timestamp, Outcome)> {
        let _ = charge;
        None
    }

    /// Answers what [`charge`](Self::charge) would answer, and changes nothing.
    ///
    /// Each outcome describes the budget as it is now, before the charge.
    ///
    /// Since a peek changes nothing, a key that was last charged under another quota, or before the clock was
    /// set back, is re-read each time. The reported wait is exact from the first charge on, even if that
    /// charge is denied.
    fn peek(&self, charges: &[Charge<'_>]) -> impl Future<Output = Result<Decision, StoreError>> + Send;

    /// Gives back what was charged.
    ///
    /// The call itself hands over the refund: it takes place even if the future is dropped, which only
    /// reports when it is done. So it can be called where nothing can be awaited.
    ///
    /// After an error it is unknown whether the refund was made or is yet to be made: a store may keep it
    /// until it works again. So do not hand it over a second time.
    fn refund(&self, refunds: &[Refund<'_>]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Takes what is due, whether or not it fits.
    ///
    /// This is for a request whose real cost turned out to be larger than what was charged for it.
    ///
    /// What was not there is owed. Nothing is admitted until it is paid off, at the quota's pace, so it does
    /// not matter in which order costs are charged, debited and given back. If two requests take 50 of 100
    /// each, one is debited 30 more, and the other gives 40 back, 10 remain. [`algorithm`](crate::algorithm)
    /// describes how much can be owed, and for how long.
    ///
    /// As with [`refund`](Self::refund), the call itself hands over the debit.
    fn debit(&self, debits: &[Debit<'_>]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Identifies the store, or is `None`, the default, if it cannot. It shows whether two limiters share a
    /// store.
    fn id(&self) -> Option<StoreId> {
        None
    }

    /// Forgets everything that was charged to a key under a rule.
    fn reset(&self, rule: RuleName, key: KeyRef<'_>) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Tells stores apart: clones of a store share an id, and two stores that are alive at the same time differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreId(usize);

impl StoreId {
    /// The id of a store whose clones share this.
    #[must_use]
    pub fn of<T>(shared: &Arc<T>) -> Self {
        Self(Arc::as_ptr(shared).addr())
    }
}

/// A store's answer to a charge: now, or later.
///
/// Callers that can use an immediate answer match on [`Answer::Now`]; the others await it.
#[derive(Debug)]
#[must_use = "the charge is made, or under way, whether or not the answer is looked at"]
pub enum Answer<F = Ready<Result<Decision, StoreError>>> {
    /// The answer.
    Now(Result<Decision, StoreError>),
    /// A future for the answer.
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
            // Polled again after it was ready, which the contract of futures leaves unspecified.
            (None, None) => Poll::Pending,
        }
    }
}
