//! The scripts that decide inside Redis.

use std::sync::LazyLock;

use redis::Script;

pub(crate) const CHARGE_TEXT: &str = concat!(
    include_str!("script/charge.lua"),
    include_str!("script/counter.lua"),
    include_str!("script/charge_general.lua")
);
pub(crate) const REFUND_TEXT: &str = concat!(
    include_str!("script/numbers.lua"),
    include_str!("script/counter.lua"),
    include_str!("script/refund.lua")
);

/// Decides requests.
pub(crate) static CHARGE: LazyLock<Script> = LazyLock::new(|| Script::new(CHARGE_TEXT));

/// Gives back.
pub(crate) static REFUND: LazyLock<Script> = LazyLock::new(|| Script::new(REFUND_TEXT));
