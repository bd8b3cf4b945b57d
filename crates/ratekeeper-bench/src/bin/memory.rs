//! Time per decision in memory: few and many keys, one rule and three, the five algorithms.
//!
//! Each row is measured in its own process. Memory that was freed before leaves holes all over the heap, and
//! keys that are made then do not lie in the order of the requests.

use std::env;
use std::process::Command;

use ratekeeper_bench::keys;
use ratekeeper_bench::subject::{Floor, Governor, Ours, Subject, rule};
use ratekeeper_bench::timing::{Medians, interleave, nanos_per_decision};
use ratekeeper_core::{Charge, HOUR, Quota};

const ROUNDS: usize = 9;
/// Requests per round, in all threads together.
const REQUESTS: usize = 1_000_000;

/// A title, the columns, and the functions that print the rows.
type Table = (&'static str, &'static str, &'static [fn()]);

const TABLES: [Table; 4] = [
    (
        "Beside governor 0.10, one rule, nanoseconds per decision",
        "| keys | threads | ours | ours, `decide` | governor | times as fast | floor | times as fast |",
        &[|| hot(1), || hot(2), || uniform(1), || uniform(2), || zipf(1), || zipf(2)],
    ),
    (
        "By the number of keys, one thread, nanoseconds per decision",
        "| keys, uniform | ours | governor | times as fast |",
        &[|| by_number(1_000), || by_number(100_000), || by_number(10_000_000)],
    ),
    (
        "By the number of rules, 100,000 keys, one thread, nanoseconds per request",
        "| rules | ours | times one rule |",
        &[by_rules],
    ),
    (
        "By algorithm, 100,000 keys, one thread, nanoseconds per decision",
        "| algorithm | ours | times a token bucket |",
        &[by_algorithm],
    ),
];

fn main() {
    let args: Vec<usize> = env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    if let [table, row] = args[..] {
        TABLES[table].2[row]();
        return;
    }
    let binary = env::current_exe().expect("the path of this binary");
    for (i, (title, columns, rows)) in TABLES.iter().enumerate() {
        println!("\n## {title}\n\n{columns}\n|{}", "---|".repeat(columns.matches('|').count() - 1));
        for row in 0..rows.len() {
            let status = Command::new(&binary).args([i.to_string(), row.to_string()]).status();
            assert!(status.is_ok_and(|status| status.success()), "row {row} of table {i} fails");
        }
    }
}

/// The keys of each thread's requests.
fn split(threads: usize, keys: impl Fn(usize, u64) -> Vec<String>) -> Vec<Vec<String>> {
    (0..threads).map(|thread| keys(REQUESTS / threads, thread as u64)).collect()
}

// Limits and bursts such that no request is denied and no key expires while this runs.
const HOT: (u32, u32) = (1_000_000, u32::MAX);
const MANY: (u32, u32) = (1, 1_000_000);

fn hot(threads: usize) {
    row("1", threads, 1, HOT, &split(threads, |len, _| keys::one(len)));
}

fn uniform(threads: usize) {
    let requests = split(threads, |len, seed| keys::uniform(100_000, len, seed));
    row("100,000 uniform", threads, 100_000, MANY, &requests);
}

fn zipf(threads: usize) {
    let requests = split(threads, |len, seed| keys::zipf(1_000_000, len, seed));
    row("1,000,000 Zipf", threads, 1_000_000, MANY, &requests);
}

fn row(name: &str, threads: usize, count: u64, (limit, burst): (u32, u32), requests: &[Vec<String>]) {
    let ours = Ours::new(2 * count as usize, Quota::per_hour(limit).burst(burst));
    let governor = Governor::per_hour(limit, burst);
    let floor = Floor::new(count as usize);
    for key in keys::all(count) {
        assert!(ours.admits(&key) && governor.admits(&key) && floor.admits(&key));
    }
    let Medians { nanos, ratios } = interleave(
        ROUNDS,
        &[
            Box::new(|| nanos_per_decision(requests, |key: &String| ours.admits(key))),
            Box::new(|| {
                nanos_per_decision(requests, |key: &String| {
                    ours.store.decide(&[Charge::new(ours.rule, key, &ours.quota)]).is_admitted()
                })
            }),
            Box::new(|| nanos_per_decision(requests, |key| governor.admits(key))),
            Box::new(|| nanos_per_decision(requests, |key| floor.admits(key))),
        ],
    );
    let [ours, decide, governor, floor] = nanos[..] else { unreachable!("there are four") };
    print!("| {name} | {threads} | {ours:.1} | {decide:.1} | {governor:.1} | {:.1} ", ratios[2]);
    println!("| {floor:.1} | {:.1} |", ratios[2] / ratios[3]);
}

fn by_number(count: u64) {
    let requests = [keys::uniform(count, REQUESTS, 0)];
    let ours = Ours::new(2 * count as usize, Quota::per_hour(MANY.0).burst(MANY.1));
    let governor = Governor::per_hour(MANY.0, MANY.1);
    for key in keys::all(count) {
        assert!(ours.admits(&key) && governor.admits(&key));
    }
    let Medians { nanos, ratios } = interleave(
        ROUNDS,
        &[
            Box::new(|| nanos_per_decision(&requests, |key| ours.admits(key))),
            Box::new(|| nanos_per_decision(&requests, |key| governor.admits(key))),
        ],
    );
    println!("| {count} | {:.1} | {:.1} | {:.1} |", nanos[0], nanos[1], ratios[1]);
}

fn by_rules() {
    let requests = [keys::uniform(100_000, REQUESTS, 0)];
    let Ours { store, quota, .. } = Ours::new(1_000_000, Quota::per_hour(MANY.0).burst(MANY.1));
    let rules = ["first", "second", "third"].map(rule);
    let Medians { nanos, ratios } = interleave(
        ROUNDS,
        &[
            Box::new(|| {
                nanos_per_decision(&requests, |key: &String| {
                    store.decide(&[Charge::new(rules[0], key, &quota)]).is_admitted()
                })
            }),
            Box::new(|| {
                nanos_per_decision(&requests, |key: &String| {
                    store.decide(&rules.map(|rule| Charge::new(rule, key, &quota))).is_admitted()
                })
            }),
        ],
    );
    for (i, count) in [1, 3].into_iter().enumerate() {
        println!("| {count} | {:.1} | {:.2} |", nanos[i], ratios[i]);
    }
}

fn by_algorithm() {
    let requests = &[keys::uniform(100_000, REQUESTS, 0)];
    let (limit, burst) = MANY;
    let quotas = [
        Quota::token_bucket(limit, HOUR).burst(burst),
        Quota::fixed_window(burst, HOUR),
        Quota::sliding_window(burst, HOUR),
        Quota::sliding_log(burst, HOUR),
        Quota::leaky_bucket(limit, HOUR).capacity(burst),
    ];
    let subjects = quotas.map(|quota| Ours::new(200_000, quota));
    let measures = subjects.each_ref().map(|ours| -> Box<dyn Fn() -> f64 + '_> {
        Box::new(move || nanos_per_decision(requests, |key| ours.admits(key)))
    });
    let Medians { nanos, ratios } = interleave(ROUNDS, &measures);
    for (i, quota) in quotas.iter().enumerate() {
        println!("| {} | {:.1} | {:.2} |", quota.algorithm(), nanos[i], ratios[i]);
    }
}
