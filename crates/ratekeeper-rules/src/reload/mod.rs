//! Rules that change while a service runs.

mod error;
mod handle;
mod last_good;
#[cfg(feature = "metrics")]
pub(crate) mod metrics;
mod set;
mod status;
mod task;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use ratekeeper::{Limiter, LimiterBuilder, Rule};

pub use self::error::ReloadError;
pub use self::handle::ReloadHandle;
use self::last_good::LastGood;
use self::set::{Reader, Set};
pub use self::status::{ReloadProblem, ReloadStatus};
use self::task::Task;
use crate::{LayerSettings, Registry, RuleFile, Source};

/// Keeps the rules of a limiter up to date with a source.
///
/// First the rules are [loaded](Self::load); a service without valid rules does not start. Then the limiter
/// is built, and [from then on](Loaded::start) each set of rules from the source is put into force as a
/// whole, between two requests. Counters are kept. An invalid set is refused as a whole, and the previous
/// rules stay in force. [`ReloadHandle::status`], the log and metrics report it.
///
/// ```no_run
/// use ratekeeper::RateLimitLayer;
/// use ratekeeper_rules::{FileRejection, FileSource, Registry, ReloadHandle, Reloader};
///
/// type Layer = RateLimitLayer<FileRejection>;
///
/// async fn limit() -> Result<(Layer, ReloadHandle), Box<dyn std::error::Error>> {
///     let registry = Registry::new();
///     let loaded = Reloader::new(FileSource::new("rules.toml")).registry(registry).load().await?;
///     let limiter = loaded.limiter().build()?;
///     let layer = loaded.layer().apply(RateLimitLayer::new(limiter.clone()));
///     // Rules are reloaded for as long as there is the handle.
///     Ok((layer, loaded.start(&limiter)))
/// }
/// ```
///
/// # What needs a restart
///
/// Rules and trusted proxies are reloaded. The settings in `layer` and `limiter` were applied when the layer
/// and the limiter were built. A change to them is reported by [`ReloadStatus::needs_restart`] and in the
/// log, and takes effect at the next start.
#[derive(Debug)]
#[must_use]
pub struct Reloader<S> {
    source: S,
    reader: Reader,
    last_good: Option<PathBuf>,
}

impl<S: Source> Reloader<S> {
    /// Creates a reloader for the rules of this source.
    pub fn new(source: S) -> Self {
        Self { source, reader: Reader::default(), last_good: None }
    }

    /// Sets what rules can refer to by name.
    pub fn registry(mut self, registry: Registry) -> Self {
        self.reader.registry = registry;
        self
    }

    /// Adds a rule of the application, which is in force beside those of the source, whatever they are. Rules
    /// of the source with the same name are refused.
    pub fn rule(mut self, rule: Rule) -> Self {
        self.reader.beside.push(rule);
        self
    }

    /// Keeps the rules in force in this file, and starts with them if the source cannot be read or its rules
    /// are invalid.
    ///
    /// Without it, the service does not start in that case. With it, the service starts with rules that may
    /// be old, which [`ReloadStatus::problem`] reports.
    pub fn last_good(mut self, path: impl Into<PathBuf>) -> Self {
        self.last_good = Some(path.into());
        self
    }

    /// Loads the rules to start with.
    ///
    /// # Errors
    ///
    /// When the source cannot be read, or its rules are invalid, and no [last good ones](Self::last_good) are
    /// kept.
    pub async fn load(self) -> Result<Loaded<S>, ReloadError> {
        let Self { mut source, reader, last_good } = self;
        let (reader, last_good) = (Arc::new(reader), last_good.map(LastGood::new));
        let found = source.read(reader.registry.max_size()).await;
        let read_at = found.is_ok().then(SystemTime::now);
        let read = match found {
            Ok(document) => reader.read(document.clone()).await.map(|set| (set, document)),
            Err(error) => Err(ReloadError::unread(error)),
        };
        let (set, problem) = match (read, &last_good) {
            (Ok((set, document)), Some(last_good)) => {
                last_good.keep(document).await;
                (set, None)
            }
            (Ok((set, _)), None) => (set, None),
            (Err(error), None) => return Err(error),
            (Err(error), Some(last_good)) => match last_good.restore(&reader).await {
                Some(set) => (set, Some(error)),
                None => return Err(error),
            },
        };
        Ok(Loaded { source, reader, last_good, set, problem, read_at })
    }
}

/// Rules that have been loaded, for a limiter that is yet to be built.
#[derive(Debug)]
#[must_use]
pub struct Loaded<S> {
    source: S,
    reader: Arc<Reader>,
    last_good: Option<LastGood>,
    set: Set,
    /// Why these are the last good rules.
    problem: Option<ReloadError>,
    read_at: Option<SystemTime>,
}

impl<S: Source> Loaded<S> {
    /// The version of the rules.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.set.version
    }

    /// The rules of the source, and its other settings.
    pub fn file(&self) -> &RuleFile {
        &self.set.file
    }

    /// The settings for the layer.
    pub const fn layer(&self) -> &LayerSettings {
        self.set.file.layer()
    }

    /// Starts building a limiter with the rules, including those of the application, and their bounds. It
    /// counts in memory unless another store is set.
    pub fn limiter(&self) -> LimiterBuilder {
        self.set.file.limiter().rules(self.reader.beside.iter().cloned()).version(self.version())
    }

    /// Why these are the [last good](Reloader::last_good) rules and not those of the source; `None` if they
    /// are the source's.
    #[must_use]
    pub const fn problem(&self) -> Option<&ReloadError> {
        self.problem.as_ref()
    }

    /// Puts the rules into force in a limiter, and from now on each set that the source provides.
    ///
    /// This runs in a task of the runtime until the handle is dropped.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start(self, limiter: &Limiter) -> ReloadHandle {
        Task::start(self, limiter.clone())
    }
}
