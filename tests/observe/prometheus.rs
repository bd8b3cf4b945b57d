//! The dashboard and the alerts, against a real Prometheus that scrapes a real server.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use ratekeeper_servers::Prometheus;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use crate::support::Recorded;
use crate::support::script::Scene;

/// How long a busy machine may take until everything is there.
const PATIENCE: Duration = Duration::from_secs(60);

/// Alerts that the traffic gives no cause for.
const QUIET: [&str; 6] = [
    "RatekeeperManyDenials",
    "RatekeeperNearLimit",
    "RatekeeperNoRoom",
    "RatekeeperStoreFails",
    "RatekeeperStoreSlow",
    "RatekeeperVersionsDiffer",
];

fn dashboards() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboards")
}

fn dashboard() -> Value {
    let text = std::fs::read_to_string(dashboards().join("ratekeeper.json")).expect("a dashboard");
    serde_json::from_str(&text).expect("JSON")
}

/// Every query of the dashboard, with the title of its panel, and with variables substituted as Grafana does.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| {
        let title = panel["title"].as_str().expect("a title");
        panel["targets"].as_array().into_iter().flatten().map(move |target| (title, target))
    });
    targets
        .map(|(title, target)| {
            let query = target["expr"].as_str().expect("an expression");
            let query = query.replace("$__rate_interval", "1m").replace("$rule", ".*");
            assert!(!query.contains('$'), "{title}: {query}");
            (title.to_owned(), query)
        })
        .collect()
}

/// The series that a query returns.
async fn ask(prometheus: &Arc<Prometheus>, query: &str) -> Vec<Value> {
    let (prometheus, expression) = (Arc::clone(prometheus), query.to_owned());
    let answer = tokio::task::spawn_blocking(move || prometheus.query(&expression)).await.expect("no panic");
    let answer = answer.unwrap_or_else(|error| panic!("{query}: {error}"));
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(answer["status"], "success", "{query}: {answer}");
    assert!(answer["warnings"].is_null(), "{query}: {answer}");
    answer["data"]["result"].as_array().cloned().unwrap_or_else(|| panic!("{query}: {answer}"))
}

/// Queries until all queries return something.
async fn until_all_give(prometheus: &Arc<Prometheus>, queries: &[(String, String)]) {
    let deadline = Instant::now() + PATIENCE;
    for (title, query) in queries {
        while ask(prometheus, query).await.is_empty() {
            assert!(Instant::now() < deadline, "{title} gives nothing: {query}");
            sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test]
#[ignore = "needs Prometheus, which ./scripts/test installs"]
async fn every_query_of_the_dashboard_and_every_alert_is_answered() {
    let recorded = Recorded::start();
    let (handle, scene) = (recorded.handle.clone(), Scene::start().await);
    let app = Router::new().route("/metrics", get(async move || handle.render()));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    let start = move || Prometheus::start(address, &dashboards().join("alerts.yml"));
    let prometheus = tokio::task::spawn_blocking(start).await.expect("no panic");
    let prometheus = Arc::new(prometheus.unwrap_or_else(|error| panic!("{error}")));

    // Scraped before and after, so that every counter has grown between two scrapes.
    scene.play(0).await;
    let seen = |name: &str| [("it is seen".to_owned(), name.to_owned())];
    until_all_give(&prometheus, &seen("ratekeeper_redis_batch_size_count")).await;
    scene.play(1).await;
    scene.lose_redis().await;
    scene.play_without_redis().await;
    until_all_give(&prometheus, &seen("ratekeeper_decisions_total{outcome=\"local_denied\"}")).await;
    scene.play_without_redis().await;

    until_all_give(&prometheus, &queries(&dashboard())).await;

    let alerts = ask(&prometheus, "prometheus_build_info").await;
    assert!(alerts.is_empty(), "it looks at nothing but the server");
    let text = std::fs::read_to_string(dashboards().join("alerts.yml")).expect("alerts");
    let alerts = expressions(&text);
    assert!(alerts.len() > 8, "{alerts:?}");
    let names: BTreeSet<&str> = alerts.iter().map(|(name, _)| name.as_str()).collect();
    assert!(QUIET.iter().all(|quiet| names.contains(quiet)), "{names:?}");
    let (quiet, loud): (Vec<_>, Vec<_>) =
        alerts.iter().cloned().partition(|(name, _)| QUIET.contains(&name.as_str()));
    until_all_give(&prometheus, &loud).await;
    for (_, expression) in quiet {
        ask(&prometheus, &expression).await;
    }
}

/// The alerts of a file, each with its expression: on the same line, or indented on the lines after it.
fn expressions(text: &str) -> Vec<(String, String)> {
    let mut alerts: Vec<(String, String)> = Vec::new();
    let mut is_within = false;
    for line in text.lines() {
        let (words, indent) = (line.trim(), line.len() - line.trim_start().len());
        if let Some(name) = words.strip_prefix("- alert: ") {
            alerts.push((name.to_owned(), String::new()));
        } else if let (Some(expression), Some(alert)) = (words.strip_prefix("expr: "), alerts.last_mut()) {
            is_within = expression == "|";
            if !is_within {
                expression.clone_into(&mut alert.1);
            }
        } else if let (true, true, Some(alert)) = (is_within, indent > 8, alerts.last_mut()) {
            alert.1.push_str(words);
            alert.1.push(' ');
        } else {
            is_within = false;
        }
    }
    alerts
}

#[test]
#[ignore = "needs Prometheus, which ./scripts/test installs"]
fn the_alerts_are_such_as_prometheus_takes_and_fire_when_they_should() {
    let promtool = std::env::var("PROMTOOL").unwrap_or_else(|_| "promtool".to_owned());
    for arguments in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"]] {
        let output = Command::new(&promtool).args(arguments).current_dir(dashboards()).output();
        let output = output.unwrap_or_else(|error| panic!("{promtool}: {error}"));
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
    }
}

/// The words in a text that look like names of metrics.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_part(c)).filter(|word| word.starts_with("ratekeeper_"));
    let whole = |word: &str| {
        let part = ["_bucket", "_count", "_sum"].into_iter().find_map(|part| word.strip_suffix(part));
        part.unwrap_or(word).to_owned()
    };
    words.map(whole).collect()
}

#[test]
fn the_dashboard_shows_every_metric_and_none_that_there_is_not() {
    let page = include_str!("../../crates/ratekeeper/docs/metrics.md");
    let rows: String =
        page.lines().filter(|line| line.starts_with("| `ratekeeper_")).collect::<Vec<_>>().join("\n");
    let dashboard = dashboard();
    let shown: String = queries(&dashboard).into_iter().map(|(_, query)| query + "\n").collect();
    assert_eq!(metrics_in(&shown), metrics_in(&rows));
    let text = std::fs::read_to_string(dashboards().join("alerts.yml")).expect("alerts");
    assert!(metrics_in(&text).is_subset(&metrics_in(&rows)));
}

#[test]
fn the_dashboard_works_with_whatever_data_source_it_is_given() {
    let dashboard = dashboard();
    assert!(dashboard["schemaVersion"].as_u64().is_some_and(|version| version >= 36));
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    assert!(
        variables.iter().any(|variable| variable["name"] == "datasource" && variable["type"] == "datasource")
    );
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut numbers = BTreeSet::new();
    for panel in panels {
        assert!(numbers.insert(panel["id"].as_u64().expect("a number")), "{panel}");
        for target in panel["targets"].as_array().into_iter().flatten() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{panel}");
        }
    }
}
