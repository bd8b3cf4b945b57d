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

/// What is sent to the upstream: a request's body as it comes, or none.
pub(crate) type Sent = Either<Timed<Incoming>, Empty<Bytes>>;

type Connector = BoxCloneSyncService<Uri, MaybeHttpsStream<TokioIo<TcpStream>>, BoxError>;

pub(crate) type UpstreamClient = Client<Connector, Sent>;

/// How long a connection is kept that nobody uses. Less than most servers keep one.
const POOL_IDLE: Duration = Duration::from_secs(15);

/// How many of them.
const POOL_SIZE: usize = 256;

/// After how long without a word the other side is asked whether it is still there.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Who asks the upstream.
///
/// # Errors
///
/// When it is to be asked by https, and there is nothing to check its certificate by.
pub(crate) fn client(args: &Args) -> Result<UpstreamClient, Box<dyn Error>> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    // Some ends of an upgraded connection say nothing for hours, and some have gone.
    tcp.set_keepalive(Some(KEEP_ALIVE));
    let roots =
        if args.upstream.is_https() { tls::roots(args.upstream_ca.as_deref())? } else { tls::no_roots() };
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls::config(roots)?)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    // Around all of it: the look-up of the name and the handshake may take long as well.
    let connector = TimeoutLayer::new(args.connect_timeout).layer(connector);
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE)
        .pool_max_idle_per_host(POOL_SIZE)
        .build(BoxCloneSyncService::new(connector)))
}
