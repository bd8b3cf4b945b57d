//! A running server whose rules are changed, by each kind of source: what its clients see.

use std::fs;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ratekeeper::RateLimitLayer;
use ratekeeper_rules::{FileSource, Format, RedisSource, ReloadHandle, Reloader, Source};
use ratekeeper_servers::RedisServer;

use crate::postgres::Database;
use crate::support::{NEVER, Reloaded, rules};

/// A server on its own port, and a client that calls it.
struct Served {
    reloaded: Reloaded,
    address: SocketAddr,
    client: Client<HttpConnector, Empty<Bytes>>,
}

impl Served {
    async fn start(source: impl Source) -> Self {
        let loaded = Reloader::new(source).load().await.expect("good rules");
        let limiter = loaded.limiter().build().expect("good rules");
        let layer = loaded.layer().apply(RateLimitLayer::new(limiter.clone()));
        let handle: ReloadHandle = loaded.start(&limiter);
        let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it has one");
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, service).await });
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { reloaded: Reloaded { limiter, handle }, address, client }
    }

    /// The response to one call: its status, the limit, and what remains of it.
    async fn call(&self) -> (StatusCode, u32, u32) {
        let request =
            Request::get(format!("http://{}/", self.address)).body(Empty::new()).expect("a request");
        let response = self.client.request(request).await.expect("an answer");
        let field = |name: &str| -> u32 {
            let value = response.headers().get(name).unwrap_or_else(|| panic!("there is no {name}"));
            value.to_str().ok().and_then(|value| value.parse().ok()).expect("a number")
        };
        (response.status(), field("x-ratelimit-limit"), field("x-ratelimit-remaining"))
    }

    /// The same scenario with each source: it begins with ten an hour, and `change` sets another number.
    async fn play(&self, change: impl AsyncFn(u32)) {
        for left in [9, 8, 7] {
            assert_eq!(self.call().await, (StatusCode::OK, 10, left));
        }
        // Lowered, and what was used stays used.
        change(4).await;
        self.reloaded.until_limit(4).await;
        assert_eq!(self.call().await, (StatusCode::OK, 4, 0));
        assert_eq!(self.call().await, (StatusCode::TOO_MANY_REQUESTS, 4, 0));
        // Raised, which helps immediately.
        change(6).await;
        self.reloaded.until_limit(6).await;
        assert_eq!(self.call().await, (StatusCode::OK, 6, 1));
        // Invalid rules change nothing for any client.
        change(0).await;
        self.reloaded.until_refused().await;
        assert_eq!(self.call().await, (StatusCode::OK, 6, 0));
        assert_eq!(self.call().await, (StatusCode::TOO_MANY_REQUESTS, 6, 0));
        change(7).await;
        self.reloaded.until_limit(7).await;
        assert_eq!(self.call().await, (StatusCode::OK, 7, 0));
    }
}

#[tokio::test]
async fn by_a_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("rules.toml");
    fs::write(&path, rules(10)).unwrap();
    let served = Served::start(FileSource::new(&path).poll_every(NEVER)).await;
    served.play(async |limit| fs::write(&path, rules(limit)).unwrap()).await;
}

#[tokio::test]
async fn by_redis() {
    let server = RedisServer::start().expect("it starts");
    let source = || RedisSource::new(server.url()).unwrap().poll_every(NEVER);
    let publish = async |limit| {
        source().publish(Format::Toml, rules(limit)).await.expect("it is published");
    };
    publish(10).await;
    Served::start(source()).await.play(publish).await;
}

#[tokio::test]
async fn by_postgres() {
    let database = Database::with_rules().await;
    let served = Served::start(database.listening()).await;
    served.play(async |limit| database.limit(limit).await).await;
}
