//! Which modules of a crate know each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

/// The modules at the top of a crate, and which others each of them names by `crate::…`, outside its unit
/// tests.
///
/// `source` is the directory of `lib.rs`. A file belongs to the module whose directory, or file, it is in;
/// `lib.rs` itself belongs to none.
///
/// # Errors
///
/// If the directory cannot be read.
pub fn module_graph(source: &Path) -> io::Result<BTreeMap<String, BTreeSet<String>>> {
    let mut graph = BTreeMap::new();
    for entry in fs::read_dir(source)? {
        let path = entry?.path();
        let Some(module) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
        if module != "lib" {
            let known = graph.entry(module.to_owned()).or_insert_with(BTreeSet::new);
            named(&path, known)?;
            known.remove(module);
        }
    }
    let modules: BTreeSet<String> = graph.keys().cloned().collect();
    graph.values_mut().for_each(|known| known.retain(|module| modules.contains(module)));
    Ok(graph)
}

/// A path of modules that leads back to its first, if there is one.
#[must_use]
pub fn cycle(graph: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<&str>> {
    // Modules that know nothing but what is already left out cannot be part of a cycle.
    let mut left: BTreeSet<&str> = graph.keys().map(String::as_str).collect();
    loop {
        let knows = |module: &&str| graph[*module].iter().any(|known| left.contains(known.as_str()));
        let next: BTreeSet<&str> = left.iter().copied().filter(knows).collect();
        if next.len() == left.len() {
            break;
        }
        left = next;
    }
    // Each that is left knows another one, so following them leads to one that was seen before.
    let mut path = vec![*left.first()?];
    loop {
        let next = graph[path[path.len() - 1]].iter().find(|known| left.contains(known.as_str()))?;
        if let Some(start) = path.iter().position(|seen| seen == next) {
            path.push(next);
            return Some(path.split_off(start));
        }
        path.push(next);
    }
}

/// Collects the modules that a file, or the files of a directory, name.
fn named(path: &Path, known: &mut BTreeSet<String>) -> io::Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            named(&entry?.path(), known)?;
        }
        return Ok(());
    }
    if path.extension().is_none_or(|extension| extension != "rs") {
        return Ok(());
    }
    let text = fs::read_to_string(path)?;
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(&text);
    let lines: String = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let is_name = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    for rest in lines.split("crate::").skip(1) {
        // A group of imports names one module after each comma and the opening brace.
        let names: Vec<&str> = match rest.strip_prefix('{') {
            Some(group) => group.split('}').next().unwrap_or(group).split(',').collect(),
            None => vec![rest],
        };
        for name in names {
            let name = name.trim_start();
            known.insert(name.split(|letter| !is_name(letter)).next().unwrap_or(name).to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &[&str])]) -> BTreeMap<String, BTreeSet<String>> {
        let known = |known: &[&str]| known.iter().map(ToString::to_string).collect();
        edges.iter().map(|(module, others)| ((*module).to_owned(), known(others))).collect()
    }

    #[test]
    fn a_cycle_is_found_and_a_tree_is_none() {
        let tree = graph(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])]);
        assert_eq!(cycle(&tree), None);
        let long = graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["d"]), ("d", &["b"])]);
        assert_eq!(cycle(&long), Some(vec!["b", "c", "d", "b"]));
    }

    #[test]
    fn the_modules_of_this_crate_are_found() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let graph = module_graph(&source).expect("it can be read");
        assert!(graph["sentinels"].contains("replication") && !graph.contains_key("lib"), "{graph:?}");
    }
}
