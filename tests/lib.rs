//! The code in the project's pages, as doc-tests: what does not compile there fails here.

#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![cfg_attr(doctest, doc = include_str!("../ARCHITECTURE.md"))]

#[cfg(test)]
mod tests {
    use ratekeeper_rules::{Format, Registry, RuleFile};

    /// The rules of the README are those of a file that its commands can be tried with.
    #[test]
    fn the_rule_file_in_the_readme_makes_sense() {
        let readme = include_str!("../README.md");
        let text =
            readme.split("```toml\n# crates/ratekeeper-gateway/rules.toml\n").nth(1).expect("it is there");
        let text = text.split("```").next().expect("it has an end");
        let file = include_str!("../crates/ratekeeper-gateway/rules.toml");
        assert!(file.ends_with(text), "the file has other rules");
        let file = RuleFile::parse("rules.toml", file, Format::Toml, &Registry::new());
        assert_eq!(file.expect("they make sense").rules().len(), 2);
    }
}
