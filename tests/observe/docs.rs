//! The table of metrics lists exactly those that exist.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::Recorded;
use crate::support::script::Scene;

const PAGE: &str = include_str!("../../crates/ratekeeper/docs/metrics.md");

/// The parts between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The names in the table, with their labels.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| `ratekeeper_"));
    let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    cells
        .map(|cells| {
            let name = quoted(cells[1]).next().expect("a name");
            (name.to_owned(), quoted(cells[4]).map(str::to_owned).collect())
        })
        .collect()
}

#[tokio::test]
async fn what_is_recorded_is_what_the_page_tells_of() {
    let recorded = Recorded::start();
    let scene = Scene::start().await;
    scene.play(0).await;
    scene.lose_redis().await;
    scene.play_without_redis().await;
    assert_eq!(recorded.names(), documented(), "names and labels");
    let text = recorded.handle.render();
    for name in documented().into_keys() {
        assert!(text.contains(&format!("# HELP {name} ")), "{name} is not described in {text}");
    }
    for series in recorded.all().into_keys() {
        for value in series.split(",").filter_map(|label| label.split_once("outcome=")) {
            let outcome = value.1.trim_matches(['"', '}']);
            assert!(quoted(PAGE).any(|word| word == outcome), "{outcome} is not explained");
        }
    }
}
