//! What a client of a gRPC service sees of a limit.

use std::net::IpAddr;
use std::time::Duration;

use futures_util::TryStreamExt;
use prost::Message;
use ratekeeper::key::{self, PeerAddr};
use ratekeeper::{DAY, HOUR, IetfDraft, MINUTE, MissingKey, Quota, Rule, rejection::GrpcRejection};
use tonic::transport::Server;
use tonic::transport::server::TcpConnectInfo;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;
use tower::util::MapRequestLayer;

use crate::support::{App, Client, Counting, StatusAsked, assert_exhausted, channel, layer, serve};

fn rule(name: &str, quota: Quota) -> Rule {
    Rule::new(name, quota).key(key::global())
}

#[tokio::test]
async fn a_call_beyond_the_limit_is_resource_exhausted_and_the_service_is_not_called() {
    let app = App::new([rule("r", Quota::per_minute(2))]).await;
    let mut client = app.client();
    for _ in 0..2 {
        client.check().await.unwrap();
    }
    for _ in 0..3 {
        let status = client.denied().await;
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.message(), "Too many requests (rule r).");
    }
    assert_eq!(app.inner.calls(), 2);
}

#[tokio::test]
async fn waiting_exactly_the_delay_succeeds_and_a_microsecond_less_does_not() {
    // A third of a second is no whole number of microseconds.
    let app = App::new([rule("r", Quota::per_second(3))]).await;
    let mut client = app.client();
    for _ in 0..3 {
        client.check().await.unwrap();
    }
    let status = client.denied().await;
    assert_eq!(status.delay(), Some(Duration::from_micros(333_334)));
    assert_eq!(status.field("grpc-retry-pushback-ms"), Some("334"));
    assert_eq!(status.field("retry-after"), Some("1"));

    app.clock.advance(Duration::from_micros(333_333));
    let status = client.denied().await;
    assert_eq!(status.delay(), Some(Duration::from_micros(1)));
    assert_eq!(status.field("grpc-retry-pushback-ms"), Some("1"));

    app.clock.advance(Duration::from_micros(1));
    client.check().await.unwrap();
    assert_eq!(app.inner.calls(), 4);
}

#[tokio::test]
async fn a_stream_beyond_the_limit_does_not_begin() {
    let app = App::new([rule("r", Quota::per_minute(1))]).await;
    let mut client = app.client();
    let answers: Vec<_> = client.watch().await.unwrap().into_inner().try_collect().await.unwrap();
    assert_eq!(answers.len(), 3);
    let status = client.watch().await.unwrap_err();
    assert_exhausted(&status);
    assert_eq!(status.delay(), Some(Duration::from_secs(60)));
    assert_eq!(status.violated(), [("r".to_owned(), 1)]);
    assert_eq!(app.inner.calls(), 1);
}

#[tokio::test]
async fn the_details_name_the_rules_that_deny_and_the_one_to_wait_for_longest_first() {
    let app = App::new([
        rule("roomy", Quota::per_minute(100)),
        rule("per-minute", Quota::fixed_window(2, MINUTE)),
        rule("per-hour", Quota::fixed_window(2, HOUR)),
    ])
    .await;
    let mut client = app.client();
    for _ in 0..2 {
        client.check().await.unwrap();
    }
    let status = client.denied().await;
    let details = status.get_error_details();
    let violations = &details.quota_failure().unwrap().violations;
    let names: Vec<_> = violations.iter().map(|one| one.quota_id.as_str()).collect();
    assert_eq!(names, ["per-hour", "per-minute"]);
    let first = &violations[0];
    assert_eq!((first.subject.as_str(), first.quota_value), ("rule:per-hour", 2));
    assert_eq!(first.description, "The limit of 2 does not allow this request.");
    // The clock stands 13 min 20.25 s into an hour.
    assert_eq!(status.delay(), Some(Duration::from_millis(2_799_750)));
    assert_eq!(status.field("grpc-retry-pushback-ms"), Some("2799750"));
    assert_eq!(status.message(), "Too many requests (rule per-hour).");
    // The status within the details is the same.
    let within = tonic_types::pb::Status::decode(status.details()).unwrap();
    assert_eq!((within.code, within.message.as_str()), (8, status.message()));
    // And byte for byte what tonic encodes for the same details.
    let again = Status::with_error_details(status.code(), status.message(), details);
    assert_eq!(status.details(), again.details());
    assert_eq!(app.inner.calls(), 2);
}

#[tokio::test]
async fn in_vain_there_is_no_delay_and_no_retry() {
    let too_much = rule("r", Quota::per_minute(2)).cost_by(|_| 3);
    let no_key =
        Rule::new("r", Quota::per_minute(2)).key(key::header("x-user")).on_missing_key(MissingKey::Deny);
    for rule in [too_much, no_key] {
        let app = App::new([rule]).await;
        let status = app.client().denied().await;
        assert_exhausted(&status);
        assert_eq!(status.delay(), None);
        assert_eq!(status.field("grpc-retry-pushback-ms"), Some("-1"));
        assert_eq!(status.field("retry-after"), None);
        assert_eq!(status.violated(), [("r".to_owned(), 2)]);
        assert_eq!(app.inner.calls(), 0);
    }
}

#[tokio::test]
async fn a_wait_that_is_longer_than_can_be_told_in_milliseconds_is_told_in_the_details() {
    let app = App::new([rule("r", Quota::token_bucket(1, 60 * DAY))]).await;
    let mut client = app.client();
    client.check().await.unwrap();
    let status = client.denied().await;
    assert_eq!(status.delay(), Some(60 * DAY));
    assert_eq!(status.field("grpc-retry-pushback-ms"), Some("2147483647"));
}

#[tokio::test]
async fn however_many_rules_deny_the_header_fields_stay_small() {
    let names: Vec<_> = (0..100).map(|i| format!("{}-{i:02}", "long".repeat(14))).collect();
    let longer = |i: usize| Quota::token_bucket(1, MINUTE * (i as u32 + 1));
    let rules = names.iter().enumerate().map(|(i, name)| rule(name, longer(i)));
    let app = App::new(rules).await;
    let mut client = app.client();
    client.check().await.unwrap();
    let status = client.denied().await;
    assert_exhausted(&status);
    assert_eq!(status.delay(), Some(MINUTE * 100));
    let violated = status.violated();
    assert!((10..100).contains(&violated.len()), "{}", violated.len());
    // The last rule is the one to wait for.
    assert_eq!(violated[0].0, names[99]);
    assert_eq!(violated[1].0, names[0]);
    assert!(status.details().len() < 4 * 1024, "{}", status.details().len());
}

#[tokio::test]
async fn a_name_with_a_percent_sign_is_read_as_it_is() {
    let app = App::new([rule("50%25", Quota::per_minute(1))]).await;
    let mut client = app.client();
    client.check().await.unwrap();
    let status = client.denied().await;
    assert_eq!(status.message(), "Too many requests (rule 50%25).");
    assert_eq!(status.violated(), [("50%25".to_owned(), 1)]);
}

#[tokio::test]
async fn calls_that_go_on_are_told_what_is_left_before_the_answer() {
    let app =
        App::with([rule("r", Quota::per_minute(5))], |layer| layer.ietf_headers(IetfDraft::Draft11)).await;
    let mut client = app.client();
    let watched = client.watch().await.unwrap();
    // The header fields do not wait for the stream to begin.
    assert_eq!(watched.metadata().get("x-ratelimit-remaining").unwrap(), "4");
    let mut stream = watched.into_inner();
    while stream.message().await.unwrap().is_some() {}
    let trailers = stream.trailers().await.unwrap().unwrap_or_default();
    assert!(!trailers.keys().any(|name| format!("{name:?}").contains("ratelimit")), "{trailers:?}");

    let checked = client.check().await.unwrap();
    for (field, value) in [
        ("x-ratelimit-limit", "5"),
        ("x-ratelimit-remaining", "3"),
        ("ratelimit", "\"r\";r=3;t=12"),
        ("ratelimit-policy", "\"r\";q=5;w=60"),
    ] {
        assert_eq!(checked.metadata().get(field).unwrap(), value, "{field}");
    }
    // A response that is an error of the service has them as well.
    let unknown = HealthCheckRequest { service: "x".to_owned() };
    let status = client.0.check(unknown).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(status.field("x-ratelimit-remaining"), Some("2"));
}

#[tokio::test]
async fn a_denial_has_the_fields_that_others_have() {
    let app =
        App::with([rule("r", Quota::per_minute(1))], |layer| layer.ietf_headers(IetfDraft::Draft11)).await;
    let mut client = app.client();
    client.check().await.unwrap();
    let status = client.denied().await;
    for (field, value) in [
        ("x-ratelimit-limit", "1"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1700000061"),
        ("ratelimit", "\"r\";r=0;t=60"),
        ("ratelimit-policy", "\"r\";q=1;w=60"),
        ("retry-after", "60"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(status.field(field), Some(value), "{field}");
    }
}

#[tokio::test]
async fn each_peer_has_a_budget_of_its_own_once_the_layer_is_told_who_it_is() {
    let (layer, _) = layer([Rule::new("r", Quota::per_minute(1))]);
    let peers = MapRequestLayer::new(|mut request: http::Request<_>| {
        let peer = request.extensions().get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr);
        request.extensions_mut().insert(PeerAddr(peer.expect("a socket has two ends")));
        request
    });
    let inner = Counting::default();
    let mut server = Server::builder().layer(peers).layer(layer.rejection(GrpcRejection));
    let address = serve(server.add_service(inner.service())).await;
    for peer in [[127, 0, 0, 1], [127, 0, 0, 2]] {
        let mut client = Client(HealthClient::new(channel(address, Some(IpAddr::from(peer)))));
        client.check().await.unwrap();
        assert_exhausted(&client.denied().await);
    }
    assert_eq!(inner.calls(), 2);
}
