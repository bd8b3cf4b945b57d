//! How much may be said, with a manual clock.

mod client;

use std::time::Duration;

use ratekeeper::{ManualClock, Timestamp};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;

use self::client::Client;
use super::*;

/// A server whose clock stands still.
struct Server {
    clock: ManualClock,
    address: SocketAddr,
}

impl Server {
    async fn start() -> Self {
        let clock = ManualClock::new(Timestamp::from_secs(1_794_801_200));
        let app = app(MemoryStore::builder().clock(clock.clone()).build()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = app.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async { axum::serve(listener, app).await });
        Self { clock, address }
    }

    async fn join(&self, user: &str) -> Client {
        Client::join(self.address, user).await
    }
}

/// The remaining budgets in an answer: the connection's, and the user's.
fn remaining(answer: &Value) -> (u64, u64) {
    let of = |rule: &str| {
        let budgets = answer["budgets"].as_array().unwrap_or_else(|| panic!("no budgets in {answer}"));
        let budget = budgets.iter().find(|budget| budget["rule"] == rule).expect("a budget of this rule");
        budget["remaining"].as_u64().unwrap()
    };
    (of("per-connection"), of("per-user"))
}

#[track_caller]
fn is_sent(answer: &Value, left: (u64, u64)) {
    assert_eq!(answer["event"], "sent", "{answer}");
    assert_eq!(remaining(answer), left, "{answer}");
}

#[track_caller]
fn is_to_wait(answer: &Value, rule: &str, millis: u64, left: (u64, u64)) {
    assert_eq!((&answer["event"], &answer["rule"]), (&json!("wait"), &json!(rule)), "{answer}");
    assert_eq!((&answer["millis"], remaining(answer)), (&json!(millis), left), "{answer}");
}

#[tokio::test]
async fn who_speaks_too_much_is_told_how_long_to_wait_and_stays() {
    let server = Server::start().await;
    let mut alice = server.join("alice").await;
    is_sent(&alice.ask("one").await, (2, 4));
    is_sent(&alice.ask("two").await, (1, 3));
    is_sent(&alice.ask("three").await, (0, 2));
    is_to_wait(&alice.ask("four").await, "per-connection", 3_000, (0, 2));

    server.clock.advance(Duration::from_micros(2_999_999));
    // Rounded up.
    is_to_wait(&alice.ask("four").await, "per-connection", 1, (0, 2));
    server.clock.advance(Duration::from_micros(1));
    is_sent(&alice.ask("four").await, (0, 1));
}

#[tokio::test]
async fn a_user_has_one_budget_on_all_connections_and_a_denied_message_takes_from_none() {
    let server = Server::start().await;
    let (mut one, mut other) = (server.join("alice").await, server.join("alice").await);
    for left in [(2, 4), (1, 3), (0, 2)] {
        is_sent(&one.ask("from one").await, left);
    }
    for left in [(2, 1), (1, 0)] {
        is_sent(&other.ask("from the other").await, left);
    }
    // The connection has one left, and keeps it.
    is_to_wait(&other.ask("too much").await, "per-user", 5_000, (1, 0));
    is_to_wait(&other.ask("too much").await, "per-user", 5_000, (1, 0));
    // Here both deny, and the longer wait is reported.
    is_to_wait(&one.ask("too much").await, "per-user", 5_000, (0, 0));

    let mut bob = server.join("bob").await;
    is_sent(&bob.ask("I am somebody else").await, (2, 4));
    server.clock.advance(Duration::from_secs(5));
    // One of the connection's has been refilled, too.
    is_sent(&other.ask("at last").await, (1, 0));
}

#[tokio::test]
async fn everybody_hears_what_was_said_and_nobody_what_was_not() {
    let server = Server::start().await;
    let (mut alice, mut bob) = (server.join("alice").await, server.join("b%C3%B6b").await);
    for text in ["one", "two", "three", "too much"] {
        alice.say(text).await;
    }
    for text in ["alice: one", "alice: two", "alice: three"] {
        assert_eq!(bob.heard().await, text);
    }
    assert_eq!(bob.ask("<b>hello</b>").await["event"], "sent");
    for heard in ["alice: one", "alice: two", "alice: three", "böb: <b>hello</b>"] {
        assert_eq!(alice.heard().await, heard);
    }
}

#[tokio::test]
async fn joining_tells_what_is_left_and_takes_nothing_of_it() {
    let server = Server::start().await;
    server.join("alice").await.ask("hello").await;
    for _ in 0..3 {
        let (_, welcome) = Client::try_join(server.address, "alice").await.ok().unwrap();
        assert_eq!(remaining(&welcome), (3, 4));
    }
}

#[tokio::test]
async fn an_address_joins_ten_times_a_minute() {
    let server = Server::start().await;
    for user in 0..10 {
        server.join(&user.to_string()).await;
    }
    assert_eq!(Client::try_join(server.address, "alice").await.err(), Some(429));
    server.clock.advance(Duration::from_secs(6));
    server.join("alice").await;
}

#[tokio::test]
async fn a_name_that_is_none_is_refused() {
    let server = Server::start().await;
    for user in ["", "%20", "a%0Ab", "abcdefghijklmnopqrstu"] {
        assert_eq!(Client::try_join(server.address, user).await.err(), Some(400), "{user}");
    }
    server.join("abcdefghijklmnopqrst").await;
}

#[tokio::test]
async fn bytes_are_not_said_and_who_sends_too_much_at_once_is_disconnected() {
    let server = Server::start().await;
    let mut alice = server.join("alice").await;
    alice.send(Message::binary(vec![0xff; 10])).await;
    alice.send(Message::Ping(Vec::new().into())).await;
    let longest = "a".repeat(MAX_MESSAGE);
    assert_eq!(alice.ask(&longest).await["event"], "sent");
    alice.say(longest + "a").await;
    assert!(alice.is_closed().await);
}
