//! What happens to a request when the store cannot decide.

/// What a rule wants when the store cannot decide.
///
/// If the rules of one request want different things, one that denies prevails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// The request goes on without being counted. The [`StoreError`](tollgate_core::StoreError) is in
    /// its extensions.
    #[default]
    Allow,
    /// The request is answered with 503, as the service cannot tell whether it may be served. Never
    /// with 429: the caller has done nothing wrong.
    Deny,
}
