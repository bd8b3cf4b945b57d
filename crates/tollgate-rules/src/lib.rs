#![doc = include_str!("../README.md")]

mod compile;
mod duration;
mod error;
mod excerpt;
mod file;
mod format;
mod model;
mod problem;
mod read;
mod registry;
mod scope;
mod settings;
mod suggest;
mod tree;

#[cfg(test)]
mod tests;

pub use self::error::RuleFileError;
pub use self::file::RuleFile;
pub use self::format::Format;
pub use self::problem::Problem;
pub use self::registry::Registry;
pub use self::settings::LayerSettings;

/// The JSON Schema of rule files, of every format, by which editors check and complete them while they are written.
pub const SCHEMA: &str = include_str!("../rules.schema.json");
