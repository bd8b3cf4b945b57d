//! What is sent, frame by frame.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use ratekeeper::{Quota, Rule, key};
use tokio::net::TcpStream;

use crate::support::App;

/// The response to a call with an empty message, over HTTP/2, and whether it consists of header fields only.
async fn call(server: SocketAddr, content_type: &str) -> (Response<()>, bool) {
    let (mut send, connection) =
        h2::client::handshake(TcpStream::connect(server).await.unwrap()).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post(format!("http://{server}/grpc.health.v1.Health/Check"))
        .header("content-type", content_type)
        .header("te", "trailers");
    let (response, mut body) = send.send_request(request.body(()).unwrap(), false).unwrap();
    body.send_data(Bytes::from_static(&[0; 5]), true).unwrap();
    let (parts, body) = response.await.unwrap().into_parts();
    (Response::from_parts(parts, ()), body.is_end_stream())
}

#[tokio::test]
async fn a_denial_is_one_block_of_header_fields_and_nothing_more() {
    let app = App::new([Rule::new("100%", Quota::per_second(2)).key(key::global())]).await;
    for _ in 0..2 {
        let (admitted, is_all) = call(app.address, "application/grpc").await;
        assert_eq!((admitted.status().as_u16(), is_all), (200, false));
        assert_eq!(admitted.headers().get("grpc-status"), None);
    }
    let (denied, is_all) = call(app.address, "application/grpc").await;
    assert!(is_all);
    assert_eq!(denied.status(), 200);
    let mut fields: Vec<_> =
        denied.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    fields.retain(|(name, _)| !["date", "grpc-status-details-bin"].contains(name));
    fields.sort_unstable();
    assert_eq!(
        fields,
        [
            ("cache-control", "no-store"),
            ("content-type", "application/grpc"),
            ("grpc-message", "Too many requests (rule 100%25)."),
            ("grpc-retry-pushback-ms", "500"),
            ("grpc-status", "8"),
            ("retry-after", "1"),
            ("x-ratelimit-limit", "2"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1700000002"),
        ]
    );
    // Without padding, although the length is not a multiple of four.
    let details = denied.headers()["grpc-status-details-bin"].to_str().unwrap();
    assert!(details.len() % 4 != 0 && !details.contains('='), "{details}");
}

#[tokio::test]
async fn the_format_that_was_asked_for_is_that_of_the_answer() {
    let app = App::new([Rule::new("r", Quota::per_second(1)).key(key::global()).cost_by(|_| 2)]).await;
    for (asked, answered) in [
        ("application/grpc+proto", "application/grpc+proto"),
        ("application/grpc+json", "application/grpc+json"),
        ("application/grpc; charset=utf-8", "application/grpc"),
    ] {
        let (denied, is_all) = call(app.address, asked).await;
        assert_eq!((denied.headers()["content-type"].to_str().unwrap(), is_all), (answered, true));
    }
    let (other, _) = call(app.address, "application/json").await;
    assert_eq!((other.status().as_u16(), other.headers().get("grpc-status")), (429, None));
    assert_eq!(app.inner.calls(), 0);
}
