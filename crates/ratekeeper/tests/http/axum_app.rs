//! In an axum router.

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::connect_info::MockConnectInfo;
use axum::routing::{get, post};
use axum::{Extension, Router};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use ratekeeper::{
    Decision, Key, Limits, MINUTE, MissingKey, Quota, RateLimitLayer, RequestHead, Rule, key,
    meter::ByteCount, meter::MeterLayer, rejection::RejectionReason,
};
use tower::ServiceExt;

use crate::support::{ReplyExt, limiter};

async fn hello() -> &'static str {
    "hello"
}

fn layer(rule: Rule) -> RateLimitLayer {
    RateLimitLayer::new(limiter([rule]).0)
}

async fn send(app: &Router, path: &str) -> Response<Body> {
    let request = Request::builder().uri(path).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap()
}

async fn statuses(app: &Router, paths: &[&str]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for path in paths {
        statuses.push(send(app, path).await.status().as_u16());
    }
    statuses
}

#[tokio::test]
async fn a_quota_is_all_that_a_router_needs() {
    // Not even connect info is needed; without it all callers share one key.
    let app = Router::new().route("/", get(hello)).layer(RateLimitLayer::new(Quota::per_hour(2)));
    assert_eq!(statuses(&app, &["/", "/", "/"]).await, [200, 200, 429]);
}

#[tokio::test]
async fn a_mocked_peer_is_a_peer() {
    let app = Router::new().route("/", get(hello)).layer(RateLimitLayer::new(Quota::per_hour(1)));
    let from = |address: [u8; 4]| app.clone().layer(MockConnectInfo(SocketAddr::from((address, 80))));
    assert_eq!(statuses(&from([192, 0, 2, 1]), &["/", "/"]).await, [200, 429]);
    assert_eq!(statuses(&from([192, 0, 2, 2]), &["/", "/"]).await, [200, 429]);
}

#[tokio::test]
async fn routes_are_counted_by_their_pattern() {
    let app = Router::new()
        .route("/users/{id}", get(hello))
        .route("/posts/{id}", get(hello))
        .layer(layer(Rule::new("r", Quota::per_hour(2)).key(key::route())));
    assert_eq!(statuses(&app, &["/users/1", "/users/2", "/users/3"]).await, [200, 200, 429]);
    assert_eq!(statuses(&app, &["/posts/1", "/posts/2", "/posts/3"]).await, [200, 200, 429]);
    // Requests that match no route share one budget.
    assert_eq!(statuses(&app, &["/a", "/b", "/c"]).await, [404, 404, 429]);
}

#[tokio::test]
async fn a_route_layer_leaves_what_matches_no_route_alone() {
    let rule = Rule::new("r", Quota::per_hour(1)).key(key::global());
    let app = Router::new().route("/", get(hello)).route_layer(layer(rule));
    assert_eq!(statuses(&app, &["/x", "/x", "/x", "/", "/"]).await, [404, 404, 404, 200, 429]);
}

#[tokio::test]
async fn a_layer_on_one_method_limits_that_method() {
    let rule = Rule::new("r", Quota::per_hour(1)).key(key::global());
    let app: Router = Router::new().route("/", get(hello).layer(layer(rule)).post(hello));
    assert_eq!(statuses(&app, &["/", "/"]).await, [200, 429]);
    let request = Request::post("/").body(Body::empty()).unwrap();
    assert_eq!(app.oneshot(request).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn parameters_of_the_route_are_keys_however_they_are_spelled() {
    let rule = || Rule::new("r", Quota::per_hour(2)).key(key::path_param("id"));
    let users = Router::new().route("/users/{id}", get(hello)).route("/users/{id}/posts", get(hello));
    let app = users.clone().layer(layer(rule()));
    assert_eq!(statuses(&app, &["/users/7", "/users/%37/posts", "/users/7?x"]).await, [200, 200, 429]);
    assert_eq!(statuses(&app, &["/users/8"]).await, [200]);
    // In a nested router, whether the layer is inside or outside.
    let within = Router::new().nest("/{tenant}/api", users.clone().layer(layer(rule())));
    let without = Router::new().nest("/{tenant}/api", users).layer(layer(rule()));
    for app in [within, without] {
        assert_eq!(
            statuses(&app, &["/a/api/users/7", "/b/api/users/7", "/a/api/users/7"]).await,
            [200, 200, 429]
        );
        assert_eq!(statuses(&app, &["/a/api/users/8"]).await, [200]);
    }
}

/// A router may have routes that would be errors in a rule.
#[tokio::test]
async fn parameters_are_found_in_whatever_route_the_router_takes() {
    let rule = Rule::new("r", Quota::per_hour(1)).key(key::path_param("id")).on_missing_key(MissingKey::Skip);
    let app = Router::new()
        .without_v07_checks()
        .route("/v1/:batch/{id}", get(hello))
        .route("/v2/user_{id}", get(hello))
        .route("/v3/{{a}}/{id}", get(hello))
        .layer(layer(rule));
    for [one, other] in
        [["/v1/:batch/1", "/v1/:batch/2"], ["/v2/user_3", "/v2/user_4"], ["/v3/{a}/5", "/v3/{a}/6"]]
    {
        assert_eq!(statuses(&app, &[one, one, other]).await, [200, 429, 200], "{one}");
    }
}

#[tokio::test]
async fn a_parameter_of_the_rule_goes_before_one_of_the_route() {
    let rule = Rule::new("r", Quota::per_hour(1)).on_path("/{id}/{other}").key(key::path_param("id"));
    let app = Router::new().route("/users/{id}", get(hello)).layer(layer(rule));
    assert_eq!(statuses(&app, &["/users/7", "/users/8"]).await, [200, 429]);
}

#[tokio::test]
async fn rules_match_the_whole_path_from_outside_a_nested_router() {
    let rule = Rule::new("r", Quota::per_hour(1)).on_path("/api/users/{id}").key(key::global());
    let users = Router::new().route("/users/{id}", get(hello));
    let app = Router::new().nest("/api", users).layer(layer(rule));
    assert_eq!(statuses(&app, &["/api/users/7", "/api/users/8"]).await, [200, 429]);
}

/// Whoever writes a router that others nest does not know where.
#[tokio::test]
async fn rules_match_the_path_that_their_own_router_sees() {
    let rule = |path: &str| Rule::new("r", Quota::per_hour(1)).on_path(path).key(key::global());
    let auth = |path: &str| {
        let routes = Router::new().route("/signin", get(hello)).route("/users/{id}", get(hello));
        routes.layer(layer(rule(path)))
    };
    for path in ["/signin", "/auth/signin", "/{page}"] {
        let app = Router::new().nest("/auth", auth(path)).route("/signin", get(hello));
        assert_eq!(statuses(&app, &["/auth/signin", "/auth/signin"]).await, [200, 429], "{path}");
        assert_eq!(statuses(&app, &["/signin", "/signin"]).await, [200, 200], "{path}");
        // At any depth.
        let app = Router::new().nest("/v1", Router::new().nest("/auth", auth("/signin")));
        assert_eq!(statuses(&app, &["/v1/auth/signin", "/v1/auth/signin"]).await, [200, 429]);
    }
    let app = Router::new().nest("/auth", auth("/other"));
    assert_eq!(statuses(&app, &["/auth/signin", "/auth/signin"]).await, [200, 200]);
    let service = Router::new().nest_service("/auth", auth("/signin"));
    assert_eq!(statuses(&service, &["/auth/signin", "/auth/signin"]).await, [200, 429]);
}

#[tokio::test]
async fn a_parameter_is_one_of_the_path_that_the_pattern_matches() {
    let nested = |rule: Rule| {
        let rule = rule.key(key::path_param("id"));
        Router::new().nest("/api", Router::new().route("/users/{number}", get(hello)).layer(layer(rule)))
    };
    let rule = || Rule::new("r", Quota::per_hour(1));
    for rule in
        [rule().on_path("/users/{id}"), rule().on_path("/api/users/{id}"), rule().on_path("/users/{*id}")]
    {
        let app = nested(rule);
        assert_eq!(statuses(&app, &["/api/users/7", "/api/users/8", "/api/users/7"]).await, [200, 200, 429]);
    }
}

/// All paths of up to this many of these segments.
fn paths_of(segments: &[&str], most: usize) -> Vec<String> {
    let mut paths = vec![String::new()];
    let mut longest = 0..1;
    for _ in 0..most {
        for path in longest.clone() {
            paths.extend(
                segments.iter().map(|segment| format!("{}/{segment}", paths[path])).collect::<Vec<_>>(),
            );
        }
        longest = longest.end..paths.len();
    }
    paths.split_off(1)
}

/// Also if a parameter is empty, as any but the last may be.
#[tokio::test]
async fn whatever_a_route_serves_is_counted_by_a_rule_of_the_same_path() {
    let is_route = |path: &String| {
        let rest_is_last = path.find("{*rest}").is_none_or(|at| path.len() == at + "{*rest}".len());
        rest_is_last && ["{x}", "{y}"].iter().all(|param| path.matches(param).count() < 2)
    };
    let requests = paths_of(&["a", "b", "", "%61"], 4);
    let (mut served, mut empty) = (0, 0);
    for route in paths_of(&["a", "{x}", "{y}", "", "{*rest}"], 3).iter().filter(|path| is_route(path)) {
        let rule = Rule::new("same", Quota::per_hour(1_000_000)).key(key::constant("all")).on_path(route);
        let app = Router::new().route(route, get(hello)).layer(layer(rule));
        for path in &requests {
            let response = send(&app, path).await;
            let is_served = response.status() == StatusCode::OK;
            let is_counted = response.headers().contains_key("x-ratelimit-limit");
            assert!(is_counted || !is_served, "{route} serves {path}, and nobody counts it");
            served += u32::from(is_served);
            empty += u32::from(is_served && path.contains("//"));
        }
    }
    assert!(served > 1_000 && empty > 100, "{served} {empty}");
}

#[tokio::test]
async fn what_a_nested_service_serves_is_three_paths() {
    let inner = || Router::<()>::new().fallback(hello);
    let rule = || Rule::new("r", Quota::per_hour(3)).on_missing_key(MissingKey::Skip);
    let files = ["/files", "/files/", "/files/{*rest}"].into_iter().fold(rule(), Rule::on_path);
    let app = Router::new().nest_service("/files", inner()).layer(layer(files.key(key::global())));
    assert_eq!(statuses(&app, &["/files", "/files/", "/files/a"]).await, [200; 3]);
    assert_eq!(statuses(&app, &["/files", "/files/", "/files//", "/files/a/b"]).await, [429; 4]);

    let patterns = ["/tenants/{tenant}", "/tenants/{tenant}/", "/tenants/{tenant}/{*rest}"];
    let tenants = patterns.into_iter().fold(rule(), Rule::on_path).key(key::path_param("tenant"));
    let app = Router::new().nest_service("/tenants/{tenant}", inner()).layer(layer(tenants));
    assert_eq!(statuses(&app, &["/tenants/a", "/tenants/a/", "/tenants/a/x"]).await, [200; 3]);
    assert_eq!(statuses(&app, &["/tenants/a", "/tenants/a/", "/tenants/a/y"]).await, [429; 3]);
    assert_eq!(statuses(&app, &["/tenants/b"]).await, [200]);
}

#[tokio::test]
async fn a_handler_can_see_the_decision() {
    async fn handler(Extension(decision): Extension<Decision>) -> String {
        decision.outcome("r").unwrap().remaining().to_string()
    }
    let rule = Rule::new("r", Quota::per_hour(5)).key(key::global());
    let app = Router::new().route("/", get(handler)).layer(layer(rule));
    let body = axum::body::to_bytes(send(&app, "/").await.into_body(), 100).await.unwrap();
    assert_eq!(body, "4");
}

#[tokio::test]
async fn a_key_from_an_auth_layer_is_counted() {
    #[derive(Clone)]
    struct User(u64);

    let rule = Rule::new("r", Quota::per_hour(1)).key(key::extension(|user: &User| Key::from(user.0)));
    let app = Router::new().route("/", get(hello)).layer(layer(rule));
    let as_user = |id| app.clone().layer(Extension(User(id)));
    assert_eq!(statuses(&as_user(1), &["/", "/"]).await, [200, 429]);
    assert_eq!(statuses(&as_user(2), &["/", "/"]).await, [200, 429]);
}

#[tokio::test]
async fn a_rejection_may_be_anything_that_axum_can_respond_with() {
    use axum::response::IntoResponse;

    let rejection = |head: &RequestHead<'_>, refusal: &RejectionReason<'_>| {
        (refusal.status(), [("x-own", "1")], format!("not so fast at {}", head.path())).into_response()
    };
    let rule = Rule::new("r", Quota::per_hour(1)).key(key::global());
    let app = Router::new().route("/x", post(hello)).layer(layer(rule).rejection(rejection));
    send(&app, "/x").await;
    let reply = send(&app, "/x").await;
    assert_eq!((reply.status(), reply.field("x-own")), (StatusCode::TOO_MANY_REQUESTS, Some("1")));
    let body = axum::body::to_bytes(reply.into_body(), 100).await.unwrap();
    assert_eq!(body, "not so fast at /x");
}

#[tokio::test]
async fn within_a_nested_router_paths_are_those_that_the_client_asked_for() {
    let nested = |rule: Rule| {
        let inner = Router::new().route("/x", get(hello)).layer(layer(rule));
        Router::new().nest("/a", inner.clone()).nest("/b", inner)
    };
    let matched = nested(Rule::new("r", Quota::per_hour(1)).on_path("/a/x").key(key::global()));
    assert_eq!(statuses(&matched, &["/a/x", "/a/x", "/b/x", "/b/x"]).await, [200, 429, 200, 200]);
    let counted = nested(Rule::new("r", Quota::per_hour(1)).key(key::path()));
    assert_eq!(statuses(&counted, &["/a/x", "/b/x", "/a/x"]).await, [200, 200, 429]);
}

#[tokio::test]
async fn a_peer_that_was_put_there_on_purpose_is_the_peer() {
    let app = Router::new().route("/", get(hello)).layer(RateLimitLayer::new(Quota::per_hour(1)));
    let proxied = |client: [u8; 4]| {
        let peer = key::PeerAddr(SocketAddr::from((client, 80)));
        app.clone().layer(Extension(peer)).layer(MockConnectInfo(SocketAddr::from(([10, 0, 0, 1], 80))))
    };
    assert_eq!(statuses(&proxied([192, 0, 2, 1]), &["/", "/"]).await, [200, 429]);
    assert_eq!(statuses(&proxied([192, 0, 2, 2]), &["/", "/"]).await, [200, 429]);
}

#[test]
fn a_head_does_not_show_its_header_fields() {
    let request = Request::builder().uri("/x").header("authorization", "Bearer hunter2").body(()).unwrap();
    let shown = format!("{:?}", RequestHead::from(&request));
    assert!(shown.contains("/x") && !shown.contains("hunter2"), "{shown}");
}

#[tokio::test]
async fn a_handler_takes_the_limits_of_its_request_and_settles_them() {
    async fn ask(limits: Limits) -> String {
        limits.settle("tokens", 7).unwrap();
        let outcome = limits.outcome("tokens").unwrap();
        format!("{} of {}", outcome.remaining(), outcome.limit())
    }
    let rule =
        Rule::new("tokens", Quota::fixed_window(100, MINUTE)).key(key::global()).cost(20).settle_in_handler();
    let (limiter, _) = limiter([rule]);
    let app = Router::new().route("/", get(ask)).layer(RateLimitLayer::new(limiter.clone()));
    for left in [80, 73] {
        let response = app.clone().oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, format!("{left} of 100"));
    }
    let left = limiter.charge("tokens", Key::GLOBAL).peek().await.unwrap();
    assert_eq!(left.outcome("tokens").unwrap().remaining(), 86);
}

#[tokio::test]
async fn a_handler_without_a_layer_is_told_what_is_missing_unless_it_can_do_without() {
    let app = Router::new()
        .route("/wants", get(|_: Limits| async { "limits" }))
        .route("/can", get(|limits: Option<Limits>| async move { limits.is_some().to_string() }));
    let send = |path: &str| app.clone().oneshot(Request::get(path).body(Body::empty()).unwrap());
    let response = send("/wants").await.unwrap();
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("RateLimitLayer"), "{body:?}");
    assert_eq!(send("/can").await.unwrap().into_body().collect().await.unwrap().to_bytes(), "false");
}

#[tokio::test]
async fn bodies_of_axum_are_metered() {
    let rule = Rule::new("bytes", Quota::fixed_window(1_000, MINUTE))
        .key(key::global())
        .cost(100)
        .settle_in_handler();
    let (limiter, _) = limiter([rule]);
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(MeterLayer::new("bytes", ByteCount))
        .layer(RateLimitLayer::new(limiter.clone()));
    for left in [995, 990] {
        let response = app.clone().oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
        let peeked = limiter.charge("bytes", Key::GLOBAL).peek().await.unwrap();
        assert_eq!(peeked.outcome("bytes").unwrap().remaining(), left);
    }
}
