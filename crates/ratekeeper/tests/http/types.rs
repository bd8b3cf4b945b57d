//! Types can be named, cloned, shared and sent.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use ratekeeper::{
    ChargeBuilder, ConfigError, Decision, FailurePolicy, IetfDraft, Key, Limiter, LimiterBuilder,
    LimiterError, ManualClock, MemoryStore, MissingKey, Outcome, Quota, RateLimit, RateLimitLayer,
    RequestHead, Retry, Rule, StoreError, Tier, TierChoice, Timestamp, key, rejection::BoxRejection,
    rejection::GrpcRejection, rejection::JsonRejection, rejection::ProblemRejection, service::ResponseFuture,
};
use tower::util::BoxCloneSyncService;

fn shared<T: Clone + Send + Sync + 'static>() {}
fn sent<T: Send + 'static>() {}
fn shown<T: std::fmt::Debug>() {}

type Inner = BoxCloneSyncService<Request<()>, Response<Full<Bytes>>, Infallible>;

#[test]
fn every_public_type_is_clone_send_and_sync() {
    shared::<RateLimitLayer>();
    shared::<RateLimitLayer<ProblemRejection>>();
    shared::<RateLimitLayer<BoxRejection<Full<Bytes>>>>();
    shared::<RateLimit<Inner>>();
    shared::<RateLimit<Inner, BoxRejection<Full<Bytes>>>>();
    shared::<Limiter>();
    shared::<LimiterBuilder>();
    shared::<ChargeBuilder>();
    shared::<MemoryStore>();
    shared::<MemoryStore<ManualClock>>();
    shared::<Rule>();
    shared::<(Quota, Tier, TierChoice, MissingKey, FailurePolicy)>();
    shared::<(Key, Decision, Outcome, Retry, Timestamp)>();
    shared::<(ConfigError, LimiterError, StoreError)>();
    shared::<(JsonRejection, ProblemRejection, GrpcRejection, IetfDraft)>();
    shared::<BoxRejection<axum::body::Body>>();
    shared::<(key::PeerIp, key::ClientIp, key::TrustedProxies, key::PeerAddr)>();
    shared::<(key::Header, key::Secret<key::Bearer>, key::Cookie, key::FromFn, key::Constant)>();
    shared::<(key::Path, key::PathParam, key::Route, key::RequestMethod)>();
    shared::<(key::GrpcService, key::GrpcMethod)>();
    shared::<RequestHead<'static>>();
    sent::<ResponseFuture<Inner, JsonRejection, (), Full<Bytes>>>();
    sent::<key::Extracted>();
}

#[test]
fn every_public_type_can_be_shown() {
    shown::<RateLimitLayer>();
    shown::<RateLimit<Inner>>();
    shown::<Limiter>();
    shown::<LimiterBuilder>();
    shown::<ChargeBuilder>();
    shown::<Rule>();
    shown::<BoxRejection<()>>();
    shown::<ResponseFuture<Inner, JsonRejection, (), Full<Bytes>>>();
}

/// What an application keeps.
#[derive(Clone, Debug)]
struct AppState {
    layer: RateLimitLayer,
    limiter: Limiter,
    rejecting: RateLimitLayer<BoxRejection<axum::body::Body>>,
}

#[test]
fn a_layer_and_a_limiter_can_be_kept_in_a_struct() {
    let layer = RateLimitLayer::new(Quota::per_second(10));
    let rejection = BoxRejection::new(JsonRejection);
    let state =
        AppState { limiter: layer.limiter().clone(), rejecting: layer.clone().rejection(rejection), layer };
    let state = state.clone();
    let _: axum::Router = axum::Router::new().layer(state.layer.clone());
    let _: axum::Router = axum::Router::new().layer(state.rejecting.clone());
    assert!(format!("{state:?}").contains("default"));
    assert!(state.limiter.store().id().is_some());
}

#[test]
fn what_a_rule_shows_of_itself_names_it() {
    let rule = Rule::new("api", Quota::per_minute(5)).tier("pro", Tier::Unlimited).on_path("/x");
    let shown = format!("{rule:?}");
    for part in ["\"api\"", "pro", "/x"] {
        assert!(shown.contains(part), "{shown}");
    }
}
