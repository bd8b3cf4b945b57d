//! Pages for operators, and for tests.

#[doc = include_str!("../docs/hints.md")]
pub mod hints {}

#[doc = include_str!("../docs/metrics.md")]
pub mod metrics {}

#[cfg_attr(feature = "axum", doc = include_str!("../docs/testing.md"))]
#[cfg_attr(
    not(feature = "axum"),
    doc = "Testing an application that is limited. See the page with the feature `axum`."
)]
pub mod testing {}
