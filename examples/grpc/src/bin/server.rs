//! A tonic server that each client address may call five times in any five seconds, each method separately.
//!
//! ```text
//! cargo run -p grpc
//! ```
//!
//! The README shows what to type then. With `REDIS_URL` all servers share the limits.

use std::time::Duration;

use anyhow::Context;
use futures_util::stream::{self, BoxStream, StreamExt};
use grpc::{Greeter, GreeterServer, Greeting, Name};
use ratekeeper::key::{self, PeerAddr};
use ratekeeper::{
    ConfigError, FailurePolicy, Limiter, MemoryStore, Quota, RateLimitLayer, Rule, Store,
    rejection::GrpcRejection,
};
use ratekeeper_redis::{RedisStore, Servers};
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::transport::Server;
use tonic::transport::server::{Router, TcpConnectInfo, TcpIncoming};
use tonic::{Request, Response, Status};
use tower::layer::util::{Identity, Stack};
use tower::util::MapRequestLayer;

const QUOTA: Quota = Quota::sliding_log(5, Duration::from_secs(5));

type TellPeer = MapRequestLayer<fn(http::Request<Body>) -> http::Request<Body>>;
type App = Router<Stack<RateLimitLayer<GrpcRejection>, Stack<TellPeer, Identity>>>;

/// The service and its limit: five calls of each method for each client address. If the store does not
/// answer, nothing is served, and clients get UNAVAILABLE, not RESOURCE_EXHAUSTED.
fn app<S: Store>(store: S) -> Result<App, ConfigError> {
    let rule = Rule::new("per-method", QUOTA)
        .on_path("/hello.v1.Greeter/{method}")
        .key((key::peer_ip(), key::grpc_method()))
        .on_store_failure(FailurePolicy::Deny);
    let limiter = Limiter::builder().rule(rule).store(store).build()?;
    let limit = RateLimitLayer::new(limiter).rejection(GrpcRejection);
    // The layer that is added first is the outermost.
    let mut server = Server::builder().layer(TellPeer::new(tell_peer)).layer(limit);
    Ok(server.add_service(GreeterServer::new(Polite)))
}

/// Passes the peer, which tonic knows, to the limit's layer.
fn tell_peer(mut request: http::Request<Body>) -> http::Request<Body> {
    if let Some(peer) = request.extensions().get().and_then(TcpConnectInfo::remote_addr) {
        request.extensions_mut().insert(PeerAddr(peer));
    }
    request
}

struct Polite;

#[tonic::async_trait]
impl Greeter for Polite {
    async fn greet(&self, request: Request<Name>) -> Result<Response<Greeting>, Status> {
        Ok(Response::new(greeting(&request.into_inner())))
    }

    type GreetOftenStream = BoxStream<'static, Result<Greeting, Status>>;

    /// Greets three times. The whole stream is one call.
    async fn greet_often(&self, request: Request<Name>) -> Result<Response<Self::GreetOftenStream>, Status> {
        let greeting = greeting(&request.into_inner());
        Ok(Response::new(stream::repeat(Ok(greeting)).take(3).boxed()))
    }
}

fn greeting(Name { name }: &Name) -> Greeting {
    Greeting { text: format!("hello, {name}") }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match std::env::var_os("REDIS_URL") {
        Some(url) => serve(redis(&url.to_string_lossy()).await?).await,
        None => serve(MemoryStore::new()).await,
    }
}

/// The store in this Redis. If it does not answer, the service starts without it, and uses it once it does.
async fn redis(url: &str) -> anyhow::Result<RedisStore> {
    let servers = Servers::one(url).context("REDIS_URL is not an address such as redis://127.0.0.1:6379")?;
    // The default of 5 ms is for a network of servers, not for a machine that compiles something meanwhile.
    let store = RedisStore::builder(servers).timeout(Duration::from_secs(2)).build()?;
    if let Err(error) = store.ready(Duration::from_secs(2)).await {
        eprintln!("warning: Redis does not answer, so this process goes on without it: {error}");
    }
    Ok(store)
}

async fn serve<S: Store>(store: S) -> anyhow::Result<()> {
    let app = app(store)?;
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener =
        TcpListener::bind(&address).await.with_context(|| format!("cannot listen on LISTEN={address}"))?;
    // The actual address: port 0 picks a free port.
    println!("listening on http://{}", listener.local_addr()?);
    Ok(app.serve_with_incoming(TcpIncoming::from(listener)).await?)
}
