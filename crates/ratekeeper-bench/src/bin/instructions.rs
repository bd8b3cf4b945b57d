//! Instructions per decision, counted by callgrind, and allocations per decision.
//!
//! The binary runs itself under valgrind, once for each subject, which counts only inside [`counted_loop`]:
//! starting a clock takes a number of instructions that differs from run to run.

use std::alloc::System;
use std::env;
use std::hint::black_box;

use ratekeeper_bench::subject::{Governor, Ours, Subject, rule};
use ratekeeper_bench::{callgrind, keys};
use ratekeeper_core::{Charge, HOUR, Quota};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const DECISIONS: usize = 100_000;
const NAMES: [&str; 10] = [
    "token bucket, one key",
    "token bucket, 100,000 keys",
    "token bucket, `decide`",
    "token bucket, three rules",
    "token bucket, denied",
    "fixed window",
    "sliding window",
    "leaky bucket",
    "governor, one key",
    "governor, 100,000 keys",
];

fn main() {
    if let Some(name) = env::args().nth(1) {
        let allocations = run(&name);
        println!("{allocations}");
        return;
    }
    println!("| | instructions per decision | allocations per decision |");
    println!("|---|---|---|");
    for name in NAMES {
        println!(
            "| {name} | {:.0} | {} |",
            callgrind::instructions(name, "counted_loop") / DECISIONS as f64,
            run(name)
        );
    }
}

/// Makes the decisions, after all keys are known, and returns the allocations per decision.
fn run(name: &str) -> f64 {
    let bucket = Quota::per_hour(1_000_000).burst(u32::MAX);
    let many = Quota::per_hour(1).burst(1_000_000);
    let one = [keys::key(12_345_678)];
    let all: Vec<String> = keys::all(100_000).collect();
    let ours = |quota, keys| decide(keys, ours(quota));
    match name {
        "token bucket, one key" => ours(bucket, &one),
        "token bucket, 100,000 keys" => ours(many, &all),
        "token bucket, `decide`" => {
            let Ours { store, rule, quota } = &Ours::new(1_000, bucket);
            decide(&one, |key| store.decide(&[Charge::new(*rule, key, quota)]).is_admitted())
        }
        "token bucket, three rules" => {
            let rules = ["first", "second", "third"].map(rule);
            let Ours { store, quota, .. } = &Ours::new(200_000, bucket);
            decide(&one, |key| store.decide(&rules.map(|rule| Charge::new(rule, key, quota))).is_admitted())
        }
        "token bucket, denied" => ours(Quota::per_hour(1), &one),
        "fixed window" => ours(Quota::fixed_window(u32::MAX, HOUR), &one),
        "sliding window" => ours(Quota::sliding_window(u32::MAX, HOUR), &one),
        "leaky bucket" => ours(Quota::leaky_bucket(1_000_000, HOUR), &one),
        "governor, one key" => governor(Governor::per_hour(1_000_000, u32::MAX), &one),
        "governor, 100,000 keys" => governor(Governor::per_hour(1, 1_000_000), &all),
        other => panic!("there is no {other}"),
    }
}

fn ours(quota: Quota) -> impl Fn(&String) -> bool {
    let ours = Ours::new(200_000, quota);
    move |key| ours.admits(key)
}

fn governor(governor: Governor<String>, keys: &[String]) -> f64 {
    decide(keys, move |key| governor.admits(key))
}

fn decide(keys: &[String], admits: impl Fn(&String) -> bool) -> f64 {
    keys.iter().for_each(|key| _ = black_box(admits(key)));
    let region = Region::new(ALLOCATOR);
    counted_loop(keys, admits);
    region.change().allocations as f64 / DECISIONS as f64
}

#[inline(never)]
fn counted_loop(keys: &[String], admits: impl Fn(&String) -> bool) {
    for key in keys.iter().cycle().take(DECISIONS) {
        black_box(admits(black_box(key)));
    }
}
