//! Rules and keys for services and methods.

use ratekeeper::{MissingKey, Quota, Rule, key};
use tonic::Code;

use crate::support::{App, assert_exhausted};

#[tokio::test]
async fn methods_of_a_service_have_a_budget_each_or_one_together() {
    let app = App::new([Rule::new("r", Quota::per_minute(1)).key(key::grpc_method())]).await;
    let mut client = app.client();
    client.check().await.unwrap();
    client.watch().await.unwrap();
    assert_exhausted(&client.check().await.unwrap_err());
    assert_exhausted(&client.watch().await.unwrap_err());

    let app = App::new([Rule::new("r", Quota::per_minute(1)).key(key::grpc_service())]).await;
    let mut client = app.client();
    client.check().await.unwrap();
    assert_exhausted(&client.watch().await.unwrap_err());
}

#[tokio::test]
async fn a_rule_may_be_for_all_methods_of_one_service() {
    let on = |path: &str| Rule::new("r", Quota::per_minute(1)).on_path(path).key(key::path_param("method"));
    let app = App::new([on("/grpc.health.v1.Health/{method}")]).await;
    let mut client = app.client();
    client.check().await.unwrap();
    client.watch().await.unwrap();
    assert_exhausted(&client.check().await.unwrap_err());

    let app = App::new([on("/grpc.health.v2.Health/{method}")]).await;
    for _ in 0..3 {
        app.client().check().await.unwrap();
    }
}

#[tokio::test]
async fn a_rule_may_be_for_one_method() {
    let rule =
        Rule::new("r", Quota::per_minute(1)).on_path("/grpc.health.v1.Health/Watch").key(key::global());
    let app = App::new([rule]).await;
    let mut client = app.client();
    client.watch().await.unwrap();
    assert_exhausted(&client.watch().await.unwrap_err());
    client.check().await.unwrap();
}

#[tokio::test]
async fn a_service_that_there_is_not_is_counted_before_that_is_found_out() {
    let rule = Rule::new("r", Quota::per_minute(1)).key(key::grpc_service()).on_missing_key(MissingKey::Skip);
    let app = App::new([rule]).await;
    let call = || async {
        let mut grpc = tonic::client::Grpc::new(crate::support::channel(app.address, None));
        grpc.ready().await.unwrap();
        let path = http::uri::PathAndQuery::from_static("/no.Such/Thing");
        let codec = tonic_prost::ProstCodec::<(), ()>::default();
        grpc.unary(tonic::Request::new(()), path, codec).await.unwrap_err().code()
    };
    assert_eq!(call().await, Code::Unimplemented);
    assert_eq!(call().await, Code::ResourceExhausted);
    app.client().check().await.unwrap();
}
