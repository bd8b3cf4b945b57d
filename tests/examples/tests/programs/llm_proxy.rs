//! The proxy of a language model, as in its README.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ratekeeper_servers::{RedisServer, wait};

use crate::environment::{listen_is_named, redis_is_named_without_its_password};
use crate::support::{Program, Reply};

const PATH: &str = env!("CARGO_BIN_EXE_example-llm-proxy");

fn redis() -> RedisServer {
    RedisServer::start().unwrap_or_else(|error| panic!("{error}"))
}

fn ask(program: &Program, prompt: &str, max_tokens: u32) -> Reply {
    let body = format!(r#"{{"prompt":"{prompt}","max_tokens":{max_tokens}}}"#);
    program.send("POST", "/v1/completions", &[("authorization", "Bearer alice-key")], &body)
}

/// How many tokens were left before a response for which this many were reserved.
fn tokens_before(reply: &Reply, reserved: u64) -> u64 {
    let text = format!("{reply:?}");
    let left = text.split(r#"ratelimit: \"tokens\";r="#).nth(1).and_then(|rest| rest.split(';').next());
    left.and_then(|left| left.parse::<u64>().ok()).unwrap_or_else(|| panic!("no tokens in {text}")) + reserved
}

fn try_out(program: &Program) {
    let answer = ask(program, "one two three", 1_000);
    assert_eq!((answer.status(), answer.field("content-type")), (200, "text/event-stream"), "{answer:?}");
    assert_eq!(tokens_before(&answer, 1_004), 2_000);
    for part in [r#"{"text":"one "}"#, r#"{"text":"three "}"#, r#""total_tokens":6"#, "[DONE]"] {
        assert!(answer.body().contains(part), "{answer:?}");
    }
    // Not a thousand fewer, once Redis has been updated, which the response does not wait for. There are ten
    // requests in all, and each of these costs two tokens.
    let settled = (1..=5).any(|tries| {
        let next = ask(program, "one", 1);
        let is_settled = (1_984..=2_000).contains(&tokens_before(&next, 2));
        if !is_settled {
            std::thread::sleep(tries * Duration::from_millis(100));
        }
        is_settled
    });
    assert!(settled, "what was reserved was not given back");

    // Words without end, and a client that disconnects at the first.
    let body = format!(r#"{{"prompt":"{}","max_tokens":1000}}"#, "a ".repeat(1_000));
    let begin = Instant::now();
    let mut stream = TcpStream::connect(program.address()).unwrap();
    stream.set_read_timeout(Some(wait::LIMIT)).unwrap();
    let head = format!("host: x\r\nauthorization: Bearer alice-key\r\ncontent-length: {}", body.len());
    write!(stream, "POST /v1/completions HTTP/1.1\r\n{head}\r\n\r\n{body}").unwrap();
    let first = BufReader::new(stream).lines().map(Result::unwrap).find(|line| line.starts_with("data:"));
    assert_eq!(first.as_deref(), Some(r#"data: {"choices":[{"text":"a "}]}"#));

    let denied = ask(program, "what?", 900);
    assert_eq!(denied.status(), 429, "{denied:?}");
    assert!((1..=30).contains(&denied.number("retry-after")), "{denied:?}");
    let third = ask(program, "one", 1);
    let refilled = begin.elapsed().as_secs() * 2_000 / 60 + 34;
    assert_eq!(third.status(), 200, "{third:?}");
    assert!(tokens_before(&third, 2) <= 500 + refilled, "{third:?}");
}

#[test]
fn works_in_memory() {
    try_out(&Program::start(PATH, &[]));
}

#[test]
fn works_with_redis() {
    let redis = redis();
    try_out(&Program::start(PATH, &[("REDIS_URL", &redis.url())]));
    let names = format!("{:?}", redis.command(&["KEYS", "*"]).unwrap());
    assert!(names.contains("tokens") && !names.contains("alice"), "{names}");
}

#[test]
fn two_processes_have_one_budget_and_a_half_each_without_redis() {
    let redis = redis();
    let url = redis.url();
    let [one, other] = [(); 2].map(|()| Program::start(PATH, &[("REDIS_URL", &url)]));
    assert_eq!(ask(&one, "hi", 1).number("x-ratelimit-remaining"), 9);
    assert_eq!(ask(&other, "hi", 1).number("x-ratelimit-remaining"), 8);

    redis.kill().unwrap();
    wait::until("the process to decide by itself", wait::LIMIT, || {
        let reply = ask(&one, "hi", 1);
        if reply.number("x-ratelimit-limit") == 5 { Ok(()) } else { Err(format!("{reply:?}")) }
    })
    .unwrap();
}

#[test]
fn an_environment_that_makes_no_sense_is_named() {
    listen_is_named(PATH, &[]);
    redis_is_named_without_its_password(PATH);
}
