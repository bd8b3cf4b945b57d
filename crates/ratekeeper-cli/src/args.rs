//! The command line.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use http::{HeaderName, HeaderValue};

use crate::request::{Asked, Line};

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Args {
    Check { files: Vec<PathBuf>, format: Format },
    Explain { file: PathBuf, asked: Box<Asked>, format: Format },
}

/// Whom the output is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// People.
    Text,
    /// Programs.
    Json,
}

/// Parses the arguments. The error is a usage error, or help.
pub(crate) fn parse(args: impl Iterator<Item = OsString>) -> Result<Args, clap::Error> {
    let mut matches = command().try_get_matches_from(args)?;
    // clap has ensured that there is a subcommand.
    let (name, mut matches) = matches.remove_subcommand().unwrap_or_default();
    let format = match matches.remove_one::<String>("format").as_deref() {
        Some("json") => Format::Json,
        _ => Format::Text,
    };
    if name == "check" {
        return Ok(Args::Check { files: many(&mut matches, "file"), format });
    }
    let headers = many::<String>(&mut matches, "header");
    let headers: Result<_, _> = headers.iter().map(|text| header(text)).collect();
    let asked = Asked {
        // Not validated by clap, which would show the value.
        headers: headers.map_err(|message: String| command().error(ErrorKind::ValueValidation, message))?,
        line: matches.remove_one("request").unwrap_or_default(),
        host: matches.remove_one("host"),
        peer: matches.remove_one("peer"),
        tier: matches.remove_one("tier"),
        at: matches.remove_one("at"),
    };
    Ok(Args::Explain { file: matches.remove_one("file").unwrap_or_default(), asked: Box::new(asked), format })
}

fn many<T: Clone + Send + Sync + 'static>(matches: &mut ArgMatches, name: &str) -> Vec<T> {
    matches.remove_many(name).into_iter().flatten().collect()
}

fn command() -> Command {
    let file = || Arg::new("file").value_name("FILE").required(true).value_parser(value_parser!(PathBuf));
    let format = || {
        let format = Arg::new("format").long("format").value_name("FORMAT").default_value("text");
        format.value_parser(["text", "json"]).help("How to print it")
    };
    let check = Command::new("check")
        .about("Checks rule files, and tells all that is wrong with them")
        .after_help("Names that only the application knows, of keys and the like, are taken as they are.")
        .arg(file().num_args(1..).help("Files of rules: TOML, JSON or YAML"))
        .arg(format());
    let explain = Command::new("explain")
        .about("Tells what the rules of a file do with a request")
        .after_help(
            "A key that only the application knows is the same for all here, a predicate is true, and a cost is one.",
        )
        .arg(file().help("A file of rules: TOML, JSON or YAML"))
        .arg(
            option("request", "REQUEST", "The request, such as `POST /login`; GET if there is no method")
                .required(true)
                .value_parser(line),
        )
        .arg(
            option("header", "FIELD", "A header field, such as `x-api-key: k`; as often as there are fields")
                .action(ArgAction::Append),
        )
        .arg(option("host", "HOST", "The host that the request is for").value_parser(host))
        .arg(
            option("peer", "ADDRESS", "The address that the request comes from [default: 127.0.0.1]")
                .value_parser(peer),
        )
        .arg(option("tier", "NAME", "The tier that the caller is in, where the application tells it"))
        .arg(
            option("at", "SECONDS", "When it comes, in Unix seconds [default: now]")
                .value_parser(value_parser!(u64).range(..1 << 40)),
        )
        .arg(format());
    Command::new("ratekeeper")
        .about("Checks rate-limit rules, and explains what they do")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(check)
        .subcommand(explain)
}

fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn line(text: &str) -> Result<Line, String> {
    text.parse()
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("a header field is written `name: value`")?;
    let name = name.trim();
    let parsed = name.parse().map_err(|_| format!("`{name}` cannot be the name of a header field"))?;
    // The value may be a secret, so the message does not repeat it.
    let value =
        value.trim().parse().map_err(|_| format!("the header field `{name}` cannot have this value"))?;
    Ok((parsed, value))
}

fn host(text: &str) -> Result<HeaderValue, String> {
    match text.parse::<http::uri::Authority>() {
        Ok(_) => text.parse().map_err(|_| "this is no host".to_owned()),
        Err(_) => Err("this is no host".to_owned()),
    }
}

fn peer(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse().or_else(|_| text.parse::<IpAddr>().map(|address| SocketAddr::new(address, 0)));
    address.map_err(|_| "this is no address, such as `203.0.113.9` or `[2001:db8::1]:4711`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_what_clap_can_read() {
        command().debug_assert();
    }

    #[test]
    fn a_field_is_a_name_and_a_value() {
        let (name, value) = header(" X-Api-Key :  a:b ").unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap()), ("x-api-key", "a:b"));
        for text in ["x-api-key", ": k", "x y: k", "x: a\nb"] {
            assert!(header(text).is_err(), "{text:?}");
        }
        assert!(!header("x-api-key: hunter\n2").unwrap_err().contains("hunter"));
    }

    #[test]
    fn a_peer_is_an_address_with_or_without_a_port() {
        for (text, address) in [
            ("203.0.113.9", "203.0.113.9:0"),
            ("203.0.113.9:80", "203.0.113.9:80"),
            ("2001:db8::1", "[2001:db8::1]:0"),
            ("[2001:db8::1]:80", "[2001:db8::1]:80"),
        ] {
            assert_eq!(peer(text).unwrap().to_string(), address);
        }
        assert!(peer("localhost").is_err());
    }
}
