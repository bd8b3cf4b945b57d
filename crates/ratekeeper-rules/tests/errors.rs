//! Exact error messages: each invalid file in `tests/errors` has the expected message beside it.
//!
//! To update and review the messages: `UPDATE_ERRORS=1 cargo test -p ratekeeper-rules --test errors`.

use std::fs;
use std::path::{Path, PathBuf};

use ratekeeper_rules::{Format, Registry, RuleFile};

fn cases() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/errors");
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut cases: Vec<_> = paths.filter(|path| Format::of(path).is_some()).collect();
    cases.sort();
    cases
}

fn registry() -> Registry {
    Registry::new()
        .extension("user", |user: &u64| *user)
        .tier("plan", |_| None::<&str>)
        .cost("by-method", |_| 1)
        .cost("by-size", |_| 1)
        .predicate("is-beta", |_| true)
        .settle("tokens", |_| 1)
}

/// The message for a file.
fn said(path: &Path) -> String {
    let name = path.file_name().unwrap().to_str().unwrap();
    let error = RuleFile::parse(name, fs::read(path).unwrap(), Format::of(path).unwrap(), &registry());
    format!("{}\n", error.expect_err(name))
}

#[test]
fn what_is_wrong_is_told_exactly() {
    let mut wrong = Vec::new();
    for path in cases() {
        let mut expected = path.clone().into_os_string();
        expected.push(".txt");
        let said = said(&path);
        if std::env::var_os("UPDATE_ERRORS").is_some() {
            fs::write(expected, said).unwrap();
        } else if said != fs::read_to_string(expected).unwrap_or_default() {
            wrong.push(format!("{}:\n{said}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cases().len() > 30, "the cases are not there");
}

#[test]
fn a_problem_can_be_asked_for_its_parts() {
    let text = "[[rules]]\nname = \"login\"\nquota = \"5/minute\"\n\n[rules.tiers]\npro = \"7/minuet\"\n";
    let error = RuleFile::parse("rules.toml", text, Format::Toml, &registry()).unwrap_err();
    let [no_lookup, quota] = error.problems() else { panic!("{error}") };
    assert_eq!(no_lookup.field(), Some("tiers"));
    assert_eq!((quota.file(), quota.line(), quota.column()), ("rules.toml", 6, 7));
    assert_eq!((quota.rule(), quota.field()), (Some("login"), Some("tiers.pro")));
    assert!(quota.message().contains("expected a unit of time"), "{}", quota.message());
    assert_eq!(quota.help(), Some("did you mean `minute`?"));
}

#[test]
fn a_file_that_is_not_there_is_no_problem_of_its_text() {
    let error = RuleFile::load("/nowhere/rules.toml", &registry()).unwrap_err();
    assert_eq!(error.to_string(), "the rules in /nowhere/rules.toml cannot be read");
    assert!(std::error::Error::source(&error).is_some());
    assert!(error.problems().is_empty());
    let error = RuleFile::load("/nowhere/rules.ini", &registry()).unwrap_err();
    let says = "the name of /nowhere/rules.ini does not say what format it has; it ends in `.toml`";
    assert!(error.to_string().starts_with(says), "{error}");
}

#[test]
fn of_very_many_problems_not_all_are_shown() {
    let text = (0..500).map(|i| format!("x{i} = 1\n")).collect::<String>();
    let error = RuleFile::parse("rules.toml", text, Format::Toml, &registry()).unwrap_err();
    assert_eq!(error.problems().len(), 501);
    let shown = error.to_string();
    assert_eq!(shown.matches("error: ").count(), 100);
    assert!(shown.ends_with("501 errors, of which 100 are shown: these rules are not used"));
}
