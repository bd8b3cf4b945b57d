//! Connections to the upstream.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body_util::{Either, Empty};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tower::timeout::TimeoutLayer;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer};

use crate::args::Args;
use crate::timeouts::Timed;
use crate::tls;

/// The body sent to the upstream: the request's, streamed, or none.
pub(crate) type Sent = Either<Timed<Incoming>, Empty<Bytes>>;

type Connector = BoxCloneSyncService<Uri, MaybeHttpsStream<TokioIo<TcpStream>>, BoxError>;

pub(crate) type UpstreamClient = Client<Connector, Sent>;

/// How long an unused connection is kept. Less than most servers keep one.
const POOL_IDLE: Duration = Duration::from_secs(15);

/// How many of them.
const POOL_SIZE: usize = 256;

/// After how long without data a probe checks whether the other side is still there.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// The client for the upstream.
///
/// # Errors
///
/// When the upstream is https, and there is nothing to verify its certificate with.
pub(crate) fn client(args: &Args) -> Result<UpstreamClient, Box<dyn Error>> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    // Some ends of an upgraded connection are silent for hours, and some have gone.
    tcp.set_keepalive(Some(KEEP_ALIVE));
    let roots =
        if args.upstream.is_https() { tls::roots(args.upstream_ca.as_deref())? } else { tls::no_roots() };
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls::config(roots)?)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    // Around everything: the name lookup and the handshake may take long as well.
    let connector = TimeoutLayer::new(args.connect_timeout).layer(connector);
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE)
        .pool_max_idle_per_host(POOL_SIZE)
        .build(BoxCloneSyncService::new(connector)))
}
