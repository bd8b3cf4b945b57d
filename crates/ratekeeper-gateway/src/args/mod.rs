//! The command line.

mod duration;
mod network;
mod upstream;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use ipnet::IpNet;
use tracing_subscriber::filter::Targets;

pub(crate) use self::duration::Limit;
pub(crate) use self::upstream::Upstream;

/// A reverse proxy that limits requests by the rules of a file.
#[derive(Clone, Debug, Parser)]
#[command(version, max_term_width = 100)]
pub(crate) struct Args {
    /// The rule file: TOML, JSON or YAML
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: PathBuf,

    /// How large the rule file may be, in bytes
    #[arg(long, value_name = "BYTES", default_value = "1048576")]
    pub(crate) max_rules_size: usize,

    /// The address to listen on; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,

    /// Where requests are sent, such as http://127.0.0.1:9000
    #[arg(long, value_name = "URL")]
    pub(crate) upstream: Upstream,

    /// Certificates (PEM) for verifying an https upstream, instead of those of the system
    #[arg(long, value_name = "FILE")]
    pub(crate) upstream_ca: Option<PathBuf>,

    /// Counts in this Redis, such as redis://127.0.0.1:6379, instead of in memory
    // Only text here: it is validated elsewhere, by errors that do not repeat it, as it may contain a
    // password.
    #[arg(long, value_name = "URL")]
    pub(crate) redis: Option<String>,

    /// The prefix of all counter names in Redis
    #[arg(long, value_name = "TEXT", default_value = "ratekeeper")]
    pub(crate) redis_prefix: String,

    /// How long a request may wait for Redis
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = duration::parse)]
    pub(crate) redis_timeout: Duration,

    /// The address that serves /metrics, /healthz, /readyz and /rules; none by default
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<SocketAddr>,

    /// A proxy in front of this one whose forwarding fields are trusted: an address or a network; can be
    /// repeated
    #[arg(long = "trust-proxy", value_name = "NETWORK", value_parser = network::parse)]
    pub(crate) trusted: Vec<IpNet>,

    /// Which Host the upstream sees: the client's, or its own
    #[arg(long, value_name = "WHICH", default_value = "pass")]
    pub(crate) host: Host,

    /// Refuses paths that an upstream may read as others: //a, /./a, /%61, /a%2Fb, /a;b
    #[arg(long)]
    pub(crate) plain_paths: bool,

    /// How long connecting to the upstream may take
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration::parse)]
    pub(crate) connect_timeout: Duration,

    /// How long the upstream may take to begin its response, once it has the request
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse)]
    pub(crate) response_timeout: Duration,

    /// How long a body may stand still, in both directions
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse)]
    pub(crate) idle_timeout: Duration,

    /// How long a request may take from its admission to the end of its response; or `none`
    #[arg(long, value_name = "TIME", default_value = "none")]
    pub(crate) request_timeout: Limit,

    /// How long a client may take to send the head of a request, or to send another one
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    pub(crate) header_timeout: Duration,

    /// How long requests and upgraded connections may continue after SIGTERM or SIGINT
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    pub(crate) grace: Duration,

    /// How many connections are served at once; others wait
    #[arg(long, value_name = "NUMBER", default_value = "10000", value_parser = connections)]
    pub(crate) max_connections: usize,

    /// What is logged: error, warn, info, debug or trace; also by module, such as info,ratekeeper_gateway=debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log: Targets,
}

/// Which `Host` the upstream sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Host {
    /// The client's.
    Pass,
    /// The upstream's own.
    Upstream,
}

fn connections(text: &str) -> Result<usize, String> {
    // A semaphore cannot count up to `usize::MAX`.
    match text.parse::<u32>() {
        Ok(0) => Err("of no connections none is served".to_owned()),
        Ok(number) => Ok(usize::try_from(number).unwrap_or(usize::MAX)),
        Err(_) => Err("this is not a number of connections".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    fn parse(args: &[&str]) -> Result<Args, clap::Error> {
        let needed = ["gateway", "--rules", "rules.toml", "--upstream", "http://127.0.0.1:9000"];
        Args::try_parse_from(needed.iter().chain(args))
    }

    #[test]
    fn few_things_have_to_be_said() {
        let args = parse(&[]).unwrap();
        assert_eq!(args.listen, "127.0.0.1:8080".parse().unwrap());
        assert_eq!((args.redis, args.metrics, args.host), (None, None, Host::Pass));
        assert_eq!(args.redis_timeout, Duration::from_millis(5));
        assert_eq!(args.request_timeout.get(), None);
        assert_eq!(args.max_rules_size, 1 << 20);
        let missing = Args::try_parse_from(["gateway", "--rules", "rules.toml"]).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::MissingRequiredArgument);
    }

    #[test]
    fn proxies_are_named_one_by_one() {
        let args = parse(&["--trust-proxy", "10.0.0.0/8", "--trust-proxy", "::1"]).unwrap();
        assert_eq!(args.trusted, ["10.0.0.0/8".parse().unwrap(), "::1/128".parse::<IpNet>().unwrap()]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for wrong in [
            ["--listen", "localhost"],
            ["--trust-proxy", "10.0.0.0/33"],
            ["--host", "mine"],
            ["--grace", "soon"],
            ["--max-connections", "0"],
            ["--max-rules-size", "1MB"],
            ["--log", "loud=very"],
        ] {
            let kind = parse(&wrong).unwrap_err().kind();
            assert!(
                matches!(kind, ErrorKind::ValueValidation | ErrorKind::InvalidValue),
                "{wrong:?}: {kind}"
            );
        }
    }
}
