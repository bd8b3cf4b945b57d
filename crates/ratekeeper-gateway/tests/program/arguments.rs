//! What cannot be started, and how that is reported.

use crate::support::gateway::{Files, OPEN, fails};

const UPSTREAM: [&str; 2] = ["--upstream", "http://127.0.0.1:9"];

/// Starts it with good rules and these invalid arguments.
fn refused(args: &[&str]) -> (i32, String) {
    let files = Files::new();
    let rules = files.write("rules.toml", OPEN);
    let rules = ["--rules", rules.to_str().unwrap()];
    fails(&[&["--listen", "127.0.0.1:0"], &rules[..], args].concat())
}

#[test]
fn usage_is_told_and_ends_with_2() {
    for (args, told) in [
        (&[][..], "--upstream <URL>"),
        (&["--upstream", "localhost:9000"], "an upstream has a scheme and a host"),
        (&["--upstream", "ftp://localhost"], "an upstream is http or https"),
        (&["--upstream", "http://localhost/path"], "an upstream has no path"),
        (&[&UPSTREAM[..], &["--metrics", "everywhere"]].concat(), "--metrics"),
        (&[&UPSTREAM[..], &["--grace", "soon"]].concat(), "a time is a whole number and a unit"),
        (&[&UPSTREAM[..], &["--trust-proxy", "::ffff:0:0/0"]].concat(), "--trust-proxy"),
        (&[&UPSTREAM[..], &["--upstrem", "x"]].concat(), "--upstream"),
    ] {
        let (code, error) = refused(args);
        assert_eq!(code, 2, "{error}");
        assert!(error.contains(told), "{args:?}: {error}");
    }
}

#[test]
fn an_address_of_redis_is_not_repeated() {
    for url in ["nonsense-secret", "http://user:secret@127.0.0.1", "redis://:secret@:x"] {
        let (code, error) = refused(&[&UPSTREAM[..], &["--redis", url]].concat());
        assert_eq!(code, 2, "{error}");
        assert!(error.contains("--redis is not an address such as redis://127.0.0.1:6379"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn bad_rules_are_told_with_their_line_and_end_with_1() {
    let files = Files::new();
    let rules = files.write("rules.toml", "[[rules]]\nname = \"login\"\nquota = \"5/minuet\"\n");
    let rules = rules.to_str().unwrap();
    let (code, error) = fails(&[&["--rules", rules, "--listen", "127.0.0.1:0"], &UPSTREAM[..]].concat());
    assert_eq!(code, 1, "{error}");
    assert!(error.contains(&format!("{rules}:3:9")), "{error}");
    assert!(error.contains("3 | quota = \"5/minuet\"\n  |         ^^^^^^^^^^\n"), "{error}");
    assert!(error.contains("did you mean `minute`?"), "{error}");
}

#[test]
fn what_is_not_there_ends_with_1() {
    let (code, error) = fails(&[&["--rules", "/nowhere/rules.toml"], &UPSTREAM[..]].concat());
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("/nowhere/rules.toml cannot be read: No such file"), "{error}");

    let (code, error) = refused(&["--upstream", "https://localhost", "--upstream-ca", "/nowhere/ca.pem"]);
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("/nowhere/ca.pem"), "{error}");
}

#[test]
fn an_address_that_is_taken_ends_with_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, error) = refused(&[&UPSTREAM[..], &["--metrics", &address]].concat());
    assert_eq!(code, 1, "{error}");
    assert!(
        error.contains(&format!("cannot listen on --metrics {address}: Address already in use")),
        "{error}"
    );
}

#[test]
fn help_names_every_flag() {
    let output = std::process::Command::new(crate::support::gateway::PATH).arg("--help").output().unwrap();
    assert!(output.status.success());
    let help = String::from_utf8(output.stdout).unwrap();
    let readme = include_str!("../../README.md");
    let flags: Vec<_> = help.split_whitespace().filter(|word| word.starts_with("--")).collect();
    assert!(flags.len() > 15, "{help}");
    for flag in flags {
        assert!(readme.contains(&format!("| `{flag}")) || matches!(flag, "--help" | "--version"), "{flag}");
    }
}
