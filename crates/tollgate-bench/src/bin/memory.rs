//! Time per decision in memory: few and many keys, one rule and three, the five algorithms.

use std::hint::black_box;

use tollgate_bench::keys;
use tollgate_bench::subject::{Governor, Ours, Subject, rule};
use tollgate_bench::timing::{Medians, interleave, nanos_per_decision};
use tollgate_core::{Charge, HOUR, Quota};

const ROUNDS: usize = 9;
/// Requests per round, in all threads together.
const REQUESTS: usize = 1_000_000;

fn main() {
    against_governor();
    by_number_of_keys();
    by_number_of_rules();
    by_algorithm();
}

/// The keys of each thread's requests.
fn split(threads: usize, keys: impl Fn(usize, u64) -> Vec<String>) -> Vec<Vec<String>> {
    (0..threads).map(|thread| keys(REQUESTS / threads, thread as u64)).collect()
}

fn against_governor() {
    println!("\n## Beside governor 0.10, one rule, nanoseconds per decision\n");
    println!("| keys | threads | ours | ours, `decide` | governor | times as fast |");
    println!("|---|---|---|---|---|---|");
    // Such that no request is denied and no key expires while this runs.
    let hot = (1_000_000, u32::MAX);
    let many = (1, 1_000_000);
    for threads in [1, 2] {
        row("1", threads, 1, hot, &split(threads, |len, _| keys::one(len)));
    }
    for threads in [1, 2] {
        let requests = split(threads, |len, seed| keys::uniform(100_000, len, seed));
        row("100,000 uniform", threads, 100_000, many, &requests);
    }
    for threads in [1, 2] {
        let requests = split(threads, |len, seed| keys::zipf(1_000_000, len, seed));
        row("1,000,000 Zipf", threads, 1_000_000, many, &requests);
    }
}

fn row(name: &str, threads: usize, count: u64, (limit, burst): (u32, u32), requests: &[Vec<String>]) {
    let ours = Ours::new(2 * count as usize, Quota::per_hour(limit).burst(burst));
    let governor = Governor::per_hour(limit, burst);
    for key in keys::all(count) {
        assert!(ours.admits(&key) && governor.admits(&key));
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
        ],
    );
    let (ours, decide, governor) = (nanos[0], nanos[1], nanos[2]);
    println!("| {name} | {threads} | {ours:.1} | {decide:.1} | {governor:.1} | {:.1} |", ratios[2]);
}

fn by_number_of_keys() {
    println!("\n## By the number of keys, one thread, nanoseconds per decision\n");
    println!("| keys, uniform | ours | governor | times as fast |");
    println!("|---|---|---|---|");
    for count in [1_000, 100_000, 10_000_000] {
        let ours = Ours::new(2 * count as usize, Quota::per_hour(1).burst(1_000_000));
        let governor = Governor::per_hour(1, 1_000_000);
        for key in keys::all(count) {
            assert!(ours.admits(&key) && governor.admits(&key));
        }
        let requests = [keys::uniform(count, REQUESTS, 0)];
        let Medians { nanos, ratios } = interleave(
            ROUNDS,
            &[
                Box::new(|| nanos_per_decision(&requests, |key| ours.admits(key))),
                Box::new(|| nanos_per_decision(&requests, |key| governor.admits(key))),
            ],
        );
        println!("| {count} | {:.1} | {:.1} | {:.1} |", nanos[0], nanos[1], ratios[1]);
    }
}

fn by_number_of_rules() {
    println!("\n## By the number of rules, 100,000 keys, one thread, nanoseconds per request\n");
    println!("| rules | ours | times one rule |");
    println!("|---|---|---|");
    let Ours { store, quota, .. } = Ours::new(1_000_000, Quota::per_hour(1).burst(1_000_000));
    let rules = ["first", "second", "third"].map(rule);
    let requests = [keys::uniform(100_000, REQUESTS, 0)];
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
    println!("\n## By algorithm, 100,000 keys, one thread, nanoseconds per decision\n");
    println!("| algorithm | ours | times a token bucket |");
    println!("|---|---|---|");
    let many = 1_000_000;
    let quotas = [
        Quota::token_bucket(many, HOUR),
        Quota::fixed_window(many, HOUR),
        Quota::sliding_window(many, HOUR),
        Quota::sliding_log(many, HOUR),
        Quota::leaky_bucket(many, HOUR),
    ];
    let subjects = quotas.map(|quota| Ours::new(200_000, quota));
    let requests = &[keys::uniform(100_000, REQUESTS, 0)];
    let measures = subjects.each_ref().map(|ours| -> Box<dyn Fn() -> f64 + '_> {
        Box::new(move || nanos_per_decision(requests, |key| black_box(ours).admits(key)))
    });
    let Medians { nanos, ratios } = interleave(ROUNDS, &measures);
    for (i, quota) in quotas.iter().enumerate() {
        println!("| {} | {:.1} | {:.2} |", quota.algorithm(), nanos[i], ratios[i]);
    }
}
