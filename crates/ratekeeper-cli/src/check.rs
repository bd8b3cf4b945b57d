//! `ratekeeper check`: whether rule files are valid.

use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use ratekeeper_rules::{Problem, Registry, RuleFile, RuleFileError};
use serde_json::{Value, json};

use crate::args::Format;
use crate::outcome::Outcome;

/// Why a file cannot be used.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// It is invalid, or cannot be read.
    File(RuleFileError),
    /// Each of its rules is valid, but they are not valid together.
    Together(String),
}

/// Reads a file.
pub(crate) fn load(path: &Path, registry: &Registry) -> Result<RuleFile, Wrong> {
    let file = RuleFile::load(path, registry).map_err(Wrong::File)?;
    match file.limiter().build() {
        Ok(_) => Ok(file),
        Err(error) => Err(Wrong::Together(format!("error: {}: {error}", path.display()))),
    }
}

impl Wrong {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Together(text) => text.clone(),
            Self::File(error) if !error.problems().is_empty() => error.to_string(),
            Self::File(error) => match error.source() {
                Some(source) => format!("error: {error}: {source}"),
                None => format!("error: {error}"),
            },
        }
    }

    fn problems(&self) -> Vec<Value> {
        match self {
            Self::File(error) if !error.problems().is_empty() => {
                error.problems().iter().map(problem).collect()
            }
            other => {
                let message = other.text();
                let message = message.strip_prefix("error: ").unwrap_or(&message);
                let unsaid = Value::Null;
                vec![json!({
                    "line": unsaid,
                    "column": unsaid,
                    "rule": unsaid,
                    "field": unsaid,
                    "message": message,
                    "help": unsaid,
                })]
            }
        }
    }
}

fn problem(problem: &Problem) -> Value {
    json!({
        "line": problem.line(),
        "column": problem.column(),
        "rule": problem.rule(),
        "field": problem.field(),
        "message": problem.message(),
        "help": problem.help(),
    })
}

pub(crate) fn run(paths: &[PathBuf], format: Format) -> Outcome {
    let checked: Vec<_> = paths.iter().map(|path| (path, load(path, &Registry::any()))).collect();
    let is_wrong = checked.iter().any(|(_, file)| file.is_err());
    let mut outcome = Outcome { is_wrong, ..Outcome::default() };
    if format == Format::Json {
        let files: Vec<Value> = checked.iter().map(|(path, file)| json(path, file)).collect();
        outcome.out = format!("{:#}\n", json!({ "ok": !is_wrong, "files": files }));
        return outcome;
    }
    for (path, file) in &checked {
        // Writing to a `String` does not fail.
        let _ = match file {
            Ok(file) => writeln!(outcome.out, "{}: {}", path.display(), fine(file)),
            Err(wrong) => {
                let apart = if outcome.err.is_empty() { "" } else { "\n" };
                writeln!(outcome.err, "{apart}{}", wrong.text())
            }
        };
    }
    outcome
}

fn fine(file: &RuleFile) -> String {
    match file.rules().len() {
        1 => "1 rule, nothing is wrong".to_owned(),
        many => format!("{many} rules, nothing is wrong"),
    }
}

fn json(path: &Path, file: &Result<RuleFile, Wrong>) -> Value {
    let (rules, problems) = match file {
        Ok(file) => (Some(file.rules().len()), Vec::new()),
        Err(wrong) => (None, wrong.problems()),
    };
    json!({ "file": path.to_string_lossy(), "rules": rules, "problems": problems })
}
