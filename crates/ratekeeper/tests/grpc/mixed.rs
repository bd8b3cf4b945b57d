//! Servers that speak gRPC and other HTTP.

use axum::Router;
use axum::routing::get;
use http::{Method, StatusCode, Version};
use http_body_util::BodyExt;
use ratekeeper::{
    Quota, RateLimitLayer, Rule, key, rejection::GrpcRejection, rejection::ProblemRejection,
    rejection::Rejection,
};
use tonic::body::Body;
use tonic::service::Routes;
use tonic_health::pb::health_client::HealthClient;
use tower::{Layer, ServiceExt};

use crate::support::{Client, Counting, StatusAsked, assert_exhausted, channel, layer, listen};

fn spent() -> RateLimitLayer {
    layer([Rule::new("r", Quota::per_minute(1)).key(key::global())]).0
}

/// A budget of one call on an axum server: sends a first and a second call, then a request that is not gRPC.
async fn on_axum<R>(layer: RateLimitLayer<R>) -> http::Response<String>
where
    R: Rejection<axum::body::Body> + Clone + Send + Sync + 'static,
{
    let inner = Counting::default();
    let calls = Routes::new(inner.service()).into_axum_router();
    let app = Router::new().route("/", get(|| async { "hello" })).merge(calls).layer(layer);
    let (listener, address) = listen().await;
    let other = app.clone();
    tokio::spawn(async move { axum::serve(listener, app).await });

    let mut client = Client(HealthClient::new(channel(address, None)));
    client.check().await.unwrap();
    let status = client.denied().await;
    assert_exhausted(&status);
    assert_eq!(status.field("grpc-retry-pushback-ms"), Some("60000"));
    assert_eq!(status.field("x-ratelimit-limit"), Some("1"));
    assert_eq!(status.violated(), [("r".to_owned(), 1)]);
    assert_eq!(inner.calls(), 1);

    let reply = other.oneshot(http::Request::new(axum::body::Body::empty())).await.unwrap();
    assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(!reply.headers().keys().any(|name| name.as_str().starts_with("grpc")));
    assert_eq!(reply.headers()["retry-after"], "60");
    let (parts, body) = reply.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    http::Response::from_parts(parts, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn json_is_for_requests_that_are_not_of_grpc() {
    let reply = on_axum(spent()).await;
    assert_eq!(reply.headers()["content-type"], "application/json");
    assert!(reply.body().starts_with(r#"{"error":"rate_limited""#));
}

#[tokio::test]
async fn so_is_a_problem_document() {
    let reply = on_axum(spent().rejection(ProblemRejection)).await;
    assert_eq!(reply.headers()["content-type"], "application/problem+json");
    assert!(reply.body().contains("quota-exceeded"));
}

#[tokio::test]
async fn where_there_is_but_grpc_other_requests_get_a_status_and_no_body() {
    let reply = on_axum(spent().rejection(GrpcRejection)).await;
    assert_eq!(reply.headers().get("content-type"), None);
    assert_eq!(reply.body(), "");
}

#[tokio::test]
async fn a_rejection_of_ones_own_can_leave_grpc_to_ours() {
    let own = |head: &ratekeeper::RequestHead<'_>,
               refusal: &ratekeeper::rejection::RejectionReason<'_>|
     -> axum::response::Response {
        let mut reply: axum::response::Response = GrpcRejection.reject(head, refusal);
        if reply.status() == refusal.status() {
            *reply.body_mut() = "my own".into();
        }
        reply
    };
    assert_eq!(on_axum(spent().rejection(own)).await.body(), "my own");
}

#[tokio::test]
async fn a_layer_may_be_around_one_service_of_tonics() {
    let inner = Counting::default();
    let service = spent().rejection(GrpcRejection).layer(inner.service());
    let send = |version, method| {
        let mut request = http::Request::new(Body::empty());
        *request.version_mut() = version;
        *request.method_mut() = method;
        request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        *request.uri_mut() = "/grpc.health.v1.Health/Check".parse().unwrap();
        service.clone().oneshot(request)
    };
    let call = || send(Version::HTTP_2, Method::POST);
    assert_eq!(call().await.unwrap().headers().get("x-ratelimit-limit").unwrap(), "1");
    let denied = call().await.unwrap();
    assert_eq!((denied.status(), &denied.headers()["grpc-status"]), (StatusCode::OK, &"8".parse().unwrap()));
    // A gRPC call is a POST over HTTP/2. Anything else with the same content type is denied like a plain HTTP
    // request.
    for (version, method) in [(Version::HTTP_2, Method::GET), (Version::HTTP_11, Method::POST)] {
        let denied = send(version, method).await.unwrap();
        assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(!denied.headers().contains_key("grpc-status"));
    }
}
