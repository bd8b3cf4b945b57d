//! The second listener.

use serde_json::{Value, json};

use crate::support::gateway::{Gateway, OPEN};
use crate::support::upstream::{HELLO, answering};
use crate::support::wire::Wire;

#[tokio::test]
async fn what_was_done_is_counted() {
    let rules = "[[rules]]\nname = \"two\"\nquota = \"2/day\"\n";
    let gateway = Gateway::start(rules, answering(HELLO).await, &[]);
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(gateway.get("/").await.0.status());
    }
    assert_eq!(statuses, [200, 200, 429]);
    let (status, text) = gateway.admin("/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "# TYPE gateway_requests_total counter",
        r#"gateway_requests_total{class="2xx"} 2"#,
        r#"gateway_requests_total{class="4xx"} 1"#,
        // Denied requests do not get that far.
        r#"gateway_upstream_responses_total{class="2xx"} 2"#,
        "# TYPE gateway_upstream_response_seconds histogram",
        r#"gateway_upstream_response_seconds_bucket{le="60"} 2"#,
        "gateway_upstream_response_seconds_count 2",
        "# TYPE gateway_connections_open gauge",
        // The limiter's metrics.
        r#"ratekeeper_decisions_total{rule="two",mode="enforce",outcome="admitted"} 2"#,
        r#"ratekeeper_decisions_total{rule="two",mode="enforce",outcome="denied"} 1"#,
        "ratekeeper_rules 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
}

#[tokio::test]
async fn the_readme_has_every_metric() {
    let gateway = Gateway::start(OPEN, answering(HELLO).await, &[]);
    gateway.get("/").await;
    let (_, text) = gateway.admin("/metrics").await;
    let readme = include_str!("../../README.md");
    let names: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(names.len() >= 8, "{text}");
    // The limiter's metrics have their own page.
    for name in names.into_iter().filter(|name| name.starts_with("gateway_")) {
        assert!(readme.contains(&format!("| `{name}`")), "{name}");
    }
}

#[tokio::test]
async fn there_is_nothing_to_change() {
    let gateway = Gateway::start(OPEN, answering(HELLO).await, &[]);
    assert_eq!(gateway.admin("/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(gateway.admin("/readyz").await, (200, "ready\n".to_owned()));
    assert_eq!(gateway.admin("/").await.0, 404);
    let mut client: Wire = gateway.connect_admin().await;
    client.send("POST /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    let (head, _) = client.answer().await;
    assert_eq!((head.status(), head.field("allow")), (405, Some("GET, HEAD")));
}

#[tokio::test]
async fn the_rules_in_force_are_told() {
    let gateway = Gateway::start(OPEN, answering(HELLO).await, &[]);
    let (status, text) = gateway.admin("/rules").await;
    let rules: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &rules["rules"], &rules["error"]), (200, &json!(1), &json!(null)));
    assert!(rules["version"].as_str().is_some_and(|version| version.len() >= 8), "{rules}");
}

#[tokio::test]
async fn metrics_are_not_served_to_clients() {
    let gateway = Gateway::start(OPEN, answering(HELLO).await, &[]);
    assert_eq!(gateway.get("/metrics").await.1, "hello\n");
}
