//! Server and client, as in the README.

use std::process::Command;
use std::time::Duration;

use grpc::{GreeterClient, Greeting, Name};
use ratekeeper_servers::{RedisServer, wait};
use tokio::net::TcpSocket;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::environment::{listen_is_named, redis_is_named_without_its_password};
use crate::support::Program;

const SERVER: &str = env!("CARGO_BIN_EXE_example-grpc-server");
const CLIENT: &str = env!("CARGO_BIN_EXE_example-grpc-client");

async fn connect(server: &Program) -> GreeterClient<Channel> {
    GreeterClient::connect(format!("http://{}", server.address())).await.unwrap()
}

async fn greet(client: &mut GreeterClient<Channel>) -> Result<Greeting, Status> {
    let name = Name { name: "you".to_owned() };
    client.greet(name).await.map(tonic::Response::into_inner)
}

#[test]
fn the_client_waits_for_the_sixth_call_and_the_other_method_has_a_budget_of_its_own() {
    let server = Program::start(SERVER, &[]);
    let output = Command::new(CLIENT).env("SERVER", server.address().to_string()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 10, "{text}");
    for (call, left) in (1..=5).zip((0..5).rev()) {
        assert_eq!(lines[call - 1], format!("{call}: hello, world ({left} left)"));
    }
    let denied = "6: ResourceExhausted: Too many requests (rule per-method). \
                  The limit of 5 does not allow this request. Try again in ";
    let wait = lines[5].strip_prefix(denied).unwrap_or_else(|| panic!("{text}"));
    assert!(wait.ends_with("s."), "{wait}");
    // After waiting that long it is admitted, at the first attempt.
    assert!(lines[6].starts_with("6: hello, world ("), "{text}");
    assert_eq!(lines[7..], ["often: hello, world (4 left)"; 3]);
}

#[tokio::test]
async fn two_servers_have_one_budget_in_redis_and_serve_nothing_without_it() {
    let redis = RedisServer::start().unwrap_or_else(|error| panic!("{error}"));
    let url = redis.url();
    let [one, other] = [(); 2].map(|()| Program::start(SERVER, &[("REDIS_URL", &url)]));
    let mut clients = [connect(&one).await, connect(&other).await];
    for turn in 0..5 {
        assert_eq!(greet(&mut clients[turn % 2]).await.unwrap().text, "hello, you");
    }
    for client in &mut clients {
        let status = greet(client).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
        let wait = status.get_details_retry_info().and_then(|info| info.retry_delay).unwrap();
        assert!(wait > Duration::ZERO && wait <= Duration::from_secs(5), "{wait:?}");
    }

    redis.kill().unwrap();
    for client in &mut clients {
        // What Redis denied is denied for up to a second more.
        let status =
            becomes(client, |answer| answer.as_ref().is_err_and(|status| status.code() == Code::Unavailable))
                .await
                .unwrap_err();
        let wait = status.get_details_retry_info().and_then(|info| info.retry_delay);
        assert_eq!(wait, Some(Duration::from_secs(1)));
        assert!(status.get_details_quota_failure().is_none());
    }

    redis.restart().unwrap();
    for client in &mut clients {
        assert_eq!(becomes(client, Result::is_ok).await.unwrap().text, "hello, you");
    }
}

/// The first response that is as expected.
async fn becomes(
    client: &mut GreeterClient<Channel>,
    wanted: impl Fn(&Result<Greeting, Status>) -> bool,
) -> Result<Greeting, Status> {
    let asking = async {
        loop {
            let answer = greet(client).await;
            if wanted(&answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(wait::LIMIT, asking).await.expect("the answer comes in time")
}

#[test]
fn an_address_that_makes_no_sense_is_named() {
    listen_is_named(SERVER, &[]);
    for address in ["nonsense", "", "127.0.0.1:99999"] {
        let error = Program::fails(CLIENT, &[("SERVER", address)]);
        assert!(error.contains(&format!("there is no server at SERVER={address}\n")), "{error}");
    }
}

#[test]
fn an_address_of_redis_that_makes_no_sense_is_told_without_its_password() {
    redis_is_named_without_its_password(SERVER);
}

#[tokio::test]
async fn a_server_that_is_not_there_and_a_port_that_is_taken_are_named() {
    // The port is taken, but nobody listens.
    let taken = TcpSocket::new_v4().unwrap();
    taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = Program::fails(SERVER, &[("LISTEN", &address)]);
    assert!(error.contains(&format!("cannot listen on LISTEN={address}")), "{error}");
    let error = Program::fails(CLIENT, &[("SERVER", &address)]);
    assert!(error.contains(&format!("there is no server at SERVER={address}")), "{error}");
}
