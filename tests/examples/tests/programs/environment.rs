//! Environment variables that make no sense, which every example reports by name.

use crate::support::Program;

const CUSTOM_KEY: &str = env!("CARGO_BIN_EXE_example-custom-key");
const HYPER_ONLY: &str = env!("CARGO_BIN_EXE_example-hyper-only");

#[track_caller]
pub(crate) fn listen_is_named(path: &str, environment: &[(&str, &str)]) {
    for address in ["nonsense", "", "127.0.0.1", "127.0.0.1:99999"] {
        let error = Program::fails(path, &[environment, &[("LISTEN", address)]].concat());
        assert!(error.contains(&format!("cannot listen on LISTEN={address}\n")), "{error}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = Program::fails(path, &[environment, &[("LISTEN", &address)]].concat());
    assert!(error.contains(&format!("cannot listen on LISTEN={address}\n")), "{error}");
    assert!(error.contains("in use"), "{error}");
}

#[track_caller]
pub(crate) fn redis_is_named_without_its_password(path: &str) {
    for url in ["nonsense", "", "127.0.0.1:6379", "http://127.0.0.1", "redis://:hunter2@host:port"] {
        let error = Program::fails(path, &[("REDIS_URL", url)]);
        assert!(
            error.contains("REDIS_URL is not an address such as redis://127.0.0.1:6379"),
            "{url}: {error}"
        );
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn custom_key_names_an_address_that_makes_no_sense() {
    listen_is_named(CUSTOM_KEY, &[]);
}

#[test]
fn hyper_only_names_an_address_that_makes_no_sense() {
    listen_is_named(HYPER_ONLY, &[]);
}
