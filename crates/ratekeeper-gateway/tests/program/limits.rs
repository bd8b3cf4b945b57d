//! The rule files of the README, each of them tested.

use std::time::{Duration, Instant};

use ratekeeper_servers::RedisServer;
use serde_json::Value;

use crate::support::gateway::Gateway;
use crate::support::upstream::{HELLO, Upstream, answering};
use crate::support::wire::{Head, PATIENCE};

const README: &str = include_str!("../../README.md");

/// The rule files of the README, by the names in their first lines.
fn files() -> Vec<(&'static str, &'static str)> {
    let blocks = README.split("```toml\n").skip(1).map(|block| block.split("```").next().unwrap());
    blocks.map(|text| (text.lines().next().unwrap().strip_prefix("# ").expect("a name"), text)).collect()
}

fn file(name: &str) -> &'static str {
    files().into_iter().find(|(found, _)| *found == name).unwrap_or_else(|| panic!("no {name}")).1
}

async fn start(name: &str, args: &[&str]) -> Gateway {
    Gateway::start(file(name), answering(HELLO).await, args)
}

async fn ask(gateway: &Gateway, line: &str, fields: &str) -> (Head, String) {
    let mut client = gateway.connect().await;
    client.send(format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{fields}\r\n")).await;
    client.answer().await
}

/// Sends requests until one is denied, and returns how many were admitted and how long that took.
async fn until_denied(gateway: &Gateway, line: &str, fields: &str, rule: &str) -> (u32, Duration) {
    let start = Instant::now();
    for admitted in 0..1_000 {
        let (head, body) = ask(gateway, line, fields).await;
        if head.status() == 200 {
            continue;
        }
        assert_eq!(head.status(), 429, "{body}");
        assert!(head.field("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["rule"], rule);
        return (admitted, start.elapsed());
    }
    panic!("there is no end of it");
}

#[tokio::test]
async fn every_file_works() {
    let files = files();
    assert_eq!(files.len(), 9);
    for (name, text) in files {
        let gateway = start(name, &[]).await;
        let rules: Value = serde_json::from_str(&gateway.admin("/rules").await.1).unwrap();
        assert_eq!(rules["rules"], text.matches("[[rules]]").count(), "{name}");
        assert_eq!(gateway.get("/").await.0.status(), 200, "{name}");
    }
}

#[tokio::test]
async fn five_at_once_pass_the_first_file() {
    let gateway = start("rules.toml", &[]).await;
    let (admitted, elapsed) = until_denied(&gateway, "GET /", "", "per-client").await;
    assert!((5..=5 + elapsed.as_secs() / 2).contains(&admitted.into()), "{admitted} in {elapsed:?}");
}

#[tokio::test]
async fn a_token_bucket_forgives_a_burst() {
    let gateway = start("token-bucket.toml", &[]).await;
    let (admitted, elapsed) = until_denied(&gateway, "GET /api/a", "", "api").await;
    let back = elapsed.as_secs_f64() * 100.0 / 60.0;
    assert!(admitted >= 20 && f64::from(admitted) <= 20.0 + back, "{admitted} in {elapsed:?}");
    // A request that no rule matches is not limited, and its response has no fields.
    let (head, _) = ask(&gateway, "GET /other", "").await;
    assert_eq!((head.status(), head.field("x-ratelimit-limit")), (200, None));
}

#[tokio::test]
async fn a_fixed_window_counts_by_the_clock() {
    let gateway = start("fixed-window.toml", &[]).await;
    let (admitted, _) = until_denied(&gateway, "GET /", "x-api-key: alice\r\n", "hourly").await;
    // If the hour has just ended, two of them.
    assert!((50..=100).contains(&admitted), "{admitted}");
    let (head, _) = ask(&gateway, "GET /", "x-api-key: bob\r\n").await;
    assert_eq!((head.status(), head.field("x-ratelimit-remaining")), (200, Some("49")));
    assert_eq!(head.field("x-ratelimit-reset").unwrap().parse::<u64>().unwrap() % 3_600, 0);
}

#[tokio::test]
async fn a_sliding_window_has_no_edge() {
    let gateway = start("sliding-window.toml", &[]).await;
    let (admitted, elapsed) = until_denied(&gateway, "GET /search?q=a", "", "search").await;
    // What was used before the window's end still counts after it, and fades bit by bit.
    assert!(admitted >= 30 && u64::from(admitted) <= 30 + elapsed.as_secs(), "{admitted} in {elapsed:?}");
}

#[tokio::test]
async fn a_sliding_log_counts_each_one_for_each_client_and_account() {
    let gateway = start("sliding-log.toml", &["--trust-proxy", "127.0.0.1"]).await;
    let client = |address: &str| format!("x-forwarded-for: {address}\r\ncontent-length: 0\r\n");
    let alice = "POST /accounts/alice/login";
    // The proxy adds its client, and what precedes that is ignored.
    let (mut admitted, start) = (0, Instant::now());
    for number in 0..10 {
        let (head, _) = ask(&gateway, alice, &client(&format!("198.51.100.{number}, 192.0.2.1"))).await;
        admitted += u32::from(head.status() == 200);
    }
    assert!(admitted == 5 || start.elapsed() > Duration::from_secs(60), "{admitted}");
    for (line, address) in [(alice, "192.0.2.2"), ("POST /accounts/bob/login", "192.0.2.1")] {
        assert_eq!(ask(&gateway, line, &client(address)).await.0.status(), 200);
    }
}

#[tokio::test]
async fn a_leaky_bucket_holds_back_and_refuses_whom_it_cannot() {
    let gateway = start("leaky-bucket.toml", &[]).await;
    let start = Instant::now();
    let asked = (0..40).map(|_| ask(&gateway, "GET /reports/a", ""));
    let answers = futures_util::future::join_all(asked).await;
    let elapsed = start.elapsed();
    let count = |status: u16| answers.iter().filter(|(head, _)| head.status() == status).count();
    let (admitted, denied) = (count(200), count(429));
    assert_eq!(admitted + denied, 40);
    // By the time the last one arrived, there may have been room again.
    assert!(admitted >= 10, "{admitted}");
    let least = Duration::from_millis(200) * (u32::try_from(admitted).unwrap() - 1);
    assert!(elapsed >= least, "{admitted} in {elapsed:?}");
}

/// The upstream need not treat it as one.
#[tokio::test]
async fn a_preflight_is_counted_unless_the_file_says_otherwise() {
    let rules = "[[rules]]\nname = \"one\"\nquota = \"1/day\"\n";
    let preflight = "origin: http://a.example\r\naccess-control-request-method: GET\r\n";
    for (settings, status) in [("", 429), ("[layer]\ncharge-preflights = false\n", 200)] {
        let gateway = Gateway::start(&format!("{settings}{rules}"), answering(HELLO).await, &[]);
        assert_eq!(ask(&gateway, "OPTIONS /", preflight).await.0.status(), 200);
        assert_eq!(ask(&gateway, "OPTIONS /", preflight).await.0.status(), status, "{settings}");
    }
}

/// To some upstreams both names are the same.
#[tokio::test]
async fn a_key_by_another_name_is_neither_counted_nor_passed_on() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(file("fixed-window.toml"), &upstream, &[]);
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\nx_api_key: alice\r\nx-http-method-override: PUT\r\n\r\n").await;
    let (_, request) = upstream.request().await;
    assert_eq!((request.field("x_api_key"), request.field("x-api-key")), (None, None));
    assert_eq!(request.field("x-http-method-override"), Some("PUT"));
}

/// Patient with Redis, since the machine may be busy. A Redis that has gone refuses connections, which is
/// noticed immediately.
fn with(redis: &RedisServer) -> [String; 4] {
    ["--redis", &redis.url(), "--redis-timeout", "2s"].map(str::to_owned)
}

async fn start_with(redis: &RedisServer, name: &str) -> Gateway {
    let args = with(redis);
    start(name, &args.each_ref().map(String::as_str)).await
}

/// Sends requests until the response is as expected.
async fn becomes(
    gateway: &Gateway,
    line: &str,
    fields: &str,
    good: impl Fn(&Head) -> bool,
) -> (Head, String) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = ask(gateway, line, fields).await;
        if good(&answer.0) {
            return answer;
        }
        assert!(Instant::now() < deadline, "{answer:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn two_gateways_have_one_budget_in_redis() {
    let redis = RedisServer::start().unwrap();
    let gateways =
        [start_with(&redis, "fixed-window.toml").await, start_with(&redis, "fixed-window.toml").await];
    let key = "x-api-key: alice\r\n";
    for _ in 0..20 {
        for gateway in &gateways {
            assert_eq!(ask(gateway, "GET /", key).await.0.status(), 200);
        }
    }
    let (admitted, _) = until_denied(&gateways[0], "GET /", key, "hourly").await;
    assert!((10..=60).contains(&admitted), "{admitted}");
    // The other gateway knows it as well.
    let (rest, _) = until_denied(&gateways[1], "GET /", key, "hourly").await;
    assert!(rest == 0 || admitted > 10, "{rest}");
}

#[tokio::test]
async fn without_redis_allow_lets_requests_go_on() {
    let redis = RedisServer::start().unwrap();
    let gateway = start_with(&redis, "allow.toml").await;
    let (head, _) = ask(&gateway, "GET /", "").await;
    assert_eq!((head.status(), head.field("x-ratelimit-limit")), (200, Some("20")));
    redis.kill().unwrap();
    becomes(&gateway, "GET /", "", |head| head.field("x-ratelimit-limit").is_none()).await;
    for _ in 0..50 {
        assert_eq!(ask(&gateway, "GET /", "").await.0.status(), 200);
    }
    gateway.logs("the breaker has opened").await;
    assert!(gateway.metric("ratekeeper_redis_breakers_open").await > 0.0);
    redis.restart().unwrap();
    becomes(&gateway, "GET /", "", |head| head.field("x-ratelimit-limit") == Some("20")).await;
    gateway.logs("the breaker has closed").await;
}

#[tokio::test]
async fn without_redis_deny_says_503() {
    let redis = RedisServer::start().unwrap();
    let gateway = start_with(&redis, "deny.toml").await;
    let (line, fields) = ("POST /payments", "authorization: Bearer alice\r\ncontent-length: 0\r\n");
    assert_eq!(ask(&gateway, line, fields).await.0.status(), 200);
    redis.kill().unwrap();
    let (head, body) = becomes(&gateway, line, fields, |head| head.status() == 503).await;
    assert!(head.field("retry-after").is_some(), "{head:?}");
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["error"], "unavailable");
    // A request that the rule does not match is forwarded.
    assert_eq!(ask(&gateway, "GET /payments", "").await.0.status(), 200);
    redis.restart().unwrap();
    becomes(&gateway, line, fields, |head| head.status() == 200).await;
}

#[tokio::test]
async fn without_redis_local_has_a_share() {
    let redis = RedisServer::start().unwrap();
    let gateway = start_with(&redis, "local.toml").await;
    assert_eq!(ask(&gateway, "GET /", "").await.0.field("x-ratelimit-limit"), Some("100"));
    redis.kill().unwrap();
    becomes(&gateway, "GET /", "", |head| head.field("x-ratelimit-limit") == Some("25")).await;
    let (admitted, elapsed) = until_denied(&gateway, "GET /", "", "api").await;
    let back = elapsed.as_secs_f64() * 25.0 / 60.0;
    assert!(admitted >= 20 && f64::from(admitted) <= 25.0 + back, "{admitted} in {elapsed:?}");
}

#[tokio::test]
async fn it_starts_without_redis_and_uses_it_when_it_is_there() {
    let redis = RedisServer::start().unwrap();
    redis.kill().unwrap();
    let gateway = start_with(&redis, "deny.toml").await;
    gateway.logs("the gateway begins without it").await;
    let (line, fields) = ("POST /payments", "authorization: Bearer alice\r\ncontent-length: 0\r\n");
    assert_eq!(ask(&gateway, line, fields).await.0.status(), 503);
    redis.restart().unwrap();
    becomes(&gateway, line, fields, |head| head.status() == 200).await;
}
