// One of the README's examples needs the feature `reload`, so doctests include it only with that feature.
#![cfg_attr(any(feature = "reload", not(doctest)), doc = include_str!("../README.md"))]
//!
//! # Where to find what
//!
//! - [`RuleFile`] is a file that was read; [`Problem`] is what is wrong with one; [`SCHEMA`] describes all.
//! - [`Registry`] has what a file refers to by name; the methods of [`ratekeeper::Rule`] say what its fields mean.
//! - [`LayerSettings::apply`] passes the settings of a file to the layer.
#![cfg_attr(
    feature = "reload",
    doc = "- [`Reloader`] puts rules into force while the service runs, from a [`Source`]: a [`FileSource`] or another. \
           [`Reloader::last_good`] keeps them for a start without it; [`ReloadHandle::status`] reports what is in force."
)]
#![cfg_attr(feature = "redis", doc = "- [`RedisSource`] is a key in Redis.")]
#![cfg_attr(
    feature = "postgres",
    doc = "- [`PostgresSource`] is a table in PostgreSQL, which [`PostgresSource::MIGRATION`] creates."
)]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

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
mod rejection;
#[cfg(feature = "reload")]
mod reload;
mod scope;
mod settings;
mod size;
#[cfg(feature = "reload")]
mod source;
mod suggest;
#[cfg(feature = "reload")]
mod told;
mod tree;

#[cfg(test)]
mod tests;

pub use self::error::RuleFileError;
pub use self::file::RuleFile;
pub use self::format::{Format, UnknownFormat};
pub use self::problem::Problem;
pub use self::registry::Registry;
pub use self::rejection::FileRejection;
#[cfg(feature = "reload")]
pub use self::reload::{Loaded, ReloadError, ReloadHandle, ReloadProblem, ReloadStatus, Reloader};
pub use self::settings::LayerSettings;
#[cfg(feature = "postgres")]
pub use self::source::PostgresSource;
#[cfg(feature = "redis")]
pub use self::source::RedisSource;
#[cfg(feature = "reload")]
pub use self::source::{Document, FileSource, Source, SourceError};

/// The JSON Schema of rule files in every format, with which editors check and complete them as they are
/// written.
pub const SCHEMA: &str = include_str!("../rules.schema.json");
