//! Pages for operators.

#[doc = include_str!("../docs/hints.md")]
pub mod hints {}

#[doc = include_str!("../docs/metrics.md")]
pub mod metrics {}
