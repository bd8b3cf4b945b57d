//! From the text of rules to a set that can be put into force.

use std::sync::Arc;

use ratekeeper::{Rule, RuleSet};

use super::ReloadError;
use super::error::Reason;
use crate::{Document, Format, Registry, RuleFile};

/// Valid rules, ready to be put into force.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub(super) file: RuleFile,
    pub(super) rules: RuleSet,
    pub(super) count: usize,
    pub(super) version: Arc<str>,
    pub(super) format: Format,
}

/// What every set is read with.
#[derive(Clone, Debug, Default)]
pub(super) struct Reader {
    pub(super) registry: Registry,
    /// Rules of the application, which are in force beside those of the source.
    pub(super) beside: Vec<Rule>,
}

impl Reader {
    /// Reads a set, on a blocking thread: ten thousand rules take a good part of a second.
    pub(super) async fn read(self: &Arc<Self>, document: Document) -> Result<Set, ReloadError> {
        let (reader, name, version, format) =
            (Arc::clone(self), document.name().to_owned(), document.version().to_owned(), document.format());
        let read = tokio::task::spawn_blocking(move || reader.read_now(&document)).await;
        read.unwrap_or_else(|error| Err(Reason::Failed(error.to_string())))
            .map_err(|reason| ReloadError::refused(&name, &version, format, reason))
    }

    fn read_now(&self, document: &Document) -> Result<Set, Reason> {
        let parsed = RuleFile::parse(document.name(), document.text(), document.format(), &self.registry);
        let file = parsed.map_err(Reason::Wrong)?;
        let all: Vec<Rule> = file.rules().iter().chain(&self.beside).cloned().collect();
        let count = all.len();
        let rules = RuleSet::new(all).map_err(Reason::Unfit)?.with_version(document.version());
        Ok(Set { file, rules, count, version: document.version().into(), format: document.format() })
    }
}
