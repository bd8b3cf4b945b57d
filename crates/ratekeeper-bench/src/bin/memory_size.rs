//! Resident memory per key at ten million keys.
//!
//! Each subject is filled in its own process, because the next one would reuse what it gives back to the
//! allocator.

use std::env;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use ratekeeper_bench::keys;
use ratekeeper_bench::subject::{Governor, Ours, Subject};
use ratekeeper_core::{Key, Quota};

const KEYS: u32 = 10_000_000;
/// Keys fall into shards at random, so a store for ten million keys needs a little more room than that, or
/// some shard is full before the others are.
const MAX_KEYS: usize = KEYS as usize + KEYS as usize / 20;
const PAGE: f64 = 4_096.0;

const NAMES: [&str; 4] = ["ours, text", "ours, address", "governor, `String`", "governor, `IpAddr`"];

fn main() {
    if let Some(name) = env::args().nth(1) {
        println!("{:.1}", bytes_per_key(&name));
        return;
    }
    println!("{KEYS} keys, `max_keys({MAX_KEYS})`\n");
    println!("| | resident bytes per key |");
    println!("|---|---|");
    for name in NAMES {
        let binary = env::current_exe().expect("the path of this binary");
        let output = Command::new(binary).arg(name).output().expect("this binary runs");
        println!("| {name} | {} |", String::from_utf8_lossy(&output.stdout).trim());
    }
}

fn bytes_per_key(name: &str) -> f64 {
    let quota = Quota::per_hour(1).burst(1_000_000);
    let text = |number| keys::key(u64::from(number));
    match name {
        "ours, text" => fill_ours(quota, text),
        "ours, address" => fill_ours(quota, |number| Key::from(address(number))),
        "governor, `String`" => fill(&Governor::per_hour(1, 1_000_000), text),
        "governor, `IpAddr`" => fill(&Governor::per_hour(1, 1_000_000), address),
        other => panic!("there is no {other}"),
    }
}

fn address(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(number).into()
}

fn fill_ours<K>(quota: Quota, key: impl Fn(u32) -> K) -> f64
where
    Ours: Subject<K>,
{
    let ours = Ours::new(MAX_KEYS, quota);
    let bytes = fill(&ours, key);
    assert_eq!((ours.store.len(), ours.store.evicted()), (KEYS as usize, 0), "all keys are there");
    bytes
}

/// Makes all keys known and returns by how much the process grew.
fn fill<K>(subject: &impl Subject<K>, key: impl Fn(u32) -> K) -> f64 {
    let before = resident();
    assert!((0..KEYS).all(|number| subject.admits(&key(number))));
    (resident() - before) / f64::from(KEYS)
}

fn resident() -> f64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.expect("the resident pages are the second number") * PAGE
}
