//! The modules of the crate know each other in one direction.

use std::path::Path;

use ratekeeper_servers::{cycle, module_graph};

#[test]
fn no_two_modules_know_each_other() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let graph = module_graph(&source).expect("the source is there");
    assert!(graph["layer"].contains("limiter") && graph["limiter"].contains("rule"), "{graph:?}");
    assert_eq!(cycle(&graph), None, "{graph:?}");
}
