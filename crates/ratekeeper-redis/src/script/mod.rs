//! The scripts that decide inside Redis.

use std::sync::LazyLock;

use redis::Script;

pub(crate) const CHARGE_TEXT: &str = concat!(
    include_str!("log.lua"),
    include_str!("charge.lua"),
    include_str!("counter.lua"),
    include_str!("reread.lua"),
    include_str!("beside.lua"),
    include_str!("charge_general.lua")
);
pub(crate) const SETTLE_TEXT: &str = concat!(
    include_str!("log.lua"),
    include_str!("settle.lua"),
    include_str!("counter.lua"),
    include_str!("reread.lua"),
    include_str!("beside.lua"),
    include_str!("settle_each.lua")
);

/// Decides requests.
pub(crate) static CHARGE: LazyLock<Script> = LazyLock::new(|| Script::new(CHARGE_TEXT));

/// Makes refunds and debits.
pub(crate) static SETTLE: LazyLock<Script> = LazyLock::new(|| Script::new(SETTLE_TEXT));
