//! The rules in force.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use tollgate_rules::{Registry, RuleFile, RuleFileError};

/// Reads the file.
///
/// # Errors
///
/// When it cannot be read or makes no sense.
pub(crate) fn load(path: &Path) -> Result<RuleFile, RuleFileError> {
    // Nothing is registered: a file that refers to a name is told so.
    RuleFile::load(path, &Registry::new())
}

/// Which rules are in force.
#[derive(Clone, Debug)]
pub(crate) struct Status(Arc<State>);

#[derive(Debug)]
struct State {
    rules: usize,
}

impl Status {
    pub(crate) fn new(file: &RuleFile) -> Self {
        Self(Arc::new(State { rules: file.rules().len() }))
    }

    pub(crate) fn to_json(&self) -> String {
        json!({ "version": 1, "rules": self.0.rules, "error": null }).to_string()
    }
}
