//! The contract between stores and their callers.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::{Charge, Debit, Decision, KeyRef, Refund, RuleName, StoreError};

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
/// - **Quotas may change.** What was used stays used, up to what the new quota holds: never an error, never
///   without a limit, never locked for longer than [`Quota::full_refill`](crate::Quota::full_refill).
/// - **Two quotas may alternate.** A key keeps the states of its last two quotas. A charge is decided under
///   its own quota and counted under both, so together they admit at most what both admit. A third quota
///   replaces the older state.
/// - **Reservations are kept.** A charge whose caller [will wait](Charge::wait_up_to) is admitted with a delay
///   if a bucket has what it takes within that time, in the order of the charges.
/// - **Debts are paid.** What is [debited](Self::debit) beyond a budget counts like everything else, up to as
///   much as the budget holds, and locks nothing for longer than two full refills.
/// - **Time may step back.** That frees nothing, and locks nothing for longer than a full refill. A bucket
///   that owes, or from which tokens are reserved, is locked for at most two full refills, or for a full
///   refill and a minute.
/// - **Nothing is kept forever.** What no longer matters goes away by itself.
/// - **A failure is not a denial.** A store that cannot decide returns a [`StoreError`], and has then charged
///   nothing that it knows of. The exception is a store on several servers of which one fails: it may keep
///   what the others have charged, so that their rules are enforced if the request is let through.
///
/// The `ratekeeper-contract` crate tests a store against these promises.
///
/// # Implementing a store
///
/// A store that knows the answer returns [`Answer::Now`], and one that has to ask a server returns
/// [`Answer::later`]. This one keeps its counters in another store, and counts how often it denies:
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use ratekeeper_core::{
///     Answer, Charge, Debit, Decision, KeyRef, MemoryStore, Refund, RuleName, Store,
/// };
///
/// struct CountDenials<S> {
///     inner: S,
///     denials: Arc<AtomicU64>,
/// }
///
/// impl<S: Store> Store for CountDenials<S> {
///     fn charge(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
///         match self.inner.charge(charges) {
///             Answer::Now(Ok(decision)) => {
///                 self.denials.fetch_add(u64::from(!decision.is_admitted()), Ordering::Relaxed);
///                 Answer::Now(Ok(decision))
///             }
///             Answer::Now(Err(error)) => Answer::Now(Err(error)),
///             Answer::Later(answer) => {
///                 // The future must not borrow from the store.
///                 let denials = Arc::clone(&self.denials);
///                 Answer::later(async move {
///                     let decision = answer.await?;
///                     denials.fetch_add(u64::from(!decision.is_admitted()), Ordering::Relaxed);
///                     Ok(decision)
///                 })
///             }
///         }
///     }
///
///     fn peek(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
///         self.inner.peek(charges)
///     }
///
///     fn refund(&self, refunds: &[Refund<'_>]) -> Answer<()> {
///         self.inner.refund(refunds)
///     }
///
///     fn debit(&self, debits: &[Debit<'_>]) -> Answer<()> {
///         self.inner.debit(debits)
///     }
///
///     fn reset(&self, rule: RuleName, key: KeyRef<'_>) -> Answer<()> {
///         self.inner.reset(rule, key)
///     }
/// }
/// # use ratekeeper_core::Quota;
/// # let store = CountDenials { inner: MemoryStore::new(), denials: Arc::default() };
/// # let rule = RuleName::new("rule").unwrap();
/// # for _ in 0..3 {
/// #     drop(store.charge(&[Charge::new(rule, "key", &Quota::per_hour(2))]));
/// # }
/// # assert_eq!(store.denials.load(Ordering::Relaxed), 1);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a store",
    label = "this is not a store",
    note = "a store is a `MemoryStore`, a `RedisStore`, an `Arc` of one, or a type that implements `Store`"
)]
pub trait Store: Send + Sync + 'static {
    /// Charges all or none.
    ///
    /// The outcomes are in the order of the charges. A rule and key that are charged twice in one call are
    /// charged one after the other, all or none.
    fn charge(&self, charges: &[Charge<'_>]) -> Answer<Decision>;

    /// Answers what [`charge`](Self::charge) would answer, and changes nothing.
    ///
    /// Each outcome describes the budget as it is now, before the charge.
    ///
    /// Since a peek changes nothing, a key that was last charged under another quota, or before the clock was
    /// set back, is re-read each time. The reported wait is exact from the first charge on, even if that
    /// charge is denied.
    fn peek(&self, charges: &[Charge<'_>]) -> Answer<Decision>;

    /// Gives back what was charged.
    ///
    /// The call itself hands over the refund: it takes place even if the answer is dropped, which only
    /// reports when it is done. So it can be called where nothing can be awaited.
    ///
    /// After an error it is unknown whether the refund was made or is yet to be made: a store may keep it
    /// until it works again. So do not hand it over a second time.
    fn refund(&self, refunds: &[Refund<'_>]) -> Answer<()>;

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
    fn debit(&self, debits: &[Debit<'_>]) -> Answer<()>;

    /// Forgets everything that was charged to a key under a rule.
    fn reset(&self, rule: RuleName, key: KeyRef<'_>) -> Answer<()>;

    /// Identifies the store, or is `None`, the default, if it cannot. It shows whether two limiters share a
    /// store.
    fn id(&self) -> Option<StoreId> {
        None
    }
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn charge(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        S::charge(self, charges)
    }

    fn peek(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        S::peek(self, charges)
    }

    fn refund(&self, refunds: &[Refund<'_>]) -> Answer<()> {
        S::refund(self, refunds)
    }

    fn debit(&self, debits: &[Debit<'_>]) -> Answer<()> {
        S::debit(self, debits)
    }

    fn reset(&self, rule: RuleName, key: KeyRef<'_>) -> Answer<()> {
        S::reset(self, rule, key)
    }

    fn id(&self) -> Option<StoreId> {
        S::id(self)
    }
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

/// A store's answer: now, or later.
///
/// Callers that can use an immediate answer match on [`Answer::Now`]; the others await it.
#[must_use = "the store does what it was asked, whether or not the answer is looked at"]
pub enum Answer<T> {
    /// The answer.
    Now(Result<T, StoreError>),
    /// A future for the answer.
    Later(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>),
}

impl<T> Answer<T> {
    /// An answer that takes a while.
    pub fn later(answer: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Self {
        Self::Later(Box::pin(answer))
    }
}

impl<T: fmt::Debug> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(answer) => f.debug_tuple("Now").field(answer).finish(),
            Self::Later(_) => f.write_str("Later(..)"),
        }
    }
}

impl<T> IntoFuture for Answer<T> {
    type Output = Result<T, StoreError>;
    type IntoFuture = AnswerFuture<T>;

    fn into_future(self) -> AnswerFuture<T> {
        AnswerFuture(Some(self))
    }
}

/// The future of an [`Answer`].
pub struct AnswerFuture<T>(Option<Answer<T>>);

/// Nothing in it is pinned in place: an immediate answer is moved out, and a later one is boxed.
impl<T> Unpin for AnswerFuture<T> {}

impl<T> Future for AnswerFuture<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.0.take() {
            Some(Answer::Now(answer)) => Poll::Ready(answer),
            Some(Answer::Later(mut answer)) => {
                let polled = answer.as_mut().poll(cx);
                if polled.is_pending() {
                    self.0 = Some(Answer::Later(answer));
                }
                polled
            }
            // Polled again after it was ready, which the contract of futures leaves unspecified.
            None => Poll::Pending,
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for AnswerFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnswerFuture").field(&self.0).finish()
    }
}
