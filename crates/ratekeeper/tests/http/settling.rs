//! What a request has really cost: according to its response, its handler, or neither.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use ratekeeper::{
    Decision, FailurePolicy, Limiter, LimiterError, Limits, MINUTE, Quota, RateLimitLayer, Rule, Settle,
    Share, Store, key, store::Charge,
};
use ratekeeper_core::{Answer, Debit, KeyRef, Refund, RuleName, StoreErrorKind};
use tokio::sync::oneshot;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::stores::Failing;
use crate::support::{App, Memory, Reply, ReplyExt, RequestExt, clock, get, limiter, memory};

const QUOTA: Quota = Quota::fixed_window(100, MINUTE);

/// What the handlers of these tests are told to do.
#[derive(Clone, Copy)]
struct Answered(StatusCode);

#[derive(Clone, Copy)]
struct Cost(u32);

#[expect(clippy::needless_pass_by_value, reason = "it is a handler")]
fn handler(request: Request<()>) -> Reply {
    let mut reply = Response::new(Full::from("ok"));
    if let Some(Answered(status)) = request.extensions().get() {
        *reply.status_mut() = *status;
    }
    if let Some(cost) = request.extensions().get::<Cost>() {
        reply.extensions_mut().insert(*cost);
    }
    reply
}

/// What is left of a rule's global quota.
async fn left(limiter: &Limiter, rule: &str) -> u32 {
    limiter.charge(rule, key::Key::GLOBAL).peek().await.unwrap().outcome(rule).unwrap().remaining()
}

fn settled(rule: Rule) -> (App, Limiter) {
    let (limiter, _) = limiter([rule.key(key::global())]);
    (App::over(&RateLimitLayer::new(limiter.clone()), handler), limiter)
}

#[tokio::test]
async fn only_failed_logins_count() {
    let rule = Rule::new("login", Quota::sliding_log(5, MINUTE))
        .free_when(|response| response.status() != StatusCode::UNAUTHORIZED);
    let (app, limiter) = settled(rule);
    for n in 0..20 {
        let status = if n % 5 == 0 { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
        assert_eq!(app.send(get("/").extension(Answered(status))).await.status(), status);
        assert_eq!(left(&limiter, "login").await, 5 - n / 5 - 1);
    }
    app.send(get("/").extension(Answered(StatusCode::UNAUTHORIZED))).await;
    assert_eq!(app.send(get("/")).await.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn every_algorithm_gives_back_what_was_free() {
    for quota in [
        QUOTA,
        Quota::token_bucket(100, MINUTE),
        Quota::sliding_window(100, MINUTE),
        Quota::sliding_log(100, MINUTE),
        Quota::leaky_bucket(100, MINUTE).capacity(100),
    ] {
        let (app, limiter) = settled(Rule::new("rule", quota).cost(7).free_when(|_| true));
        assert_eq!(app.get("/").await.status(), StatusCode::OK);
        assert_eq!(left(&limiter, "rule").await, 100, "{quota}");
    }
}

#[tokio::test]
async fn the_response_tells_what_a_request_has_cost_more_or_less_or_not_at_all() {
    let rule = Rule::new("queries", QUOTA)
        .cost(10)
        .settle_by(|response| response.extension().map(|Cost(cost)| *cost));
    let (app, limiter) = settled(rule);
    app.send(get("/").extension(Cost(3))).await;
    assert_eq!(left(&limiter, "queries").await, 97);
    app.send(get("/").extension(Cost(20))).await;
    assert_eq!(left(&limiter, "queries").await, 77);
    app.get("/").await;
    assert_eq!(left(&limiter, "queries").await, 67);
    app.send(get("/").extension(Cost(0))).await;
    assert_eq!(left(&limiter, "queries").await, 67);
}

#[tokio::test]
async fn what_is_spent_beyond_the_quota_is_a_debt_that_refunds_pay_first() {
    let rule = Rule::new("queries", QUOTA)
        .cost(50)
        .settle_by(|response| response.extension().map(|Cost(cost)| *cost));
    let (limiter, _) = limiter([rule.key(key::global())]);
    // Each responds once it learns what it has cost.
    let ((first, told_first), (second, told_second)) = (oneshot::channel(), oneshot::channel());
    let told = Arc::new(Mutex::new(vec![told_second, told_first]));
    let inner = service_fn(move |_: Request<()>| {
        let told = told.lock().unwrap().pop().unwrap();
        async move {
            let mut reply = Reply::default();
            reply.extensions_mut().insert(Cost(told.await.unwrap()));
            Ok::<_, Infallible>(reply)
        }
    });
    let service = RateLimitLayer::new(limiter.clone()).layer(inner);
    let send = || tokio::spawn(service.clone().oneshot(get("/")));
    let (one, other) = (send(), send());
    while left(&limiter, "queries").await > 0 {
        tokio::task::yield_now().await;
    }
    first.send(80).unwrap();
    one.await.unwrap().unwrap();
    assert_eq!(left(&limiter, "queries").await, 0);
    second.send(10).unwrap();
    other.await.unwrap().unwrap();
    // 100 − 80 − 10, and not 100 − 50 − 10.
    assert_eq!(left(&limiter, "queries").await, 10);
}

#[tokio::test]
async fn one_rule_of_several_is_settled_and_the_others_stay() {
    let rules = [
        Rule::new("requests", QUOTA).key(key::global()),
        Rule::new("failures", QUOTA).key(key::global()).free_when(|response| response.status().is_success()),
    ];
    let (limiter, _) = limiter(rules);
    let app = App::over(&RateLimitLayer::new(limiter.clone()), handler);
    app.get("/").await;
    app.send(get("/").extension(Answered(StatusCode::BAD_GATEWAY))).await;
    assert_eq!((left(&limiter, "requests").await, left(&limiter, "failures").await), (98, 99));
}

#[tokio::test]
async fn the_fields_of_a_response_tell_of_the_decision() {
    let (app, _) = settled(Rule::new("rule", QUOTA).cost(10).free_when(|_| true));
    assert_eq!(app.get("/").await.trio().unwrap().1, 90);
    assert_eq!(app.get("/").await.trio().unwrap().1, 90);
}

#[tokio::test]
async fn a_request_that_gets_no_response_has_cost_what_was_charged() {
    let (limiter, _) = limiter([Rule::new("rule", QUOTA).key(key::global()).cost(10).free_when(|_| true)]);
    let layer = RateLimitLayer::new(limiter.clone());
    // The inner service fails.
    let failing = layer.layer(service_fn(|_: Request<()>| async { Err::<Reply, _>("no") }));
    assert_eq!(failing.oneshot(get("/")).await.unwrap_err(), "no");
    assert_eq!(left(&limiter, "rule").await, 90);
    // The client goes away.
    let never = layer.layer(service_fn(|_: Request<()>| std::future::pending::<Result<Reply, &str>>()));
    assert!(never.oneshot(get("/")).now_or_never().is_none());
    assert_eq!(left(&limiter, "rule").await, 80);
    // The handler panics.
    let panicking = layer.layer(service_fn(|request: Request<()>| async move {
        assert!(request.uri().path() == "/never", "this is what is tested");
        Ok::<Reply, &str>(handler(request))
    }));
    assert!(tokio::spawn(panicking.oneshot(get("/"))).await.unwrap_err().is_panic());
    assert_eq!(left(&limiter, "rule").await, 70);
}

/// A store that counts what it is asked, and never completes a refund or a debit.
#[derive(Clone, Debug)]
struct Counting {
    store: Memory,
    charges: Arc<AtomicUsize>,
    settlements: Arc<AtomicUsize>,
}

impl Counting {
    fn new() -> Self {
        Self { store: memory(&clock()), charges: Arc::default(), settlements: Arc::default() }
    }

    fn asked(&self) -> (usize, usize) {
        (self.charges.load(Ordering::SeqCst), self.settlements.load(Ordering::SeqCst))
    }
}

impl Store for Counting {
    fn charge(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        self.charges.fetch_add(1, Ordering::SeqCst);
        self.store.charge(charges)
    }

    fn peek(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        self.store.peek(charges)
    }

    fn refund(&self, refunds: &[Refund<'_>]) -> Answer<()> {
        self.settlements.fetch_add(1, Ordering::SeqCst);
        drop(self.store.refund(refunds));
        Answer::later(std::future::pending())
    }

    fn debit(&self, charges: &[Debit<'_>]) -> Answer<()> {
        self.settlements.fetch_add(1, Ordering::SeqCst);
        drop(self.store.debit(charges));
        Answer::later(std::future::pending())
    }

    fn reset(&self, rule: RuleName, key: KeyRef<'_>) -> Answer<()> {
        self.store.reset(rule, key)
    }
}

#[tokio::test]
async fn the_store_is_asked_again_only_if_something_changes_and_nobody_waits_for_it() {
    let store = Counting::new();
    let rule =
        Rule::new("rule", QUOTA).key(key::global()).cost(10).settle_by(|response| match response.status() {
            StatusCode::OK => Settle::Cost(10),
            StatusCode::CREATED => Settle::Keep,
            StatusCode::NO_CONTENT => Settle::Free,
            _ => Settle::Cost(11),
        });
    let limiter = Limiter::builder().store(store.clone()).rule(rule).build().unwrap();
    let app = App::over(&RateLimitLayer::new(limiter), handler);
    for (status, asked) in [
        (StatusCode::OK, (1, 0)),
        (StatusCode::CREATED, (2, 0)),
        (StatusCode::NO_CONTENT, (3, 1)),
        (StatusCode::IM_A_TEAPOT, (4, 2)),
    ] {
        // Immediately, though the store never completes.
        let reply = app.send(get("/").extension(Answered(status))).now_or_never();
        assert_eq!(reply.expect("it is answered at once").status(), status);
        assert_eq!(store.asked(), asked, "{status}");
    }
}

/// An app whose handler does this with the limits.
fn handled(limiter: &Limiter, handle: fn(&Limits)) -> App {
    let layer = RateLimitLayer::new(limiter.clone());
    let handler = service_fn(move |request: Request<()>| async move {
        handle(&Limits::of(request.extensions()).expect("limits"));
        Ok::<_, Infallible>(self::handler(request))
    });
    App::around(&layer, handler)
}

fn in_handler() -> Limiter {
    limiter([Rule::new("tokens", QUOTA).key(key::global()).cost(10).settle_in_handler()]).0
}

#[tokio::test]
async fn a_handler_sees_the_decision_and_says_what_it_cost() {
    let limiter = in_handler();
    let app = handled(&limiter, |limits| {
        let outcome = limits.outcome("tokens").unwrap();
        assert_eq!((outcome.limit(), outcome.remaining()), (100, 90));
        assert_eq!(limits.outcomes().count(), 1);
        assert_eq!(limits.charged("tokens").unwrap(), Some(10));
        limits.settle("tokens", 25).unwrap();
        assert_eq!(limits.charged("tokens").unwrap(), Some(25));
        // The last call counts, however often it is repeated.
        limits.settle("tokens", 4).unwrap();
        limits.settle("tokens", 4).unwrap();
    });
    app.get("/").await;
    assert_eq!(left(&limiter, "tokens").await, 96);
}

#[tokio::test]
async fn a_handler_gives_back_no_more_than_was_taken() {
    let limiter = in_handler();
    assert!(limiter.charge("tokens", key::Key::GLOBAL).cost(50).await.unwrap().is_admitted());
    let app = handled(&limiter, |limits| {
        limits.refund("tokens", 3).unwrap();
        assert_eq!(limits.charged("tokens").unwrap(), Some(7));
        limits.refund("tokens", 1_000).unwrap();
        limits.refund("tokens", 1_000).unwrap();
        assert_eq!(limits.charged("tokens").unwrap(), Some(0));
    });
    app.get("/").await;
    assert_eq!(left(&limiter, "tokens").await, 50);
}

#[tokio::test]
async fn a_handler_charges_more_if_it_fits_and_all_of_it_can_be_given_back() {
    static STEP: AtomicU32 = AtomicU32::new(0);
    let limiter = in_handler();
    let app = handled(&limiter, |limits| {
        let more = |cost| limits.charge("tokens", cost).now_or_never().unwrap().unwrap().unwrap();
        if STEP.fetch_add(1, Ordering::SeqCst) == 0 {
            assert_eq!(more(60).outcome("tokens").unwrap().remaining(), 30);
            assert!(!more(31).is_admitted());
            assert_eq!(limits.charged("tokens").unwrap(), Some(70));
        } else {
            assert!(more(20).is_admitted());
            limits.settle("tokens", 0).unwrap();
        }
    });
    app.get("/").await;
    assert_eq!(left(&limiter, "tokens").await, 30);
    app.get("/").await;
    assert_eq!(left(&limiter, "tokens").await, 30);
}

#[tokio::test]
async fn what_a_handler_has_settled_the_response_does_not_settle_again() {
    let rule = Rule::new("tokens", QUOTA).key(key::global()).cost(10).settle_in_handler().free_when(|_| true);
    let (limiter, _) = limiter([rule]);
    handled(&limiter, |limits| limits.settle("tokens", 30).unwrap()).get("/").await;
    assert_eq!(left(&limiter, "tokens").await, 70);
    handled(&limiter, |_| {}).get("/").await;
    assert_eq!(left(&limiter, "tokens").await, 70);
}

#[tokio::test]
async fn limits_outlive_the_handler() {
    let limiter = in_handler();
    static KEPT: Mutex<Option<Limits>> = Mutex::new(None);
    handled(&limiter, |limits| *KEPT.lock().unwrap() = Some(limits.clone())).get("/").await;
    assert_eq!(left(&limiter, "tokens").await, 90);
    KEPT.lock().unwrap().take().unwrap().settle("tokens", 42).unwrap();
    assert_eq!(left(&limiter, "tokens").await, 58);
}

#[tokio::test]
async fn a_rule_that_does_not_count_the_request_settles_nothing_and_one_that_is_not_there_is_an_error() {
    let rules = [
        Rule::new("tokens", QUOTA).key(key::global()).on_path("/tokens").settle_in_handler(),
        Rule::new("all", QUOTA).key(key::global()),
    ];
    let (limiter, _) = limiter(rules);
    let app = handled(&limiter, |limits| {
        assert_eq!(limits.charged("tokens").unwrap(), None);
        limits.settle("tokens", 30).unwrap();
        assert!(limits.charge("tokens", 1).now_or_never().unwrap().unwrap().is_none());
        // Rules that are not settled by themselves can be, once the limiter keeps accounts.
        limits.settle("all", 5).unwrap();
        assert!(matches!(limits.settle("token", 1), Err(LimiterError::UnknownRule(rule)) if rule == "token"));
    });
    app.get("/").await;
    assert_eq!((left(&limiter, "tokens").await, left(&limiter, "all").await), (100, 95));
}

#[tokio::test]
async fn a_handler_that_nobody_limits_has_limits_without_a_decision() {
    let (limiter, _) = limiter([Rule::new("tokens", QUOTA).on_path("/tokens").settle_in_handler()]);
    let app = handled(&limiter, |limits| {
        assert!(limits.decision().is_none());
        limits.settle("tokens", 30).unwrap();
    });
    assert_eq!(app.get("/").await.status(), StatusCode::OK);
    assert_eq!(app.calls(), 1);
}

#[tokio::test]
async fn limits_without_a_settled_rule_are_to_be_looked_at() {
    let (limiter, _) = limiter([Rule::new("plain", QUOTA).key(key::global())]);
    let app = handled(&limiter, |limits| {
        assert_eq!(limits.outcome("plain").unwrap().remaining(), 99);
        let error = limits.settle("plain", 3).unwrap_err();
        assert!(error.to_string().contains("settle_in_handler"), "{error}");
    });
    app.get("/").await;
    assert_eq!(left(&limiter, "plain").await, 99);
}

#[tokio::test]
async fn layers_within_each_other_are_settled_from_the_same_handler() {
    let rule = |name: &str| Rule::new(name, QUOTA).key(key::global()).cost(10).settle_in_handler();
    let (outer, inner) = (limiter([rule("outer")]).0, limiter([rule("inner")]).0);
    let app = handled(&inner, |limits| {
        assert_eq!(limits.outcomes().map(|(rule, _)| rule.as_str()).collect::<Vec<_>>(), ["inner", "outer"]);
        limits.settle("outer", 1).unwrap();
        limits.settle("inner", 2).unwrap();
        assert!(limits.settle("another", 2).is_err());
    });
    app.within(&RateLimitLayer::new(outer.clone())).get("/").await;
    assert_eq!((left(&outer, "outer").await, left(&inner, "inner").await), (99, 98));
}

#[tokio::test]
async fn what_was_counted_in_this_process_is_settled_there() {
    let failing = Failing { kind: StoreErrorKind::Unavailable, after: None };
    let rule = Rule::new("tokens", QUOTA)
        .key(key::global())
        .cost(10)
        .settle_in_handler()
        .on_store_failure(FailurePolicy::Local(Share::one_of(2)));
    let limiter = Limiter::builder().store(failing).rule(rule).build().unwrap();
    let handler = service_fn(|request: Request<()>| async move {
        let limits = Limits::of(request.extensions()).unwrap();
        let cost = request.uri().path().trim_start_matches('/').parse().unwrap();
        limits.settle("tokens", cost).unwrap();
        Ok::<_, Infallible>(Response::new(Full::<bytes::Bytes>::default()))
    });
    let app = App::around(&RateLimitLayer::new(limiter.clone()), handler);
    for (cost, left) in [(5, 45), (20, 25), (10, 15)] {
        assert_eq!(app.get(&format!("/{cost}")).await.status(), StatusCode::OK);
        assert_eq!(self::left(&limiter, "tokens").await, left);
    }
}

#[tokio::test]
async fn a_store_that_fails_and_a_rule_that_allows_leave_nothing_to_settle() {
    let failing = Failing { kind: StoreErrorKind::Unavailable, after: None };
    let rule = Rule::new("tokens", QUOTA).key(key::global()).settle_in_handler();
    let limiter = Limiter::builder().store(failing).rule(rule).build().unwrap();
    let handler = service_fn(|request: Request<()>| async move {
        let limits = Limits::of(request.extensions()).unwrap();
        assert!(limits.decision().is_none());
        limits.settle("tokens", 5).unwrap();
        Ok::<_, Infallible>(Response::new(Full::<bytes::Bytes>::default()))
    });
    let app = App::around(&RateLimitLayer::new(limiter), handler);
    assert_eq!(app.get("/").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn whoever_settles_by_the_response_can_look_at_the_limits() {
    let rule = Rule::new("tokens", QUOTA).cost(10).settle_by(|response| {
        let limits: Option<&Limits> = response.extension();
        limits.and_then(|limits| limits.charged("tokens").unwrap()).map(|charged| charged / 2)
    });
    let (limiter, _) = limiter([rule.key(key::global())]);
    let app = App::over(&RateLimitLayer::new(limiter.clone()), |request| {
        let mut reply = Reply::default();
        reply.extensions_mut().insert(Limits::of(request.extensions()).unwrap());
        reply
    });
    let replied = std::thread::spawn(move || app.get("/").now_or_never().is_some());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !replied.is_finished() {
        assert!(std::time::Instant::now() < deadline, "they wait for each other");
        std::thread::yield_now();
    }
    assert_eq!(left(&limiter, "tokens").await, 95);
}

#[tokio::test]
async fn of_a_debt_that_was_forgiven_nothing_is_given_back() {
    // A bucket owes at most as much as it holds, so of the ten thousand only as much is taken as brings the
    // total to two hundred, fifty of which others have used.
    let rule = Rule::new("tokens", Quota::token_bucket(100, MINUTE)).key(key::global()).settle_in_handler();
    let (limiter, _) = limiter([rule]);
    assert!(limiter.charge("tokens", key::Key::GLOBAL).cost(50).await.unwrap().is_admitted());
    let app = handled(&limiter, |limits| {
        limits.settle("tokens", 10_000).unwrap();
        limits.settle("tokens", 10_000).unwrap();
        assert_eq!(limits.charged("tokens").unwrap(), Some(10_000));
        limits.settle("tokens", 0).unwrap();
        assert_eq!(limits.charged("tokens").unwrap(), Some(0));
    });
    app.get("/").await;
    // Only what was certainly taken comes back, which leaves what others have used, and more.
    assert_eq!(left(&limiter, "tokens").await, 1);
}

/// However often a cost is reported, a bucket owes no more than it holds, and no more comes back.
#[tokio::test]
async fn of_a_debt_that_was_said_several_times_no_more_is_given_back_than_a_bucket_holds() {
    let (limiter, _) =
        limiter([Rule::new("rule", Quota::token_bucket(100, MINUTE)).key(key::global()).settle_in_handler()]);
    let others = limiter.clone();
    let service = RateLimitLayer::new(limiter.clone()).layer(service_fn(move |request: Request<()>| {
        let (limits, others) = (Limits::of(request.extensions()).unwrap(), others.clone());
        async move {
            assert!(others.charge("rule", key::Key::GLOBAL).cost(99).await.unwrap().is_admitted());
            for cost in [600, 1_200, 0] {
                limits.settle("rule", cost).unwrap();
            }
            Ok::<_, Infallible>(Reply::new(Full::from("ok")))
        }
    }));
    service.oneshot(get("/")).await.unwrap();
    assert_eq!(left(&limiter, "rule").await, 1, "what others have used is used");
}
