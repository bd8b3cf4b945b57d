//! The scripts that decide inside Redis, and the commands that run them.

use std::sync::LazyLock;

use redis::{Cmd, Script};

use crate::name::Name;

/// A script.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) text: &'static str,
    pub(crate) hash: LazyLock<String>,
}

/// Decides requests.
pub(crate) static CHARGE: Body = Body {
    text: concat!(include_str!("prelude.lua"), include_str!("charge.lua")),
    hash: LazyLock::new(|| Script::new(CHARGE.text).get_hash().to_owned()),
};

/// Makes refunds and debits.
pub(crate) static SETTLE: Body = Body {
    text: concat!(include_str!("prelude.lua"), include_str!("settle.lua")),
    hash: LazyLock::new(|| Script::new(SETTLE.text).get_hash().to_owned()),
};

/// All commands that the scripts use.
pub(crate) const COMMANDS: &[&str] = &["TIME", "MGET", "GET", "GETRANGE", "SET", "SETRANGE", "PEXPIREAT"];

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
        command.arg(b"EVAL").arg(script.text);
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
    fn the_commands_are_those_of_the_scripts() {
        let mut used = BTreeSet::new();
        for text in [CHARGE.text, SETTLE.text] {
            for called in text.split("call('").skip(1) {
                used.insert(called.split('\'').next().unwrap());
            }
        }
        assert_eq!(used, COMMANDS.iter().copied().collect());
    }
}
