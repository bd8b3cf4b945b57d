//! A rule file, read and checked.

use std::path::Path;

use ratekeeper::{Limiter, LimiterBuilder, Rule};

use crate::compile::compile;
use crate::error::RuleFileError;
use crate::format::Format;
use crate::model::File;
use crate::problem::Problem;
use crate::read::Read;
use crate::registry::Registry;
use crate::scope::{Findings, Scope};
use crate::settings::{LayerSettings, LimiterSettings};
use crate::size::{self, TooLarge};
use crate::tree;

/// Valid rules from a file.
///
/// They are the same [`Rule`]s as those made in code, and can be used beside them.
///
/// ```
/// use ratekeeper::{Quota, Rule};
/// use ratekeeper_rules::{Format, Registry, RuleFile};
///
/// let text = r#"
///     [[rules]]
///     name = "login"
///     match = "POST /login"
///     quota = "5/minute sliding-log"
/// "#;
/// let file = RuleFile::parse("rules.toml", text, Format::Toml, &Registry::new())?;
/// let limiter = file.limiter().rule(Rule::new("flood", Quota::per_second(50))).build()?;
/// # let _ = limiter;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RuleFile {
    rules: Vec<Rule>,
    layer: LayerSettings,
    limiter: LimiterSettings,
}

impl RuleFile {
    /// Reads a file, whose extension determines its format.
    ///
    /// ```no_run
    /// use ratekeeper_rules::{Registry, RuleFile};
    ///
    /// let file = RuleFile::load("rules.toml", &Registry::new())?;
    /// # Ok::<(), ratekeeper_rules::RuleFileError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the file cannot be read, is [too large](Registry::max_document_size), or
    /// [is invalid](Self::parse).
    pub fn load(path: impl AsRef<Path>, registry: &Registry) -> Result<Self, RuleFileError> {
        let path = path.as_ref();
        let format = Format::of(path).ok_or_else(|| RuleFileError::unknown_format(path))?;
        let bytes = size::read_file(path, registry.max_size())
            .map_err(|unread| RuleFileError::unread(path, unread))?;
        Self::parse(&path.to_string_lossy(), bytes, format, registry)
    }

    /// Parses a text. Errors refer to it by `name`.
    ///
    /// # Errors
    ///
    /// When it is [too large](Registry::max_document_size) or invalid. The error lists everything that is wrong
    /// with it.
    pub fn parse(
        name: &str,
        text: impl AsRef<[u8]>,
        format: Format,
        registry: &Registry,
    ) -> Result<Self, RuleFileError> {
        let bytes = text.as_ref();
        TooLarge::check(name, bytes.len(), registry.max_size()).map_err(RuleFileError::too_large)?;
        let findings = Findings::default();
        let read = read(bytes, format, registry, &Scope::file(&findings));
        match read {
            Some(file) if findings.is_empty() => Ok(file),
            _ => Err(RuleFileError::wrong(Problem::all(name, &String::from_utf8_lossy(bytes), findings))),
        }
    }

    /// The rules, in order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rules, in order.
    #[must_use]
    pub fn into_rules(self) -> Vec<Rule> {
        self.rules
    }

    /// The file's settings for the layer.
    #[must_use]
    pub const fn layer(&self) -> &LayerSettings {
        &self.layer
    }

    /// The file's settings besides its rules, which the layer and the limiter take when they are built.
    #[cfg(feature = "reload")]
    pub(crate) const fn settings(&self) -> (LayerSettings, LimiterSettings) {
        (self.layer, self.limiter)
    }

    /// Starts building a limiter with the rules and bounds of the file. It counts in memory unless another
    /// store is set.
    pub fn limiter(&self) -> LimiterBuilder {
        self.limiter.apply(Limiter::builder()).rules(self.rules.iter().cloned())
    }
}

fn read(bytes: &[u8], format: Format, registry: &Registry, scope: &Scope<'_>) -> Option<RuleFile> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let at = error.valid_up_to();
            scope.problem(at..at, "this is not UTF-8");
            return None;
        }
    };
    let tree = tree::parse(text, format, scope)?;
    let file = File::read(&tree, scope)?;
    let (rules, layer, limiter) = compile(&file, registry, scope);
    Some(RuleFile { rules, layer, limiter })
}
