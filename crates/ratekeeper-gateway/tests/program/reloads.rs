//! Rules that change while it runs.

use std::time::{Duration, Instant};

use ratekeeper_servers::RedisServer;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::gateway::Gateway;
use crate::support::upstream::{HELLO, Upstream, answering};
use crate::support::wire::PATIENCE;

/// This many in a day, of which next to nothing is refilled during the test.
fn rules(limit: u32) -> String {
    format!("[[rules]]\nname = \"daily\"\nquota = \"{limit}/day\"\n")
}

/// The gateway's report on its rules, once it is as expected.
async fn told(gateway: &Gateway, good: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status: Value = serde_json::from_str(&gateway.admin("/rules").await.1).unwrap();
        if good(&status) {
            return status;
        }
        assert!(Instant::now() < deadline, "{status}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The limit and what remains, as reported to a client.
async fn budget(gateway: &Gateway) -> (u32, u32) {
    let (head, _) = gateway.get("/").await;
    assert_eq!(head.status(), 200);
    let [limit, remaining] =
        ["x-ratelimit-limit", "x-ratelimit-remaining"].map(|name| head.field(name).unwrap());
    (limit.parse().unwrap(), remaining.parse().unwrap())
}

async fn follows(gateway: &Gateway) {
    assert_eq!(budget(gateway).await, (5, 4));
    assert_eq!(budget(gateway).await, (5, 3));
    let before = told(gateway, |_| true).await;
    assert_eq!((&before["rules"], &before["error"]), (&1.into(), &Value::Null));

    gateway.write("rules.toml", &rules(10));
    let after = told(gateway, |status| status["version"] != before["version"]).await;
    assert_eq!(after["error"], Value::Null);
    // What was used stays used.
    assert_eq!(budget(gateway).await, (10, 7));
    assert_eq!(gateway.metric(r#"ratekeeper_reloads_total{source="file",outcome="applied"}"#).await, 2.0);
}

#[tokio::test]
async fn the_rules_follow_their_file() {
    let gateway = Gateway::start(&rules(5), answering(HELLO).await, &[]);
    follows(&gateway).await;
}

#[tokio::test]
async fn so_they_do_with_the_counters_in_redis() {
    let redis = RedisServer::start().unwrap();
    let args = ["--redis", &redis.url(), "--redis-timeout", "2s"];
    let gateway = Gateway::start(&rules(5), answering(HELLO).await, &args);
    follows(&gateway).await;
}

#[tokio::test]
async fn rules_that_make_no_sense_are_refused_and_those_before_stay() {
    let gateway = Gateway::start(&rules(5), answering(HELLO).await, &[]);
    let before = told(&gateway, |_| true).await;
    gateway.write("rules.toml", "[[rules]]\nname = \"daily\"\nquota = \"5/dya\"\n");
    let refused = told(&gateway, |status| !status["error"].is_null()).await;
    assert_eq!(refused["version"], before["version"]);
    let error = refused["error"].as_str().unwrap();
    assert!(error.contains("rules.toml:3:9") && error.contains("did you mean `day`?"), "{error}");
    assert_eq!(gateway.metric(r#"ratekeeper_reloads_total{source="file",outcome="refused"}"#).await, 1.0);
    gateway.logs("rules are refused, and those before stay in force").await;
    assert_eq!(budget(&gateway).await, (5, 4));
    // And is as ready as before.
    assert_eq!(gateway.admin("/readyz").await.0, 200);

    gateway.write("rules.toml", &rules(7));
    told(&gateway, |status| status["error"].is_null() && status["version"] != before["version"]).await;
    assert_eq!(budget(&gateway).await, (7, 5));
}

#[tokio::test]
async fn a_request_under_way_is_not_touched() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(&rules(5), &upstream, &[]);
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let (mut wire, _) = upstream.request().await;
    let before = told(&gateway, |_| true).await;
    gateway.write("rules.toml", &rules(1));
    told(&gateway, |status| status["version"] != before["version"]).await;
    wire.send(HELLO).await;
    // By the rules under which it arrived.
    assert_eq!(client.answer().await.0.field("x-ratelimit-limit"), Some("5"));
    assert_eq!(gateway.get("/").await.0.status(), 429);
}

#[tokio::test]
async fn settings_that_take_a_restart_are_told() {
    let gateway = Gateway::start(&rules(5), answering(HELLO).await, &[]);
    gateway.write("rules.toml", &format!("[layer]\nx-ratelimit-headers = false\n\n{}", rules(5)));
    let status = told(&gateway, |status| status["needs_restart"] != Value::Array(Vec::new())).await;
    assert_eq!(status["needs_restart"], serde_json::json!(["layer.x-ratelimit-headers"]));
    assert_eq!(budget(&gateway).await, (5, 4));
}

#[tokio::test]
async fn a_hangup_has_them_read() {
    let gateway = Gateway::start(&rules(5), answering(HELLO).await, &[]);
    gateway.signal(Signal::HUP);
    gateway.logs("SIGHUP: the rules were read").await;
    assert_eq!(budget(&gateway).await, (5, 4));
}
