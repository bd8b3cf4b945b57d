//! What is done about a charge after it was made: refunds and debits.

use ratekeeper_core::{Quota, Receipt};

use crate::name::Counted;

/// One settlement of one counter.
#[derive(Clone, Debug)]
pub(crate) struct Settlement {
    pub(crate) counter: Counted,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// Gives back.
    Refund { cost: u32, receipt: Option<Receipt> },
    /// Takes what is due, whether or not it fits. The quota is valid, and the cost is not zero.
    Debit { quota: Quota, cost: u32, receipt: Option<Receipt> },
}
