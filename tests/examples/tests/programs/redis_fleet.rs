//! Two processes and a Redis, as in the README.

use ratekeeper_servers::{RedisServer, wait};

use crate::environment::{listen_is_named, redis_is_named_without_its_password};
use crate::support::Program;

const PATH: &str = env!("CARGO_BIN_EXE_example-redis-fleet");

#[test]
fn two_processes_have_one_budget_and_a_half_each_without_redis() {
    let redis = RedisServer::start().unwrap_or_else(|error| panic!("{error}"));
    let url = redis.url();
    let nodes = [(); 2].map(|()| Program::start(PATH, &[("REDIS_URL", &url)]));

    let replies: Vec<_> = (0..60).map(|turn| nodes[turn % 2].get("/")).collect();
    for (reply, left) in replies.iter().zip((0..50).rev()) {
        assert_eq!(reply.status(), 200, "{reply:?}");
        assert!(reply.body() == "hello\n", "{reply:?}");
        assert_eq!((reply.number("x-ratelimit-limit"), reply.number("x-ratelimit-remaining")), (50, left));
    }
    for reply in &replies[50..] {
        assert_eq!(reply.status(), 429, "{reply:?}");
        assert_eq!((reply.number("x-ratelimit-limit"), reply.number("x-ratelimit-remaining")), (50, 0));
        assert!((1..=10).contains(&reply.number("retry-after")), "{reply:?}");
        assert!(reply.body().contains(r#"{"error":"rate_limited""#), "{reply:?}");
    }

    redis.kill().unwrap();
    for node in &nodes {
        // What Redis denied is denied for up to a second more.
        let first = wait::until("the process to decide by itself", wait::LIMIT, || {
            let reply = node.get("/");
            if reply.number("x-ratelimit-limit") == 25 { Ok(reply) } else { Err(format!("{reply:?}")) }
        });
        assert_eq!(first.unwrap().status(), 200);
        let statuses: Vec<_> = (0..30).map(|_| node.get("/").status()).collect();
        assert_eq!(statuses[..24], [200; 24]);
        assert_eq!(statuses[24..], [429; 6]);
    }

    redis.restart().unwrap();
    for node in &nodes {
        wait::until("Redis to decide again", wait::LIMIT, || {
            let reply = node.get("/");
            if reply.number("x-ratelimit-limit") == 50 { Ok(()) } else { Err(format!("{reply:?}")) }
        })
        .unwrap();
    }
}

#[test]
fn an_address_of_redis_that_makes_no_sense_is_told_without_its_password() {
    redis_is_named_without_its_password(PATH);
}

#[test]
fn an_address_to_listen_on_that_makes_no_sense_is_named() {
    let redis = RedisServer::start().unwrap_or_else(|error| panic!("{error}"));
    listen_is_named(PATH, &[("REDIS_URL", &redis.url())]);
}
