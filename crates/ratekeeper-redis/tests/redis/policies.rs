//! What rules do while Redis is gone, and that everything is as before once it is back.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use ratekeeper::{
    Decision, FailurePolicy, HOUR, Limiter, MINUTE, Quota, RateLimitLayer, Rule, Share, StoreError, key,
};
use ratekeeper_redis::RedisStore;
use ratekeeper_servers::RedisServer;
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{PATIENCE, patient};

type Reply = Response<Full<Bytes>>;

/// One process of a fleet: three paths, each with a rule and a policy, and a rule for all.
struct Node {
    store: RedisStore,
    service: BoxCloneService<Request<()>, Reply, Infallible>,
}

impl Node {
    async fn start(server: &RedisServer) -> Self {
        let store = patient(server).build().expect("the store can be made");
        store.ready(PATIENCE).await.expect("the server works");
        let rule = |name, policy| {
            let rule = Rule::new(name, Quota::sliding_log(100, HOUR)).key(key::global());
            rule.on_path(format!("/{name}")).on_store_failure(policy)
        };
        let limiter = Limiter::builder()
            .rule(rule("local", FailurePolicy::Local(Share::one_of(4))))
            .rule(rule("deny", FailurePolicy::Deny))
            .rule(rule("allow", FailurePolicy::Allow))
            .rule(Rule::new("all", Quota::fixed_window(1_000_000, MINUTE)).key(key::global()))
            .store(store.clone())
            .build()
            .expect("good rules");
        let inner = service_fn(|request: Request<()>| {
            let mut reply = Reply::default();
            reply.headers_mut().insert("x-degraded", is_degraded(&request).to_string().parse().unwrap());
            std::future::ready(Ok(reply))
        });
        Self { store, service: BoxCloneService::new(RateLimitLayer::new(limiter).layer(inner)) }
    }

    async fn get(&self, path: &str) -> Reply {
        let request = Request::builder().uri(path).body(()).expect("a request");
        let Ok(reply) = self.service.clone().oneshot(request).await;
        reply
    }

    /// How many of `n` requests are admitted; the others must be denied.
    async fn admitted(&self, n: usize, path: &str) -> usize {
        let mut admitted = 0;
        for _ in 0..n {
            match self.get(path).await.status() {
                StatusCode::OK => admitted += 1,
                status => assert_eq!(status, StatusCode::TOO_MANY_REQUESTS),
            }
        }
        admitted
    }
}

fn is_degraded<B>(request: &Request<B>) -> bool {
    request.extensions().get::<StoreError>().is_some()
}

fn limit(reply: &Reply) -> Option<u32> {
    Some(reply.headers().get("x-ratelimit-limit")?.to_str().unwrap().parse().unwrap())
}

fn server() -> RedisServer {
    RedisServer::start().unwrap_or_else(|error| panic!("{error}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_rule_does_what_it_says_while_redis_is_gone() {
    let server = server();
    let node = Node::start(&server).await;
    for path in ["/local", "/deny", "/allow"] {
        let reply = node.get(path).await;
        assert_eq!((reply.status(), limit(&reply)), (StatusCode::OK, Some(100)), "{path}");
        assert_eq!(reply.headers()["x-degraded"], "false");
    }

    server.kill().expect("it can be killed");
    assert_eq!(node.admitted(30, "/local").await, 25);
    let denied = node.get("/local").await;
    assert_eq!((denied.status(), limit(&denied)), (StatusCode::TOO_MANY_REQUESTS, Some(25)));
    assert!(denied.extensions().get::<StoreError>().is_some());
    assert!(!denied.extensions().get::<Decision>().expect("a decision").is_admitted());
    for _ in 0..110 {
        let reply = node.get("/allow").await;
        assert_eq!((reply.status(), limit(&reply)), (StatusCode::OK, None));
        assert_eq!(reply.headers()["x-degraded"], "true");
        let reply = node.get("/deny").await;
        assert_eq!((reply.status(), limit(&reply)), (StatusCode::SERVICE_UNAVAILABLE, None));
        assert_eq!(reply.headers()["retry-after"], "1");
        assert_eq!(reply.headers()["cache-control"], "no-store");
    }

    server.restart().expect("it can be started again");
    node.store.ready(PATIENCE).await.expect("the server works again");
    for path in ["/local", "/deny", "/allow"] {
        let reply = node.get(path).await;
        assert_eq!((reply.status(), limit(&reply)), (StatusCode::OK, Some(100)), "{path}");
        assert_eq!(reply.headers()["x-degraded"], "false");
        // What was admitted locally is debited with the first answer.
        let left = if path == "/local" { 99 - 25 } else { 99 };
        assert_eq!(node.admitted(110, path).await, left, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_nodes_with_a_quarter_each_admit_the_whole_and_no_more() {
    let server = server();
    let mut nodes = Vec::new();
    for _ in 0..4 {
        nodes.push(Node::start(&server).await);
    }
    // In turns, as from a load balancer.
    let admitted = async |requests: usize| {
        let mut admitted = 0;
        for turn in 0..requests {
            admitted += nodes[turn % 4].admitted(1, "/local").await;
        }
        admitted
    };
    assert_eq!(admitted(40).await, 40);

    server.kill().expect("it can be killed");
    // A node knows nothing about the others or about what was counted before.
    assert_eq!(admitted(120).await, 100);
    for node in &nodes {
        assert_eq!(node.admitted(5, "/local").await, 0);
    }

    server.restart().expect("it can be started again");
    for node in &nodes {
        node.store.ready(PATIENCE).await.expect("the server works again");
    }
    // Each node debits the 25 that it has admitted locally with its first answer.
    assert_eq!(nodes[0].admitted(70, "/local").await, 70, "more than its share");
    let first = admitted(4).await;
    assert!((2..=4).contains(&first), "{first}: the first of the others are admitted before they debit");
    assert_eq!(admitted(120).await, 0);
}
