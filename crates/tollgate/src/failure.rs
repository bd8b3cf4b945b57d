//! What happens to a request when the store cannot decide.

use tollgate_core::Share;

/// What a rule wants when the store cannot decide.
///
/// A rule says it by [`Rule::on_store_failure`](crate::Rule::on_store_failure). If the rules of one request want
/// different things:
///
/// 1. one that denies prevails, and nothing is charged to any rule;
/// 2. else those that decide locally decide together, all or nothing, and the others have no say;
/// 3. else the request goes on.
///
/// Whatever becomes of the request, a failure is no denial: the [`StoreError`](tollgate_core::StoreError) is in the
/// extensions of the request if it goes on, and of the response if it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// The request goes on without being counted.
    #[default]
    Allow,
    /// The request is answered with 503, as the service cannot tell whether it may be served. Never
    /// with 429: the caller has done nothing wrong.
    Deny,
    /// The request is counted in this process, under this share of the rule's quota (or of that of the caller's tier):
    /// with four nodes, [`Share::one_of(4)`](Share::one_of). See [`Quota::share`](tollgate_core::Quota::share) for how it
    /// is rounded.
    ///
    /// What follows is the same as with a store that works, the [`Decision`](tollgate_core::Decision) in the extensions
    /// included: 429, or header fields that tell of the share, or a leaky bucket that holds the request back.
    ///
    /// - This process knows nothing of what was used before, so everybody begins with a whole share. What is used of it
    ///   counts in this process only, and until it has come back: also if the store works for a moment in between.
    /// - Nodes that admit their shares on their own are together not above the quota, where each can have at least one.
    ///   Nodes beyond those that the share is for add theirs.
    /// - A request that costs more than the share ever holds, though not more than the quota, is answered with 503: that
    ///   it is never admitted would not be true. (A rule whose fixed cost is such is refused.)
    Local(Share),
}
