//! What a request has really cost, once that is known.
//!
//! The cost that is charged before a request goes on is a reservation: many requests at once cannot slip under the
//! limit, as each has taken its part. What it should have been is settled afterwards, by the response's head (a
//! [rule](crate::Rule::settle_by) says how), by the handler ([`Limits`]), or by the body as it goes by
//! ([`Metered`]).

mod account;
mod limits;
mod meter;
mod metered;

pub(crate) use self::account::{Account, Settling};
pub use self::limits::Limits;
pub use self::meter::{ByteCount, Measure, Meter, MeterFuture, MeterLayer};
pub use self::metered::Metered;

/// What becomes of what was charged for a request, now that its response is known.
///
/// See [`Rule::settle_by`](crate::Rule::settle_by).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settle {
    /// It stays as it is.
    #[default]
    Keep,
    /// The request costs nothing: all is given back.
    Free,
    /// The request costs this much: the difference is given back, or charged.
    Cost(u32),
}

impl From<u32> for Settle {
    fn from(cost: u32) -> Self {
        Self::Cost(cost)
    }
}

/// `None` if the response does not tell: then the charge stays as it is.
impl From<Option<u32>> for Settle {
    fn from(cost: Option<u32>) -> Self {
        cost.map_or(Self::Keep, Self::Cost)
    }
}
