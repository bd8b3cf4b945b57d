//! What happens to a request when the store cannot decide.

use ratekeeper_core::Share;

/// What a rule does when the store cannot decide.
///
/// It is set with [`Rule::on_store_failure`](crate::Rule::on_store_failure). If the rules of one request
/// differ:
///
/// 1. if one denies, that prevails, and nothing is charged to any rule;
/// 2. otherwise the rules that decide locally decide together, all or nothing, and the others have no say;
/// 3. otherwise the request proceeds.
///
/// Whatever happens to the request, a failure is not a denial. The [`StoreError`](ratekeeper_core::StoreError)
/// is in the extensions of the request if it proceeds, and of the response if it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// The request proceeds without being counted.
    #[default]
    Allow,
    /// The request is answered with 503, because the service cannot tell whether it may be served.
    ///
    /// It is never answered with 429: the caller has done nothing wrong.
    Deny,
    /// The request is counted in this process, under this share of the rule's quota.
    ///
    /// For a caller in a tier, it is a share of the tier's quota. With four nodes, use
    /// [`Share::one_of(4)`](Share::one_of). See [`Quota::share`](ratekeeper_core::Quota::share) for how the
    /// share is rounded.
    ///
    /// Everything that follows is the same as with a working store, including the
    /// [`Decision`](ratekeeper_core::Decision) in the extensions: a 429, header fields that report the share,
    /// or a leaky bucket that holds the request back.
    ///
    /// - This process does not know what was used before, so every caller starts with a full share. What a
    ///   caller uses of it counts in this process until it has come back, even if the store works for a
    ///   moment in between.
    /// - When the store works again, it is debited with what was used of the share and has not come back. So
    ///   a store that fails every other moment does not double the quota. This covers up to 10,000 keys; what
    ///   further keys use while the store fails is not debited.
    /// - Nodes that admit their shares independently stay within the quota together, provided that the quota
    ///   has at least one unit for each. Nodes beyond the number that the share is for add their own shares.
    /// - A request that costs more than the share can ever hold, but not more than the quota, is answered
    ///   with 503, because a 429 would wrongly say that it is never admitted. (A rule with such a fixed cost
    ///   is refused.)
    Local(Share),
}
