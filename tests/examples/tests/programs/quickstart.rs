//! The smallest service, started with an invalid `LISTEN`.

use crate::support::Program;

const PATH: &str = env!("CARGO_BIN_EXE_example-quickstart");

#[test]
fn a_bad_address_is_named_and_the_program_ends_with_1() {
    for address in ["nonsense", "", "127.0.0.1", "127.0.0.1:99999"] {
        let error = Program::fails(PATH, &[("LISTEN", address)]);
        assert!(error.contains(&format!("cannot listen on LISTEN={address}\n")), "{error}");
    }
}

#[test]
fn an_address_that_is_taken_is_named_and_the_program_ends_with_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = Program::fails(PATH, &[("LISTEN", &address)]);
    assert!(error.contains(&format!("LISTEN={address}")), "{error}");
}
