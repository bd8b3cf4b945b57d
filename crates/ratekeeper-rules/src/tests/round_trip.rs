//! Whatever the model holds is read back as it was written, in every format.

use proptest::prelude::*;

use super::arbitrary;
use crate::Format;
use crate::model::File;
use crate::problem::Problem;
use crate::read::Read;
use crate::scope::{Findings, Scope};
use crate::tree;

fn read(text: &str, format: Format) -> File {
    let findings = Findings::default();
    let scope = Scope::file(&findings);
    let file = tree::parse(text, format, &scope).and_then(|tree| File::read(&tree, &scope));
    match file {
        Some(file) if findings.is_empty() => file,
        _ => panic!("{text}\n{:#?}", Problem::all("file", text, findings)),
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(file in arbitrary::file()) {
        prop_assert_eq!(&read(&toml::to_string(&file).unwrap(), Format::Toml), &file);
        prop_assert_eq!(&read(&toml::to_string_pretty(&file).unwrap(), Format::Toml), &file);
        prop_assert_eq!(&read(&serde_json::to_string(&file).unwrap(), Format::Json), &file);
        prop_assert_eq!(&read(&serde_json::to_string_pretty(&file).unwrap(), Format::Json), &file);
        // JSON is YAML.
        #[cfg(feature = "yaml")]
        {
            prop_assert_eq!(&read(&serde_json::to_string(&file).unwrap(), Format::Yaml), &file);
            prop_assert_eq!(&read(&serde_json::to_string_pretty(&file).unwrap(), Format::Yaml), &file);
        }
    }
}
