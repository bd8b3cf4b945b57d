//! gRPC-Web, as browsers speak it.

use std::net::SocketAddr;

use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use ratekeeper::{Quota, Rule, key, rejection::GrpcRejection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic_health::pb::health_client::HealthClient;
use tonic_web::{GrpcWebClientLayer, GrpcWebLayer};
use tower::ServiceBuilder;

use crate::support::{Client, Counting, StatusAsked, assert_exhausted, layer, listen, serve};

fn rules() -> [Rule; 1] {
    [Rule::new("r", Quota::per_second(2)).key(key::global())]
}

/// Three servers that translate gRPC-Web to gRPC inside or outside of the limit's layer.
async fn servers() -> [(&'static str, SocketAddr, Counting); 3] {
    let limit = || layer(rules()).0.rejection(GrpcRejection);
    let [within, outside, axum] = std::array::from_fn(|_| Counting::default());
    let server = || Server::builder().accept_http1(true);
    let limit_first = server().layer(limit()).layer(GrpcWebLayer::new()).add_service(within.service());
    let web_first = server().layer(GrpcWebLayer::new()).layer(limit()).add_service(outside.service());

    let calls = Routes::new(axum.service()).into_axum_router().layer(GrpcWebLayer::new());
    let app = calls.layer(layer(rules()).0);
    let (listener, address) = listen().await;
    tokio::spawn(async move { axum::serve(listener, app).await });

    [
        ("within", serve(limit_first).await, within),
        ("outside", serve(web_first).await, outside),
        ("within, on axum", address, axum),
    ]
}

#[tokio::test]
async fn tonics_client_sees_code_and_delay_wherever_the_translation_is() {
    for (place, address, inner) in servers().await {
        let http = HttpClient::builder(TokioExecutor::new()).build_http();
        let web = ServiceBuilder::new().layer(GrpcWebClientLayer::new()).service(http);
        let origin = format!("http://{address}").parse().unwrap();
        let mut client = Client(HealthClient::with_origin(web, origin));
        for left in ["1", "0"] {
            let checked = client.check().await.unwrap();
            assert_eq!(checked.metadata().get("x-ratelimit-remaining").unwrap(), left, "{place}");
        }
        for status in [client.denied().await, client.watch().await.unwrap_err()] {
            assert_exhausted(&status);
            assert_eq!(status.message(), "Too many requests (rule r).", "{place}");
            assert_eq!(status.delay(), Some(std::time::Duration::from_millis(500)), "{place}");
            assert_eq!(status.field("grpc-retry-pushback-ms"), Some("500"), "{place}");
            assert_eq!(status.violated(), [("r".to_owned(), 2)], "{place}");
        }
        assert_eq!(inner.calls(), 2, "{place}");
    }
}

/// The whole response to a call with an empty message over HTTP/1.1, in lower case.
async fn fetch(server: SocketAddr, content_type: &str, message: &str) -> String {
    let mut stream = TcpStream::connect(server).await.unwrap();
    let request = format!(
        "POST /grpc.health.v1.Health/Check HTTP/1.1\r\nhost: example.com\r\nconnection: close\r\n\
         content-type: {content_type}\r\naccept: {content_type}\r\ncontent-length: {}\r\n\r\n{message}",
        message.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    String::from_utf8_lossy(&response).to_lowercase()
}

#[tokio::test]
async fn a_denial_has_the_type_of_the_call_its_status_among_the_fields_and_no_body() {
    for (place, address, inner) in servers().await {
        for _ in 0..2 {
            let admitted = fetch(address, "application/grpc-web", "\0\0\0\0\0").await;
            // The status of an admitted call is in the body.
            let (head, body) = admitted.split_once("\r\n\r\n").unwrap();
            assert!(!head.contains("grpc-status") && body.contains("grpc-status:0"), "{place}: {admitted}");
        }
        for (content_type, message) in [
            ("application/grpc-web", "\0\0\0\0\0"),
            ("application/grpc-web+proto", "\0\0\0\0\0"),
            ("application/grpc-web-text", "AAAAAAA="),
            ("application/grpc-web-text+proto", "AAAAAAA="),
        ] {
            let denied = fetch(address, content_type, message).await;
            assert!(denied.starts_with("http/1.1 200 ok\r\n"), "{place}: {denied}");
            assert!(denied.ends_with("\r\n\r\n"), "{place}: {denied}");
            // tonic-web adds the format even if the request named none.
            let with_format = format!("{}+proto", content_type.trim_end_matches("+proto"));
            let content_type = if place == "outside" { &with_format } else { content_type };
            for line in [
                &*format!("content-type: {content_type}"),
                "grpc-status: 8",
                "grpc-message: too many requests (rule r).",
                "grpc-retry-pushback-ms: 500",
                "content-length: 0",
                "x-ratelimit-limit: 2",
                "retry-after: 1",
                "cache-control: no-store",
            ] {
                assert!(denied.contains(&format!("\r\n{line}\r\n")), "{place}: {line}: {denied}");
            }
            assert!(denied.contains("\r\ngrpc-status-details-bin: "), "{place}: {denied}");
        }
        assert_eq!(inner.calls(), 2, "{place}");
    }
}
