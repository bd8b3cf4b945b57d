//! Whatever is read, nothing panics and nothing takes forever.

use proptest::prelude::*;
use ratekeeper_rules::{Format, Registry, RuleFile};

const FORMATS: &[Format] = &[
    Format::Toml,
    Format::Json,
    #[cfg(feature = "yaml")]
    Format::Yaml,
];

/// Reads it in every format, and shows what is wrong with it.
fn read(text: &[u8]) {
    for format in FORMATS.iter().copied() {
        match RuleFile::parse("rules", text, format, &Registry::new()) {
            Ok(file) => assert!(!file.rules().is_empty()),
            Err(error) => {
                assert!(!error.problems().is_empty());
                let shown = error.to_string();
                assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
            }
        }
    }
}

/// Pieces that files are made of, and some that are not.
fn piece() -> impl Strategy<Value = String> {
    let words = proptest::sample::select(vec![
        "[[rules]]\n",
        "rules",
        "name",
        "quota",
        "match",
        "key",
        "tiers",
        "tier-by",
        "cost",
        "hold-up-to",
        "on-store-failure",
        "local",
        "registered",
        "networks",
        "client-ip",
        "\"",
        "'",
        "\"\"\"",
        " = ",
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\n",
        "\\u0000",
        "\u{1b}",
        "10/s",
        "\"10/s\"",
        "\"a\"",
        "\"/{*x}\"",
        "0",
        "-1",
        "1e999",
        "inf",
        "99999999999999999999",
        "null",
        "true",
        "é",
        "\u{202e}",
        "\u{feff}",
        "#",
        "\r",
    ]);
    prop_oneof![8 => words.prop_map(str::to_owned), 1 => any::<String>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        read(&bytes);
    }

    #[test]
    fn no_text_panics(pieces in proptest::collection::vec(piece(), 0..40)) {
        read(pieces.concat().as_bytes());
    }

    #[test]
    fn no_value_panics(field in "[a-z-]{1,16}|name|quota|match|key|tier-by|cost|hold-up-to", value in ".{0,40}") {
        let rule = serde_json::json!({ "name": "a", "quota": "10/s" });
        let mut file = serde_json::json!({ "rules": [rule] });
        file["rules"][0][&field] = value.into();
        read(file.to_string().as_bytes());
        let toml = format!("[[rules]]\nname = \"a\"\n{}", toml::to_string(&file["rules"][0]).unwrap());
        read(toml.as_bytes());
    }
}

#[test]
fn what_is_nested_deeply_does_not_overflow_the_stack() {
    for open in ["[", "{\"a\":", "a = [", "a = {a=", "[[rules]]\nkey = ["] {
        let (head, unit) = open.split_at(open.rfind(['[', '{']).unwrap());
        for depth in [30, 100, 100_000] {
            read(format!("{head}{}", unit.repeat(depth)).as_bytes());
        }
    }
    let closed = format!("{{\"rules\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    read(closed.as_bytes());
    read(format!("{} = 1", vec!["a"; 100_000].join(".")).as_bytes());
    read(format!("[{}]", vec!["a"; 100_000].join(".")).as_bytes());
}

/// A valid document of exactly this many bytes.
fn of_size(format: Format, size: usize) -> String {
    let text = r#"{"rules":[{"name":"api","quota":"10/s"}]}"#;
    let toml = "[[rules]]\nname = \"api\"\nquota = \"10/s\"\n";
    let text = if format == Format::Toml { toml } else { text };
    format!("{text}{}", " ".repeat(size - text.len()))
}

#[test]
fn what_is_too_large_is_not_read() {
    for format in FORMATS.iter().copied() {
        for (registry, max) in [(Registry::new(), 1 << 20), (Registry::new().max_document_size(500), 500)] {
            let read = |size| RuleFile::parse("rules", of_size(format, size), format, &registry);
            assert_eq!(read(max).expect("it is not too large").rules().len(), 1, "{format}");
            let error = read(max + 1).expect_err("it is too large");
            let expected = format!("the rules in rules have {} bytes; at most {max} are read", max + 1);
            assert_eq!(error.to_string(), expected, "{format}");
            assert!(error.problems().is_empty());
        }
    }
}

#[test]
fn what_is_too_large_in_a_file_is_not_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("rules.toml");
    // A terabyte that takes no space, and could not be read.
    std::fs::File::create(&path).and_then(|file| file.set_len(1 << 40)).expect("a file");
    let error = RuleFile::load(&path, &Registry::new()).expect_err("it is too large");
    let expected =
        format!("the rules in {} have 1099511627776 bytes; at most 1048576 are read", path.display());
    assert_eq!(error.to_string(), expected);

    std::fs::write(&path, of_size(Format::Toml, 2_000_000)).expect("it is written");
    assert!(RuleFile::load(&path, &Registry::new()).is_err());
    assert!(RuleFile::load(&path, &Registry::new().max_document_size(2_000_000)).is_ok());
}

#[test]
fn a_file_of_which_all_is_wrong_is_soon_told_so() {
    // Each in one line, where every place is far from the beginning.
    let json = format!("{{\"rules\":[{}1]}}", "1,".repeat(200_000));
    let fields: String = (0..50_000).map(|i| format!("a{i}=1,")).collect();
    let toml = format!("rules = []\nlayer = {{{fields}}}");
    for (text, format) in [(json, Format::Json), (toml, Format::Toml)] {
        let error = RuleFile::parse("rules", text, format, &Registry::new()).unwrap_err();
        assert_eq!(error.problems().len(), 1_000);
        assert!(error.to_string().len() < 100_000);
    }
}
