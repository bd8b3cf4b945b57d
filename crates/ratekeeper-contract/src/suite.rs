//! The list of all cases, and the macro that makes tests of them.

/// Makes a test of each case: `suite!(attribute, harness)`.
///
/// The attribute is one for asynchronous tests, such as `tokio::test`; or just `test` for a store that needs
/// no runtime. The harness is an expression that is evaluated again for each case. The tests are in modules
/// named like those of the cases, so that the name of a failing test shows what it is about.
///
/// ```
/// # mod example {
/// use ratekeeper_contract::MemoryHarness;
///
/// ratekeeper_contract::suite!(test, MemoryHarness::new());
/// # }
/// ```
#[macro_export]
macro_rules! suite {
    (test, $harness:expr $(,)?) => {
        $crate::__suite! { [test] [$harness] }
    };
    ($attribute:meta, $harness:expr $(,)?) => {
        $crate::__suite! { [async $attribute] [$harness] }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __suite {
    ($how:tt $harness:tt) => {
        $crate::__suite! {
            @modules $how $harness
            worked_figures {
                a_sliding_window_at_99_of_100_admits_one_more
                a_sliding_window_at_50_of_100_admits_fifty_more
                a_sliding_window_above_100_denies_until_it_has_faded
                a_token_bucket_refills_steadily
                a_token_bucket_adds_to_what_was_left
                a_token_bucket_passes_its_burst_and_then_its_rate
                an_idle_token_bucket_fills_to_its_burst
                a_leaky_bucket_spaces_departures
                only_a_fixed_window_passes_twice_its_limit_around_an_edge
            }
            counting {
                admits_the_limit_and_says_what_remains
                an_idle_key_never_holds_more_than_its_quota
                a_cost_that_does_not_fit_is_denied_and_not_charged
                denials_do_not_prolong_the_wait
                a_cost_of_zero_takes_nothing
                one_key_under_two_rules_is_counted_twice
                slow_and_fast_rates_do_not_drift
                a_quota_that_makes_no_sense_admits_nothing_and_forgets_nothing
                departures_from_a_queue_are_never_closer_than_the_rate
            }
            waiting {
                a_wait_is_exact
                a_refill_and_a_reset_are_exact
                a_whole_budget_has_nothing_to_wait_for
                a_cost_above_the_capacity_is_never
                a_denied_request_waits_for_the_last_of_its_rules
            }
            all_or_nothing {
                all_are_charged_if_all_admit
                none_is_charged_if_one_denies
                outcomes_of_a_denied_request_tell_what_is_there
                an_empty_request_is_admitted
                a_key_charged_twice_in_one_request_is_charged_the_sum
                forty_rules_are_decided_together
                a_request_is_given_back_as_a_whole
                a_request_is_held_back_for_its_longest_queue
            }
            peeking {
                a_peek_says_what_a_charge_would
                a_peek_at_several_rules_charges_none
                a_peek_at_a_key_twice_says_what_a_charge_would
                a_peek_under_another_quota_does_not_change_the_quota
            }
            giving_back {
                all_refunds_of_a_call_are_made
                a_receipt_gives_its_charge_back
                without_a_receipt_the_last_is_given_back
                giving_back_never_lifts_above_the_quota
                a_charge_whose_window_is_over_is_not_given_back
                a_charge_from_before_the_clock_was_set_back_is_not_given_back
                a_sliding_window_gives_back_to_the_window_that_was_charged
                a_log_strikes_the_admission_of_the_receipt
                only_the_last_in_line_gives_its_place_back
                a_request_that_has_left_a_queue_keeps_the_distance_and_no_more
                a_refund_takes_place_though_nobody_waits_for_it
                a_reset_forgets_one_key_under_one_rule
                a_key_that_was_never_charged_can_be_reset
                a_late_refund_gives_back_what_is_still_out
            }
            debts {
                a_debit_that_fits_counts_like_a_charge
                the_order_of_debits_and_refunds_does_not_matter
                what_is_debited_for_a_charge_is_given_back_with_it
                a_debt_is_paid_off_at_the_quotas_pace
                a_refill_and_a_reset_include_the_debt
                no_debt_locks_for_longer_than_two_full_refills
                a_step_back_neither_forgives_a_debt_nor_prolongs_it
                another_rate_or_algorithm_forgives_the_debt
                a_smaller_burst_that_is_asked_forgives_nothing
                giving_back_pays_off
                what_costs_nothing_is_admitted_in_debt
                a_debt_denies_a_request_of_several_rules
                a_debit_takes_place_though_nobody_waits_for_it
                a_quota_that_makes_no_sense_is_not_debited
            }
            reservations {
                a_token_bucket_lends_what_comes_in_time
                a_leaky_bucket_refuses_a_place_that_comes_too_late
                a_wait_is_until_the_charge_would_be_admitted
                no_more_departs_than_the_bucket_allows
                at_most_a_minute_is_reserved_ahead
                a_reservation_that_is_given_back_is_there_again
                a_request_is_held_back_for_its_longest_reservation
                a_reservation_is_part_of_all_or_nothing
                windows_and_logs_ignore_reservations
                a_cost_above_the_capacity_is_never
                a_step_back_locks_for_no_longer_than_a_reservation
            }
            quota_changes {
                what_was_used_stays_used
                raising_a_limit_unblocks_at_once
                shrinking_a_limit_bites_at_once
                nobody_is_locked_for_longer_than_a_full_refill
                nobody_is_locked_for_longer_by_a_request_of_several_rules
                a_wait_after_a_change_is_exact
                changing_to_and_fro_between_equals_gains_nothing
            }
            two_quotas {
                a_charge_is_decided_under_its_own_and_counted_under_both
                a_quota_remembers_what_was_charged_under_the_other
                a_wait_under_either_is_exact
                nobody_is_locked_for_longer_than_a_full_refill
                a_step_back_locks_nobody_for_longer_than_a_full_refill
                a_wait_after_a_step_back_is_exact
                a_smaller_burst_that_is_asked_gives_nothing_back
                what_is_given_back_is_given_back_to_both
                a_reset_forgets_both
            }
            many_quotas {
                a_third_quota_replaces_the_older_state
                a_wait_under_any_of_them_is_exact
                nobody_is_locked_for_longer_than_a_full_refill
            }
            time {
                a_step_back_frees_nothing
                a_step_back_into_the_previous_window_frees_nothing
                a_step_back_locks_nobody_for_longer_than_a_full_refill
                a_step_back_locks_no_request_of_several_rules_for_longer
                a_wait_after_a_step_back_is_exact
                a_jittering_clock_admits_no_more
                a_clock_that_trembles_on_an_edge_admits_no_more
                a_whole_key_is_like_one_that_was_never_charged
                a_window_of_a_millisecond_is_over_for_good
            }
            keys {
                keys_that_differ_are_counted_apart
                a_text_counts_like_the_key_made_from_it
                very_long_keys_work_under_every_algorithm
                rules_that_differ_are_counted_apart
            }
            at_once {
                two_hundred_at_once_admit_exactly_the_limit
                mixed_costs_at_once_never_go_above_the_limit
                what_is_given_back_and_taken_at_once_adds_up
                several_rules_at_once_are_charged_for_those_admitted
                a_queue_gives_out_each_place_once
            }
            replay {
                three_hundred_quota_shapes_answer_like_the_algorithms
                changing_quotas_and_clocks_answer_like_the_algorithms
                requests_of_several_rules_answer_like_the_algorithms
            }
        }
    };
    (@modules $how:tt $harness:tt $($module:ident { $($case:ident)* })*) => {
        $(
            mod $module {
                #[allow(unused_imports)]
                use super::*;

                $($crate::__suite! { @case $how $harness $module $case })*
            }
        )*
    };
    (@case [test] [$harness:expr] $module:ident $case:ident) => {
        #[test]
        fn $case() {
            $crate::block_on($crate::$module::$case($harness));
        }
    };
    (@case [async $attribute:meta] [$harness:expr] $module:ident $case:ident) => {
        #[$attribute]
        async fn $case() {
            $crate::$module::$case($harness).await;
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::MemoryHarness;

    suite!(test, MemoryHarness::new());
}
