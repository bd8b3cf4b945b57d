//! How much memory a document takes while it is read.
//!
//! In a binary of its own, because the system counts the memory of a whole process.

#![cfg(all(target_os = "linux", feature = "yaml"))]

use std::time::{Duration, Instant};

use ratekeeper_rules::{Format, Registry, RuleFile};

/// The largest document that is read by default.
const SIZE: usize = 1 << 20;
/// What the process may take in all.
const MAX_MEMORY: usize = 256 << 20;
/// Far more than any document takes, and far less than one takes that is read in quadratic time.
const MAX_TIME: Duration = Duration::from_secs(60);

/// The most memory that this process has ever had.
fn peak_memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("the peak");
    let kibibytes: usize = line.split_whitespace().nth(1).expect("a number").parse().expect("a number");
    kibibytes << 10
}

fn filled(head: &str, unit: &str, tail: &str) -> String {
    format!("{head}{}{tail}", unit.repeat((SIZE - head.len() - tail.len()) / unit.len()))
}

fn numbered(head: &str, unit: impl Fn(usize) -> String) -> String {
    let mut text = head.to_owned();
    for unit in (0..).map(unit) {
        if text.len() + unit.len() > SIZE {
            break;
        }
        text += &unit;
    }
    text
}

/// Reads a document, and shows what is wrong with it.
fn check(format: Format, what: &str, text: &str) {
    assert!(text.len() <= SIZE);
    let started = Instant::now();
    let _ = RuleFile::parse("rules", text, format, &Registry::new()).map_err(|error| error.to_string());
    let (took, peak) = (started.elapsed(), peak_memory());
    assert!(peak <= MAX_MEMORY, "{what:?} as {format} brings the process to {} MiB", peak >> 20);
    assert!(took <= MAX_TIME, "{what:?} as {format} takes {took:?}");
}

#[test]
fn no_document_takes_much_memory_or_time() {
    let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    for format in [Format::Toml, Format::Json, Format::Yaml] {
        for unit in ["\r", "\n", "[", "{", "=", "a=[", "- ", "a."] {
            check(format, unit, &filled("", unit, ""));
        }
        check(format, "nested", &nested(SIZE / 2));
        let (head, tail) = if format == Format::Toml { ("rules=[", "1]") } else { ("{\"rules\":[", "1]}") };
        check(format, "numbers", &filled(head, "1,", tail));
        check(format, "empty lists", &filled(head, "[],", tail));
        check(format, "empty tables", &filled(head, "{},", tail));
        check(format, "nested lists", &filled(head, &format!("{},", nested(30)), tail));
    }
    let rule = |i| format!("[[rules]]\nname = \"r{i}\"\nquota = \"1/s\"\n");
    check(Format::Toml, "rules", &numbered("", rule));
    check(Format::Toml, "tables", &numbered("", |i| format!("[a{i}]\n")));
    check(Format::Toml, "fields", &numbered("", |i| format!("a{i}={i}\n")));
    check(Format::Toml, "a deep name", &filled("a", ".a", "=1"));
    let rule = |i| format!("- name: r{i}\n  quota: 1/s\n");
    check(Format::Yaml, "rules", &numbered("rules:\n", rule));
    check(Format::Yaml, "aliases", &filled("a: &a x\nb: [", "*a,", "]"));
    let list = |i| format!("b{i}: &b{i} [*b,*b]\n");
    check(Format::Yaml, "aliases of aliases", &numbered("b: &b [x,x]\n", list));
}
