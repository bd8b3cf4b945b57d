//! Where rules come from while a service runs.

mod document;
mod error;
mod file;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod schedule;

use std::future::Future;
use std::time::Duration;

pub use self::document::Document;
pub use self::error::SourceError;
pub use self::file::FileSource;
#[cfg(feature = "postgres")]
pub use self::postgres::PostgresSource;
#[cfg(feature = "redis")]
pub use self::redis::RedisSource;

/// The least time between two looks at a source that has told nothing.
const LEAST_POLL: Duration = Duration::from_millis(10);

/// The longest. Moments can be computed with it, which is not so of every time that somebody takes for never.
const LONGEST_POLL: Duration = Duration::from_secs(365 * 86_400);

/// Somewhere that rules are kept and may change: a file, a server, a service of one's own.
///
/// A source gives the text of all rules together, and tells when that may have become another. It does not look into
/// the text, and need not know whether it really changed: whoever reads it compares versions.
///
/// ```
/// use tokio::sync::watch;
/// use tollgate_rules::{Document, Format, Source, SourceError};
///
/// /// Rules that another part of the program hands over.
/// struct Handed(watch::Receiver<String>);
///
/// impl Source for Handed {
///     fn kind(&self) -> &'static str {
///         "handed"
///     }
///
///     async fn read(&mut self) -> Result<Document, SourceError> {
///         let text = self.0.borrow_and_update().clone();
///         Ok(Document::new("handed rules", Format::Toml, text))
///     }
///
///     async fn changed(&mut self) {
///         if self.0.changed().await.is_err() {
///             // Nobody is left who could hand over others.
///             std::future::pending().await
///         }
///     }
/// }
/// ```
pub trait Source: Send + 'static {
    /// What kind of source it is, in a word: a label of metrics and a field of events.
    fn kind(&self) -> &'static str;

    /// Reads all rules as they are now.
    ///
    /// It has to end by itself, whatever the other side does: while it runs, nothing else is noticed.
    ///
    /// # Errors
    ///
    /// When they cannot be read. Rules that can be read and make no sense are no error here.
    fn read(&mut self) -> impl Future<Output = Result<Document, SourceError>> + Send;

    /// Waits until the rules may have become others since [`read`](Self::read) was last called, which includes what
    /// happened while it ran; or until it is worth another attempt, if it failed.
    ///
    /// What may have been missed counts as a change, such as all that happened while a connection was lost. It may come
    /// back too often, but must not do so without a pause. It can be dropped and called again, and a change in between is
    /// not lost.
    fn changed(&mut self) -> impl Future<Output = ()> + Send;
}
