//! The program, over WebSockets.

use std::time::{Duration, Instant};

use ratekeeper_servers::{RedisServer, wait};

use super::client::Client;
use crate::environment::{listen_is_named, redis_is_named_without_its_password};
use crate::support::Program;

const PATH: &str = env!("CARGO_BIN_EXE_example-chat");

fn redis() -> RedisServer {
    RedisServer::start().unwrap_or_else(|error| panic!("{error}"))
}

/// Sends too much, and waits as told.
async fn try_out(program: &Program) {
    let page = program.get("/");
    assert_eq!((page.status(), page.field("content-type")), (200, "text/html; charset=utf-8"));
    assert!(page.body().contains("<title>Chat</title>"), "{page:?}");

    let mut alice = Client::join(program.address(), "alice").await;
    let mut bob = Client::join(program.address(), "bob").await;
    let start = Instant::now();
    for number in 0..10 {
        alice.say(number.to_string()).await;
    }
    let mut answers = Vec::new();
    for _ in 0..10 {
        answers.push(alice.answer().await);
    }
    let back = start.elapsed().as_secs() / 3;
    let sent = answers.iter().filter(|answer| answer["event"] == "sent").count() as u64;
    assert!((3..=3 + back).contains(&sent), "{sent} after {back} came back: {answers:?}");
    for number in 0..3 {
        assert_eq!(bob.heard().await, format!("alice: {number}"));
    }

    let denied = answers.iter().rfind(|answer| answer["event"] == "wait").expect("one that was too much");
    let millis = denied["millis"].as_u64().unwrap();
    assert!((1..=3_000).contains(&millis), "{denied}");
    // Waiting as long as told is enough, on the same connection.
    tokio::time::sleep(Duration::from_millis(millis)).await;
    assert_eq!(alice.ask("at last").await["event"], "sent");

    alice.say("a".repeat(4_097)).await;
    assert!(alice.is_closed().await);
}

#[tokio::test]
async fn works_in_memory() {
    try_out(&Program::start(PATH, &[])).await;
}

#[tokio::test]
async fn works_with_redis() {
    let redis = redis();
    try_out(&Program::start(PATH, &[("REDIS_URL", &redis.url())])).await;
}

#[tokio::test]
async fn joining_too_often_is_refused() {
    let program = Program::start(PATH, &[]);
    // Ten, and one more every six seconds, which cannot be many.
    let refused = loop {
        if let Err(status) = Client::try_join(program.address(), "alice").await {
            break status;
        }
    };
    assert_eq!(refused, 429);
    let replies = std::iter::repeat_with(|| program.get("/ws?user=alice"));
    let reply = replies.take(100).find(|reply| reply.status() == 429).expect("a refusal");
    assert!((1..=6).contains(&reply.number("retry-after")), "{reply:?}");
}

#[tokio::test]
async fn a_user_has_one_budget_in_two_processes_and_half_of_it_in_each_without_redis() {
    let redis = redis();
    let url = redis.url();
    let [one, other] = [(); 2].map(|()| Program::start(PATH, &[("REDIS_URL", &url)]));
    let start = Instant::now();
    let mut here = Client::join(one.address(), "alice").await;
    let mut there = Client::join(other.address(), "alice").await;
    let mut sent = 0;
    for client in [&mut here, &mut there] {
        for _ in 0..3 {
            sent += u64::from(client.ask("hello").await["event"] == "sent");
        }
    }
    let back = start.elapsed().as_secs() / 5;
    // Three here and, of one budget of five, two there.
    assert!((5..=5 + back).contains(&sent), "{sent} after {back} came back");

    let mut carol = Client::join(one.address(), "carol").await;
    redis.kill().unwrap();
    let deadline = Instant::now() + wait::LIMIT;
    loop {
        let answer = carol.ask("hello").await;
        if answer["budgets"][1]["limit"] == 2 {
            break;
        }
        assert!(Instant::now() < deadline, "{answer}");
    }
}

#[test]
fn an_environment_that_makes_no_sense_is_named() {
    listen_is_named(PATH, &[]);
    redis_is_named_without_its_password(PATH);
}
