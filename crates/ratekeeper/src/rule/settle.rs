//! What a response makes of the charge for its request.

/// What to do with the charge for a request, now that its response is known.
///
/// See [`Rule::settle_by`](crate::Rule::settle_by).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settle {
    /// The charge stands.
    #[default]
    Keep,
    /// The request costs nothing: everything is given back.
    Free,
    /// The request costs this much: the difference is given back, or charged.
    Cost(u32),
}

impl From<u32> for Settle {
    fn from(cost: u32) -> Self {
        Self::Cost(cost)
    }
}

/// `None` means that the response does not report a cost: the charge stands.
impl From<Option<u32>> for Settle {
    fn from(cost: Option<u32>) -> Self {
        cost.map_or(Self::Keep, Self::Cost)
    }
}
