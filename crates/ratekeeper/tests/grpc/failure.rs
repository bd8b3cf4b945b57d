//! When the store cannot decide, or no more requests can wait.

use std::time::Duration;

use ratekeeper::{
    FailurePolicy, Limiter, MINUTE, Quota, RateLimitLayer, Rule, Share, key, rejection::GrpcRejection,
};
use ratekeeper_redis::{RedisStore, Servers};
use ratekeeper_servers::RedisServer;
use tonic::Code;
use tonic::transport::Server;
use tonic_health::pb::health_client::HealthClient;

use crate::support::{Client, Counting, StatusAsked, assert_exhausted, channel, layer, serve};

/// A service whose Redis is gone.
async fn without_redis(policy: FailurePolicy) -> (Client, Counting) {
    let redis = RedisServer::start().unwrap_or_else(|error| panic!("{error}"));
    let store = RedisStore::builder(Servers::one(&*redis.url()).unwrap()).build().unwrap();
    drop(redis);
    let rule = Rule::new("r", Quota::per_minute(4)).key(key::global()).on_store_failure(policy);
    let limiter = Limiter::builder().store(store).rule(rule).build().unwrap();
    let inner = Counting::default();
    let layer = RateLimitLayer::new(limiter).rejection(GrpcRejection);
    let address = serve(Server::builder().layer(layer).add_service(inner.service())).await;
    (Client(HealthClient::new(channel(address, None))), inner)
}

#[tokio::test]
async fn a_rule_that_denies_then_answers_unavailable_and_never_resource_exhausted() {
    let (mut client, inner) = without_redis(FailurePolicy::Deny).await;
    let unary = client.denied().await;
    let streamed = client.watch().await.unwrap_err();
    for status in [unary, streamed] {
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        assert_eq!(status.message(), "Whether this request may be served cannot be told now (rule r).");
        assert_eq!(status.delay(), Some(Duration::from_secs(1)));
        assert_eq!(status.field("grpc-retry-pushback-ms"), Some("1000"));
        assert_eq!(status.field("retry-after"), Some("1"));
        // No caller is over a limit.
        assert!(status.violated().is_empty());
        assert_eq!(status.field("x-ratelimit-limit"), None);
        // And internal errors are not revealed.
        assert!(!format!("{status:?}").contains("redis"), "{status:?}");
    }
    assert_eq!(inner.calls(), 0);
}

#[tokio::test]
async fn a_rule_that_decides_locally_denies_as_it_does_with_redis() {
    let (mut client, inner) = without_redis(FailurePolicy::Local(Share::one_of(4))).await;
    client.check().await.unwrap();
    let status = client.denied().await;
    assert_exhausted(&status);
    assert_eq!(status.violated(), [("r".to_owned(), 1)]);
    assert_eq!(inner.calls(), 1);
}

#[tokio::test]
async fn unless_it_is_said_calls_go_on() {
    let (mut client, inner) = without_redis(FailurePolicy::Allow).await;
    for _ in 0..6 {
        client.check().await.unwrap();
    }
    assert_eq!(inner.calls(), 6);
}

#[tokio::test]
async fn a_call_that_would_have_to_wait_and_cannot_is_told_unavailable() {
    let (layer, _) = layer([Rule::new("r", Quota::leaky_bucket(5, MINUTE)).key(key::global())]);
    layer.limiter().close();
    let inner = Counting::default();
    let server = Server::builder().layer(layer.rejection(GrpcRejection)).add_service(inner.service());
    let mut client = Client(HealthClient::new(channel(serve(server).await, None)));
    // The first in the queue need not wait.
    client.check().await.unwrap();
    let status = client.denied().await;
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert_eq!(status.message(), "This request would have to wait, and cannot now.");
    assert_eq!(status.delay(), Some(Duration::from_secs(1)));
    assert!(status.violated().is_empty());
    assert_eq!(inner.calls(), 1);
}
