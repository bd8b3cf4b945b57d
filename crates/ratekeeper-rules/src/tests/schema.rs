//! The schema in the repository is that of the types, and agrees with the reader.

use boon::{Compiler, SchemaIndex, Schemas};
use proptest::prelude::*;
use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde_json::Value;

use super::arbitrary;
use crate::model::File;
use crate::{Format, Registry, RuleFile, SCHEMA};

/// The schema of the types, as it is stored.
fn generated() -> String {
    // `uint32` is not a format that validators know.
    let bound = |schema: &mut Schema| {
        if schema.remove("format").is_some_and(|format| format == "uint32") {
            schema.insert("maximum".to_owned(), u32::MAX.into());
        }
    };
    let settings = SchemaSettings::draft07().with_transform(RecursiveTransform(bound));
    let mut schema = settings.into_generator().into_root_schema_for::<File>();
    schema.insert("title".to_owned(), "Rate-limit rules of Ratekeeper".into());
    let mut text = serde_json::to_string_pretty(&schema).unwrap();
    text.push('\n');
    text
}

struct Validator {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Validator {
    fn new() -> Self {
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.add_resource("rules.schema.json", serde_json::from_str(SCHEMA).unwrap()).unwrap();
        let index = compiler.compile("rules.schema.json", &mut schemas).unwrap();
        Self { schemas, index }
    }

    fn accepts(&self, file: &Value) -> bool {
        self.schemas.validate(file, self.index).is_ok()
    }
}

#[test]
fn the_schema_in_the_repository_is_that_of_the_types() {
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/rules.schema.json"), generated()).unwrap();
        return;
    }
    // Compared as values: the order of fields depends on what else is compiled.
    let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert!(
        value(&generated()) == value(SCHEMA),
        "rules.schema.json is out of date; write it anew with UPDATE_SCHEMA=1 cargo test -p ratekeeper-rules schema"
    );
}

#[test]
fn the_schema_refuses_what_the_reader_refuses_by_its_kind() {
    let validator = Validator::new();
    let rule = |fields: &str| format!(r#"{{ "rules": [{{ "name": "a", "quota": "1/s"{fields} }}] }}"#);
    let both = |text: &str| {
        let read = RuleFile::parse("rules.json", text, Format::Json, &Registry::new());
        (validator.accepts(&serde_json::from_str(text).unwrap()), read.is_ok())
    };
    assert_eq!(both(&rule("")), (true, true));
    assert_eq!(both(&rule(r#", "key": ["peer-ip", { "header": "x", "secret": true }]"#)), (true, true));
    for text in [
        "{}",
        r#"{ "rules": [{ "name": "a" }] }"#,
        r#"{ "rules": [{ "quota": "1/s" }] }"#,
        r#"{ "rules": "a" }"#,
        &rule(r#", "nam": "b""#),
        &rule(r#", "cost": "5""#),
        &rule(r#", "cost": -1"#),
        &rule(r#", "cost": null"#),
        &rule(r#", "cost": 4294967296"#),
        &rule(r#", "on-missing-key": "Skip""#),
        &rule(r#", "key": "header""#),
        &rule(r#", "key": { "header": "x", "cookie": "y" }"#),
        &rule(r#", "key": { "bearer": "x" }"#),
        &rule(r#", "match": { "host": "x" }"#),
        &rule(r#", "tiers": { "pro": 5 }"#),
        &rule(r#", "on-store-failure": "local""#),
        &rule(r#", "hold-up-to": 5"#),
    ] {
        assert_eq!(both(text), (false, false), "{text}");
    }
}

proptest! {
    #[test]
    fn the_schema_accepts_whatever_can_be_written(file in arbitrary::file()) {
        // Made once for all cases.
        thread_local!(static VALIDATOR: Validator = Validator::new());
        let json = serde_json::to_value(&file).unwrap();
        prop_assert!(VALIDATOR.with(|validator| validator.accepts(&json)), "{json:#}");
    }
}
