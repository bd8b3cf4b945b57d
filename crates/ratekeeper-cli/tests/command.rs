//! The built command: exactly what it prints, and its exit code.
//!
//! The expected output is in `tests/expected`. To update and review it:
//! `UPDATE_EXPECTED=1 cargo test -p ratekeeper-cli`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const AT: &str = "1700000000";

fn run(args: &[&str]) -> Output {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    Command::new(env!("CARGO_BIN_EXE_ratekeeper")).args(args).current_dir(files).output().unwrap()
}

/// Checks that the command exits and prints as expected.
fn prints(name: &str, args: &[&str], code: i32) {
    let output = run(args);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(!out.contains('\x1b') && !err.contains('\x1b'), "nothing here is a terminal");
    let said = format!("$ ratekeeper {}\n{out}--- stderr\n{err}--- {code}\n", args.join(" "));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expected").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        fs::write(&path, &said).unwrap();
    }
    assert_eq!(output.status.code(), Some(code), "{said}");
    let expected = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(said, expected, "{name}");
}

#[test]
fn files_that_are_right_are_right() {
    prints("check", &["check", "rules.toml", "rules.yaml"], 0);
    prints("check-json", &["check", "--format", "json", "rules.toml"], 0);
}

#[test]
fn all_that_is_wrong_is_told_and_the_exit_code_says_so() {
    prints("check-wrong", &["check", "rules.toml", "wrong.toml", "nowhere.toml", "rules.ini"], 1);
    prints("check-wrong-json", &["check", "wrong.toml", "rules.toml", "nowhere.toml", "--format=json"], 1);
    prints("explain-wrong", &["explain", "wrong.toml", "--request", "/"], 1);
}

#[test]
fn a_request_is_explained() {
    let explain =
        |name, args: &[&str]| prints(name, &[&["explain", "rules.toml", "--at", AT], args].concat(), 0);
    explain("explain-login", &["--request", "POST /login", "--peer", "203.0.113.9"]);
    explain("explain-method", &["--request", "/login", "--peer", "[2001:db8::1:2:3]:4711"]);
    let api = ["--request", "GET /v1/users", "--host", "API.example.com:8080"];
    explain("explain-api", &[&api[..], &["--header", "x-api-key: hunter2"]].concat());
    explain("explain-tier", &[&api[..], &["--header", "x-api-key: hunter2", "--tier", "pro"]].concat());
    explain("explain-json", &[&api[..], &["--header", "x-api-key: hunter2", "--format", "json"]].concat());
    explain(
        "explain-preflight",
        &[
            "--request",
            "OPTIONS /v1/users",
            "--header",
            "origin: https://example.com",
            "--header",
            "access-control-request-method: GET",
        ],
    );
    explain(
        "explain-registered",
        &["--request", "POST https://export.example.com/", "--header", "x-forwarded-for: 192.0.2.1"],
    );
}

#[test]
fn what_only_counts_is_told_apart() {
    prints("explain-modes", &["explain", "modes.toml", "--request", "/", "--at", AT], 0);
}

#[test]
fn a_secret_is_shown_nowhere() {
    let request = ["explain", "rules.toml", "--request", "/v1/x", "--host", "api.example.com"];
    for (header, format) in [
        ("x-api-key: hunter2", "text"),
        ("x-api-key: hunter2", "json"),
        ("x-api-key: hunter2\n", "json"),
        ("x-api-key: hunter2\u{7f}", "text"),
        ("x api-key: hunter2", "text"),
    ] {
        let output = run(&[&request[..], &["--header", header, "--format", format]].concat());
        let said = format!("{output:?}");
        assert!(!said.contains("hunter2"), "{header:?}: {said}");
    }
}

#[test]
fn who_uses_it_wrongly_is_told_how() {
    prints("usage-nothing", &[], 2);
    prints("usage-command", &["chek", "rules.toml"], 2);
    prints("usage-no-file", &["check"], 2);
    prints("usage-no-request", &["explain", "rules.toml"], 2);
    prints("usage-request", &["explain", "rules.toml", "--request", "POST login"], 2);
    prints("usage-header", &["explain", "rules.toml", "--request", "/", "--header", "x-api-key"], 2);
    prints("usage-peer", &["explain", "rules.toml", "--request", "/", "--peer", "localhost"], 2);
    prints("usage-host", &["explain", "rules.toml", "--request", "/", "--host", "a b"], 2);
    prints("usage-format", &["check", "rules.toml", "--format", "xml"], 2);
}

#[test]
fn help_is_no_mistake() {
    prints("help", &["--help"], 0);
    prints("help-check", &["check", "--help"], 0);
    prints("help-explain", &["explain", "--help"], 0);
    assert!(String::from_utf8_lossy(&run(&["--version"]).stdout).starts_with("ratekeeper "));
}

#[test]
fn a_denial_has_a_status_and_a_body() {
    // For a missing key the response has the time of the machine, so not all of it is predictable.
    let output = run(&["explain", "rules.toml", "--request", "/v1/x", "--host", "api.example.com"]);
    let said = String::from_utf8(output.stdout).unwrap();
    for part in [
        "api: matches, but the request has not got its key\n  such requests are denied\n",
        "\n429 Too Many Requests\n",
        "  cache-control: no-store\n",
        r#"{"error":"rate_limited","message":"Too many requests.","rule":"api"}"#,
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn whoever_stops_reading_is_no_mistake() {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let mut child = Command::new(env!("CARGO_BIN_EXE_ratekeeper"))
        .args(["check", "rules.toml"])
        .current_dir(files)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
}
