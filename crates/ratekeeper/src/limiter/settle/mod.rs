//! Settling what a request has really cost, once that is known.
//!
//! The cost that is charged before a request is forwarded is a reservation. Many concurrent requests cannot
//! slip under the limit, because each has taken its part. The real cost is settled afterwards: by the
//! response's head (as a [rule](crate::Rule::settle_by) specifies), by the handler ([`Limits`]), or by the
//! body as it passes ([`Metered`]).

mod account;
mod limits;
mod meter;
mod metered;

pub(crate) use self::account::Account;
pub use self::limits::Limits;
pub use self::meter::{ByteCount, Measure, Meter, MeterFuture, MeterLayer};
pub use self::metered::Metered;
