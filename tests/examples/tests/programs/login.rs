//! The login, as in its README.

use std::thread;

use ratekeeper_servers::{RedisServer, wait};

use crate::environment::{listen_is_named, redis_is_named_without_its_password};
use crate::support::{Program, Reply};

const PATH: &str = env!("CARGO_BIN_EXE_example-login");
const RIGHT: &str = "correct-horse";
const WRONG: &str = "incorrect-horse";

fn redis() -> RedisServer {
    RedisServer::start().unwrap_or_else(|error| panic!("{error}"))
}

fn login(program: &Program, account: &str, password: &str) -> Reply {
    let form = [("content-type", "application/x-www-form-urlencoded")];
    program.send("POST", "/login", &form, &format!("account={account}&password={password}"))
}

/// Fifty at once, each on a separate connection.
fn crowd(programs: &[&Program], account: &str) -> Vec<Reply> {
    thread::scope(|scope| {
        let turns: Vec<_> = (0..50)
            .map(|turn| scope.spawn(move || login(programs[turn % programs.len()], account, WRONG)))
            .collect();
        turns.into_iter().map(|turn| turn.join().unwrap()).collect()
    })
}

fn count(replies: &[Reply], status: u16) -> usize {
    replies.iter().filter(|reply| reply.status() == status).count()
}

/// Logs in, and fails to, until it is too often.
fn try_out(program: &Program) {
    for _ in 0..20 {
        let welcome = login(program, "alice", RIGHT);
        assert_eq!((welcome.status(), welcome.body()), (200, "welcome, alice\n"), "{welcome:?}");
        assert_eq!(
            (welcome.number("x-ratelimit-limit"), welcome.number("x-ratelimit-remaining")),
            (5, 4),
            "{welcome:?}"
        );
    }
    let failed = login(program, "alice", WRONG);
    assert_eq!((failed.status(), failed.number("x-ratelimit-remaining")), (401, 4), "{failed:?}");
    assert_eq!(failed.body(), "no such account, or not its password\n");
    assert_eq!(login(program, "alice", RIGHT).number("x-ratelimit-remaining"), 3);

    let replies = crowd(&[program], "alice");
    assert_eq!((count(&replies, 401), count(&replies, 429)), (4, 46), "{replies:?}");
    let replies = crowd(&[program], "bob");
    assert_eq!((count(&replies, 401), count(&replies, 429)), (5, 45), "{replies:?}");

    let denied = login(program, "alice", RIGHT);
    assert_eq!(denied.status(), 429, "{denied:?}");
    assert!((1..=60).contains(&denied.number("retry-after")), "{denied:?}");
    assert!(denied.body().contains(r#""rule":"guesses""#), "{denied:?}");
    assert_eq!(program.get("/login").status(), 405);
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
    assert!(names.contains("guesses") && !names.contains("alice"), "{names}");
}

#[test]
fn two_processes_have_one_budget_and_without_redis_nobody_gets_in() {
    let redis = redis();
    let url = redis.url();
    let [one, other] = [(); 2].map(|()| Program::start(PATH, &[("REDIS_URL", &url)]));
    let replies = crowd(&[&one, &other], "alice");
    assert_eq!((count(&replies, 401), count(&replies, 429)), (5, 45), "{replies:?}");

    redis.kill().unwrap();
    // What Redis denied is denied for up to a second more, so this is another account.
    wait::until("logins to be refused", wait::LIMIT, || {
        let reply = login(&one, "bob", "battery-staple");
        if reply.status() == 503 { Ok(()) } else { Err(format!("{reply:?}")) }
    })
    .unwrap();
    let refused = login(&one, "bob", WRONG);
    assert_eq!((refused.status(), refused.number("retry-after")), (503, 1), "{refused:?}");

    redis.restart().unwrap();
    wait::until("Redis to count again", wait::LIMIT, || {
        let reply = login(&one, "bob", "battery-staple");
        if reply.status() == 200 { Ok(()) } else { Err(format!("{reply:?}")) }
    })
    .unwrap();
}

#[test]
fn an_environment_that_makes_no_sense_is_named() {
    listen_is_named(PATH, &[]);
    redis_is_named_without_its_password(PATH);
}
