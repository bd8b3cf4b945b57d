//! A tonic client whose server pushes back.

use std::net::SocketAddr;
use std::time::Duration;

use ratekeeper::rejection::GrpcRejection;
use ratekeeper::{Limiter, Quota, RateLimitLayer};
use ratekeeper_client::{Pacer, PacingLayer};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::Layer;

use crate::support::{Recording, rule};

async fn serve(quota: Quota) -> SocketAddr {
    let limiter = Limiter::builder().rule(rule("r", quota)).build().unwrap();
    let layer = RateLimitLayer::new(limiter).x_ratelimit_headers(false).rejection(GrpcRejection);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(layer).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_pushes_back_does_not_refuse_twice_in_a_row() {
    let server = serve(Quota::per_second(20)).await;
    let channel = Endpoint::from_shared(format!("http://{server}")).unwrap().connect_lazy();
    let (channel, record) = Recording::new(channel);
    let client = HealthClient::new(PacingLayer::new(Pacer::new()).layer(channel));
    let until = Instant::now() + Duration::from_millis(2_500);
    let callers: Vec<_> = (0..20)
        .map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move {
                while Instant::now() < until {
                    // A refused call is not sent again: it is a POST, and its body is a stream.
                    drop(client.check(HealthCheckRequest::default()).await);
                }
            })
        })
        .collect();
    for caller in callers {
        drop(tokio::time::timeout_at(until + Duration::from_millis(100), caller).await);
    }
    assert!(record.refused() > 0);
    assert_eq!(record.refused_in_a_row(), 0, "{record:?}");
    assert!(record.admitted() >= 30, "{}", record.admitted());
}
