//! Turns rows into one text, with one rule to a line.

use serde_json::Value;

/// A set of rules as the tables hold it.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// A JSON object: the settings of the set besides its rules.
    pub(super) settings: String,
    /// For each rule its name, and a JSON object of everything else in it.
    pub(super) rules: Vec<(String, String)>,
}

impl Rows {
    /// The text of an equivalent file.
    ///
    /// The tables ensure that settings and definitions are objects, and that none of them repeats what is in
    /// a column. If those checks were removed, the text contains whatever is there instead, and it is refused
    /// like any other mistake.
    pub(super) fn text(&self) -> String {
        let rules = self.rules.iter().map(|(name, definition)| {
            let name = format!("\"name\":{}", Value::from(name.as_str()));
            with_field(&name, definition)
        });
        let rules = format!("\"rules\":[\n{}\n]", rules.collect::<Vec<_>>().join(",\n"));
        with_field(&rules, &self.settings)
    }
}

/// A JSON object with a field added at the front.
fn with_field(field: &str, object: &str) -> String {
    let Some(rest) = object.trim().strip_prefix('{') else { return object.to_owned() };
    let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
    format!("{{{field}{comma}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Registry, RuleFile};

    fn rows(settings: &str, rules: &[(&str, &str)]) -> Rows {
        let rules = rules.iter().map(|(name, definition)| ((*name).to_owned(), (*definition).to_owned()));
        Rows { settings: settings.to_owned(), rules: rules.collect() }
    }

    fn error(rows: &Rows) -> String {
        RuleFile::parse("table ratekeeper_rules", rows.text(), Format::Json, &Registry::new())
            .expect_err("it makes no sense")
            .to_string()
    }

    #[test]
    fn each_rule_has_a_line() {
        let rows = rows(
            r#"{"layer": {"charge-preflights": true}}"#,
            &[("login", r#"{"quota": "5/minute", "match": "POST /login"}"#), ("all", r#"{"quota": "10/s"}"#)],
        );
        let expected = concat!(
            "{\"rules\":[\n",
            "{\"name\":\"login\",\"quota\": \"5/minute\", \"match\": \"POST /login\"},\n",
            "{\"name\":\"all\",\"quota\": \"10/s\"}\n",
            "],\"layer\": {\"charge-preflights\": true}}"
        );
        assert_eq!(rows.text(), expected);
        let file =
            RuleFile::parse("table", rows.text(), Format::Json, &Registry::new()).expect("it makes sense");
        assert_eq!(file.rules().len(), 2);
        assert_eq!(file.layer().charge_preflights(), Some(true));
    }

    #[test]
    fn an_error_names_the_rule_and_the_field() {
        let error =
            error(&rows("{}", &[("all", r#"{"quota": "10/s"}"#), ("login", r#"{"quota": "5/minuet"}"#)]));
        assert!(error.starts_with("error: rule `login`, `quota`: "), "{error}");
        assert!(error.contains("--> table ratekeeper_rules:3:"), "{error}");
        assert!(error.contains("\"5/minuet\""), "{error}");
    }

    #[test]
    fn what_the_tables_do_not_allow_is_refused_all_the_same() {
        let good = r#"{"quota": "10/s"}"#;
        for (rows, expected) in [
            (rows("{}", &[]), "there are no rules"),
            (rows("{}", &[("a", "{}")]), "`quota` is missing"),
            (rows("{}", &[("a", "5")]), "expected a table, found a whole number"),
            (rows("{}", &[("a", r#"{"name": "b", "quota": "10/s"}"#)]), "`name` is said twice"),
            (rows("[]", &[("a", good)]), "expected a table, found a list"),
            (rows(r#"{"rules": []}"#, &[("a", good)]), "`rules` is said twice"),
            (rows("{}", &[("a\"\n\u{1}", good)]), "error: "),
        ] {
            let error = error(&rows);
            assert!(error.contains(expected), "{error}");
        }
    }
}
