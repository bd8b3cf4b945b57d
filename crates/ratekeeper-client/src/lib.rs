#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod body;
mod budget;
mod call;
mod error;
mod field;
mod future;
mod layer;
mod observe;
mod pacer;
#[cfg(feature = "fleet")]
mod pause;
mod queue;
mod quota;
#[cfg(feature = "reqwest-middleware")]
mod reqwest_middleware;
mod retry;
mod service;

pub use self::body::{CloneAny, CloneBody, CloneEmpty};
pub use self::call::Paced;
pub use self::error::Error;
pub use self::future::ResponseFuture;
pub use self::layer::PacingLayer;
pub use self::pacer::{Pacer, PacerBuilder, Target};
#[cfg(feature = "reqwest-middleware")]
pub use self::reqwest_middleware::PacingMiddleware;
pub use self::retry::Retries;
pub use self::service::Pacing;
