//! What rules look at: the heads of requests and responses, and the patterns of hosts and paths.

#[cfg(feature = "axum")]
pub(crate) mod axum;
mod head;
pub(crate) mod host;
pub(crate) mod pattern;
pub(crate) mod peer;
mod response_head;

pub use self::head::RequestHead;
pub use self::response_head::ResponseHead;

/// A rule that matches a request, by number, and the pattern by which it does.
pub(crate) type Match<'a> = (usize, Option<&'a pattern::Pattern>);
