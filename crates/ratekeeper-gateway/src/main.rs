//! A reverse proxy that limits requests by the rules of a file, in memory or through Redis.
//!
//! ```text
//! ratekeeper-gateway --rules rules.toml --upstream http://127.0.0.1:9000
//! ```
//!
//! The README has rule files, all flags, and what the gateway does not do.

mod activity;
mod admin;
mod args;
mod body;
mod failure;
mod forwarding;
mod listener;
mod metrics;
mod proxy;
mod rules;
mod shutdown;
mod signals;
mod store;
mod timeouts;
mod tls;
mod upgrade;
mod upstream;

use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use ratekeeper::{MemoryStore, RateLimitLayer, Store};
use ratekeeper_rules::{FileSource, Loaded};
use tokio::net::TcpListener;
use tower::Layer;
use tracing::{info, warn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::admin::Admin;
use crate::args::Args;
use crate::forwarding::Forwarding;
use crate::listener::Listening;
use crate::proxy::Proxy;
use crate::shutdown::Shutdown;
use crate::signals::Ending;
use crate::timeouts::Timeouts;

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    tracing_subscriber::registry().with(log).with(args.log.clone()).init();
    match run(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let servers = args.redis.as_deref().map(store::servers).transpose();
    let servers = servers.unwrap_or_else(|error| {
        // Like clap's own errors: with the usage, and exit code 2.
        Args::command().error(ErrorKind::ValueValidation, error).exit()
    });
    let rules = rules::load(&args.rules, args.max_rules_size).await?;
    match servers {
        Some(servers) => {
            let store = store::redis(servers, &args).await?;
            serve(&args, rules, store).await
        }
        None => serve(&args, rules, MemoryStore::new()).await,
    }
}

async fn serve<S: Store>(args: &Args, rules: Loaded<FileSource>, store: S) -> Result<(), Box<dyn Error>> {
    // Before there is anything to count.
    let metrics =
        args.metrics.map(|address| metrics::install().map(|metrics| (address, metrics))).transpose()?;
    let limiter = rules.limiter().store(store).build()?;
    // Preflights count, because an upstream may ignore methods. A file can configure otherwise.
    let layer = RateLimitLayer::new(limiter.clone()).charge_preflights(true);
    let layer = rules.layer().apply(layer);
    let shutdown = Shutdown::default();
    let proxy = Proxy {
        client: upstream::client(args)?,
        forwarding: Forwarding {
            upstream: args.upstream.clone(),
            host: args.host,
            trusted: args.trusted.clone(),
            plain_paths: args.plain_paths,
        },
        timeouts: Timeouts {
            response: args.response_timeout,
            idle: args.idle_timeout,
            request: args.request_timeout.get(),
        },
        shutdown: shutdown.clone(),
    };
    let listening = Listening {
        header_timeout: args.header_timeout,
        idle_timeout: args.idle_timeout,
        max_connections: args.max_connections,
        shutdown: shutdown.clone(),
    };
    // From here on, so that a signal during startup is not lost.
    let mut ending = Ending::listen()?;
    let listener = listen("--listen", args.listen).await?;
    say("listening", listener.local_addr()?);
    let rules = rules::Status::follow(rules, &limiter)?;
    if let Some((address, metrics)) = metrics {
        let admin = Admin { metrics, rules: rules.clone(), shutdown: shutdown.clone() };
        let listener = listen("--metrics", address).await?;
        say("metrics", listener.local_addr()?);
        tokio::spawn(admin.serve(listener));
    }
    info!(upstream = %args.upstream, redis = args.redis.is_some(), "started");

    let accepting = tokio::spawn(listening.serve(listener, layer.layer(proxy.service())));
    let signal = ending.next().await;
    info!(signal, grace = ?args.grace, "ending");
    shutdown.drain();
    // Requests waiting for a budget that would come too late are answered now.
    limiter.close();
    // This also drops the listener, so that no connection is accepted that would not be served.
    accepting.await?;
    let second = async {
        ending.next().await;
    };
    if shutdown.finish(args.grace, second).await {
        info!("ended");
    } else {
        warn!("ended, and cut off what was still under way");
    }
    // Until here the rules have followed their file.
    drop(rules);
    Ok(())
}

async fn listen(flag: &str, address: SocketAddr) -> Result<TcpListener, String> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|error| format!("cannot listen on {flag} {address}: {error}"))
}

/// Prints the actual address, not the requested one: port 0 picks a free port.
fn say(what: &str, address: SocketAddr) {
    // A failure to print it is no reason to exit.
    let _ = writeln!(std::io::stdout(), "{what} on http://{address}");
}

/// An error and its causes.
fn chain(error: &dyn Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", chain(cause)),
        None => error.to_string(),
    }
}
