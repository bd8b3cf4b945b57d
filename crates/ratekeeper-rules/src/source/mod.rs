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

/// The shortest time between two polls of a source that has reported nothing.
const LEAST_POLL: Duration = Duration::from_millis(10);

/// The longest. Adding it to a point in time does not overflow, unlike some durations that people use for
/// "never".
const LONGEST_POLL: Duration = Duration::from_secs(365 * 86_400);

/// A place where rules are kept and may change: a file, a server, or a custom service.
///
/// A source provides the text of all rules together, and reports when it may have changed. It does not look
/// into the text, and need not know whether it actually changed: the reader compares versions.
///
/// ```
/// use tokio::sync::watch;
/// use ratekeeper_rules::{Document, Format, Source, SourceError};
///
/// /// Rules that another part of the program hands over.
/// struct Handed(watch::Receiver<String>);
///
/// impl Source for Handed {
///     fn kind(&self) -> &'static str {
///         "handed"
///     }
///
///     async fn read(&mut self, _max_size: usize) -> Result<Document, SourceError> {
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
    /// The kind of source, in one word: a label of metrics and a field of events.
    fn kind(&self) -> &'static str;

    /// Reads all rules as they are now.
    ///
    /// It has to end by itself, whatever the other side does: while it runs, nothing else is noticed.
    ///
    /// `max_size` is the size of the [largest document](crate::Registry::max_document_size) that is used, in
    /// bytes, for a source that can stop there. Whatever it returns is checked once more.
    ///
    /// # Errors
    ///
    /// When they cannot be read. Rules that can be read but are invalid are not an error here.
    fn read(&mut self, max_size: usize) -> impl Future<Output = Result<Document, SourceError>> + Send;

    /// Waits until the rules may have changed since [`read`](Self::read) was last called, including while it
    /// ran; or, if it failed, until another attempt is worthwhile.
    ///
    /// What may have been missed counts as a change, such as everything that happened while a connection was
    /// lost. It may return too often, but must not do so without a pause. It can be dropped and called again,
    /// and a change in between is not lost.
    fn changed(&mut self) -> impl Future<Output = ()> + Send;
}
