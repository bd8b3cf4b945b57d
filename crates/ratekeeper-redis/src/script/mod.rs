//! The scripts that decide inside Redis, and the commands that run them.

use std::sync::LazyLock;

use redis::{Cmd, Script};

use crate::name::Name;

/// A script.
#[derive(Debug)]
pub(crate) struct Body {
    text: String,
    hash: String,
}

/// Decides requests.
pub(crate) static CHARGE: LazyLock<Body> = LazyLock::new(|| Body::new(include_str!("charge.lua")));

/// Makes refunds and debits.
pub(crate) static SETTLE: LazyLock<Body> = LazyLock::new(|| Body::new(include_str!("settle.lua")));

impl Body {
    /// The script with the prelude before it, and without comments: after a restart, requests wait for it.
    fn new(own: &str) -> Self {
        let lines = include_str!("prelude.lua").lines().chain(own.lines()).map(str::trim_start);
        let code: Vec<_> = lines.filter(|line| !line.is_empty() && !line.starts_with("--")).collect();
        let text = code.join("\n");
        Self { hash: Script::new(&text).get_hash().to_owned(), text }
    }
}

/// Uses each command that the others use, and `DEL`, which resets a counter.
pub(crate) const PROBE: &str = include_str!("probe.lua");

/// What the error begins with by which a script says that it has written nothing.
pub(crate) const REFUSED: &str = "RKREFUSED";

/// The command that runs a script. `with_body`: the server may not know it.
pub(crate) fn command(
    script: &Body,
    with_body: bool,
    names: impl ExactSizeIterator<Item = Name>,
    question: &[u8],
) -> Cmd {
    let body = if with_body { script.text.len() } else { 0 };
    let mut command = Cmd::with_capacity(4 + names.len(), 64 * (1 + names.len()) + body + question.len());
    if with_body {
        command.arg(b"EVAL").arg(script.text.as_str());
    } else {
        command.arg(b"EVALSHA").arg(script.hash.as_str());
    }
    command.arg(names.len());
    names.for_each(|name| {
        command.arg(name.as_slice());
    });
    command.arg(question);
    command
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_probe_uses_each_command_that_the_scripts_use() {
        let mut used = BTreeSet::from(["DEL"]);
        for text in [&CHARGE.text, &SETTLE.text] {
            for called in text.split("call('").skip(1) {
                used.insert(called.split('\'').next().unwrap());
            }
        }
        let words = PROBE.split('\'').skip(1).step_by(2);
        let probed =
            words.filter(|word| word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase()));
        assert_eq!(probed.filter(|word| *word != "NOPERM").collect::<BTreeSet<_>>(), used);
    }
}
