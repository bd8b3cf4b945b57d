//! The URL shortener, as in its README.

use std::time::Instant;

use ratekeeper_servers::{RedisServer, wait};

use crate::environment::{listen_is_named, redis_is_named_without_its_password};
use crate::support::{Program, Reply};

const PATH: &str = env!("CARGO_BIN_EXE_example-url-shortener");
const URL: &str = "https://www.rust-lang.org/";

fn redis() -> RedisServer {
    RedisServer::start().unwrap_or_else(|error| panic!("{error}"))
}

fn shorten(program: &Program, key: &str, url: &str) -> Reply {
    program.send("POST", "/shorten", &[("authorization", &format!("Bearer {key}"))], url)
}

/// Makes and follows links until both are too many.
fn try_out(program: &Program) {
    let made = shorten(program, "alice-key", URL);
    assert_eq!((made.status(), made.field("location"), made.body()), (201, "/1", "/1\n"), "{made:?}");
    assert_eq!((made.number("x-ratelimit-limit"), made.number("x-ratelimit-remaining")), (100, 99));

    let followed = program.get("/1");
    assert_eq!((followed.status(), followed.field("location")), (307, URL), "{followed:?}");
    assert_eq!(followed.number("x-ratelimit-limit"), 1_000);
    assert_eq!(program.get("/2").status(), 404);

    assert_eq!(shorten(program, "alice-key", "nonsense").status(), 400);
    assert_eq!(shorten(program, "mallory-key", URL).status(), 401);
    // The two were counted for the address, too, but not for the account. (At midnight its window restarts.)
    let made = shorten(program, "alice-key", URL);
    assert_eq!((made.status(), made.number("x-ratelimit-remaining")), (201, 96), "{made:?}");
    let account = made.fields("ratelimit").find_map(|member| member.strip_prefix(r#""shorten-account";r="#));
    let account = account.and_then(|left| left.split(';').next());
    assert!(matches!(account, Some("998" | "999")), "{made:?}");
    for left in (0..96).rev() {
        let made = shorten(program, "bob-key", URL);
        assert_eq!((made.status(), made.number("x-ratelimit-remaining")), (201, left), "{made:?}");
    }
    let denied = shorten(program, "alice-key", URL);
    assert_eq!(denied.status(), 429, "{denied:?}");
    assert!((1..=3_636).contains(&denied.number("retry-after")), "{denied:?}");
    assert!(denied.body().contains(r#""rule":"shorten-address""#), "{denied:?}");

    let start = Instant::now();
    // Two have been followed.
    let mut followed = 2_u32;
    let denied = loop {
        let reply = program.get("/1");
        if reply.status() != 307 {
            break reply;
        }
        followed += 1;
        assert!(followed < 5_000, "there is no end of it");
    };
    let refilled = start.elapsed().as_secs_f64() * 1_000.0 / 60.0;
    assert_eq!((denied.status(), denied.number("retry-after")), (429, 1), "{denied:?}");
    assert!(denied.body().contains(r#""rule":"follow""#), "{denied:?}");
    assert!(followed >= 1_000, "{followed}");
    // Those two may have been refilled before the loop.
    assert!(f64::from(followed) <= 1_002.0 + refilled, "{followed}, and {refilled} came back");
}

#[test]
fn works_in_memory() {
    try_out(&Program::start(PATH, &[]));
}

#[test]
fn works_with_redis() {
    let redis = redis();
    try_out(&Program::start(PATH, &[("REDIS_URL", &redis.url())]));
}

#[test]
fn two_processes_have_one_budget_and_without_redis_links_are_followed_but_not_made() {
    let redis = redis();
    let url = redis.url();
    let [one, other] = [(); 2].map(|()| Program::start(PATH, &[("REDIS_URL", &url)]));
    assert_eq!(shorten(&one, "alice-key", URL).number("x-ratelimit-remaining"), 99);
    assert_eq!(shorten(&other, "alice-key", URL).number("x-ratelimit-remaining"), 98);

    redis.kill().unwrap();
    wait::until("making links to be refused", wait::LIMIT, || {
        let reply = shorten(&one, "alice-key", URL);
        if reply.status() == 503 { Ok(()) } else { Err(format!("{reply:?}")) }
    })
    .unwrap();
    assert_eq!(one.get("/1").status(), 307);
}

#[test]
fn an_environment_that_makes_no_sense_is_named() {
    listen_is_named(PATH, &[]);
    redis_is_named_without_its_password(PATH);
}
