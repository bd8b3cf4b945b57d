//! Common access to packed states.

/// Evaluates an expression on a slot's unpacked state, with the module of its algorithm in scope. `mut` packs
/// the state again afterwards.
macro_rules! with_state {
    (mut $packed:expr, $quota:expr, $now:expr, $logs:expr, |$module:ident, $state:ident| $call:expr) => {
        with_state!(@match $quota, $packed, $now, $logs, $module, $state, $call, mut)
    };
    ($packed:expr, $quota:expr, $now:expr, $logs:expr, |$module:ident, $state:ident| $call:expr) => {
        with_state!(@match $quota, $packed, $now, $logs, $module, $state, $call,)
    };
    (@match $quota:expr, $packed:expr, $now:expr, $logs:expr, $m:ident, $s:ident, $call:expr, $($mut:tt)?) => {
        match $quota.algorithm() {
            Algorithm::TokenBucket => with_state!(@in token_bucket, $quota, $packed, $now, $m, $s, $call, $($mut)?),
            Algorithm::FixedWindow => with_state!(@in fixed_window, $quota, $packed, $now, $m, $s, $call, $($mut)?),
            Algorithm::SlidingWindow => with_state!(@in sliding_window, $quota, $packed, $now, $m, $s, $call, $($mut)?),
            Algorithm::LeakyBucket => with_state!(@in leaky_bucket, $quota, $packed, $now, $m, $s, $call, $($mut)?),
            Algorithm::SlidingLog => {
                #[allow(unused_imports)]
                use sliding_log as $m;
                let $s = &$($mut)? $logs[$packed.narrow as usize];
                $call
            }
        }
    };
    (@in $algorithm:ident, $quota:expr, $packed:expr, $now:expr, $m:ident, $s:ident, $call:expr, mut) => {{
        use $algorithm as $m;
        let mut unpacked = <$algorithm::State as Pack>::unpack($packed, $quota, $now);
        let $s = &mut unpacked;
        let result = $call;
        $packed = unpacked.pack();
        result
    }};
    (@in $algorithm:ident, $quota:expr, $packed:expr, $now:expr, $m:ident, $s:ident, $call:expr,) => {{
        #[allow(unused_imports)]
        use $algorithm as $m;
        let $s = &<$algorithm::State as Pack>::unpack($packed, $quota, $now);
        $call
    }};
}

pub(super) use with_state;
