//! Rules in shadow, candidates, and enforcement for a share of the callers.

use std::collections::BTreeSet;

use http::{Request, StatusCode};
use ratekeeper::store::RuleName;
use ratekeeper::{
    IetfDraft, Key, Limiter, Limits, MissingKey, Mode, Quota, RateLimitLayer, Rule, Share, Store, key,
    store::Charge,
};
use tokio::time::Instant;

use crate::support::held::memory;
use crate::support::stores::{Failing, Slow};
use crate::support::{App, Reply, ReplyExt, get, limiter, millis, ok};

fn global(name: &str, quota: Quota) -> Rule {
    Rule::new(name, quota).key(key::global())
}

/// What is left of a rule's global budget.
async fn left(limiter: &Limiter, rule: &str) -> u32 {
    let decision = limiter.charge(rule, Key::GLOBAL).peek().await.expect("the store works");
    decision.outcome(rule).expect("it was asked").remaining()
}

/// What is left of a candidate's budget.
async fn candidate_left(limiter: &Limiter, rule: &str, quota: Quota) -> u32 {
    let name = RuleName::new(&format!("{rule}~candidate")).expect("a name");
    let charge = Charge::new(name, &Key::GLOBAL, &quota);
    let decision = limiter.store().peek(&[charge]).await.expect("the store works");
    decision.outcome(name.as_str()).expect("it was asked").remaining()
}

#[tokio::test]
async fn a_rule_in_shadow_counts_and_never_denies_nor_shows() {
    let (limiter, clock) = limiter([global("new", Quota::per_hour(3)).shadow()]);
    let layer = RateLimitLayer::new(limiter.clone()).ietf_headers(IetfDraft::Draft11);
    let app = App::over(&layer, |request| {
        assert!(request.extensions().get::<ratekeeper::Decision>().is_none(), "nothing was decided");
        ok(request)
    });
    for used in 1..=5 {
        let reply = app.get("/").await;
        assert_eq!(reply.status(), StatusCode::OK);
        let told: Vec<_> =
            reply.headers().keys().filter(|name| name.as_str().contains("ratelimit")).collect();
        assert!(told.is_empty(), "{told:?}");
        assert_eq!(left(&limiter, "new").await, 3_u32.saturating_sub(used));
    }
    // What it would have denied was not counted: its budget is what it would be if it were enforced.
    clock.advance(millis(20 * 60 * 1_000));
    assert_eq!(left(&limiter, "new").await, 1);
}

#[tokio::test]
async fn beside_an_enforced_rule_it_tells_nothing_and_what_that_denies_it_does_not_count() {
    let (limiter, _clock) =
        limiter([global("new", Quota::per_hour(3)).shadow(), global("old", Quota::per_hour(5))]);
    let layer = RateLimitLayer::new(limiter.clone()).ietf_headers(IetfDraft::Draft11);
    let app = App::over(&layer, ok);
    assert_eq!(app.admitted(10, || get("/")).await, 5);
    let reply = app.get("/").await;
    assert_eq!(reply.lines("ratelimit-policy").join(", "), r#""old";q=5;w=3600"#);
    assert_eq!(reply.field("x-ratelimit-limit"), Some("5"));

    limiter.reset("new", Key::GLOBAL).await.expect("the store works");
    assert_eq!(app.get("/").await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(left(&limiter, "new").await, 3);
}

#[tokio::test]
async fn asked_to_it_shows_in_the_fields_as_if_it_were_enforced() {
    let quota = Quota::fixed_window(2, ratekeeper::HOUR);
    let (limiter, _clock) = limiter([
        global("old", Quota::fixed_window(5, ratekeeper::HOUR)),
        global("new", quota).shadow().show_in_shadow(true),
    ]);
    let layer = RateLimitLayer::new(limiter.clone()).ietf_headers(IetfDraft::Draft11);
    let app = App::over(&layer, ok);
    let remaining = |reply: &Reply| {
        assert_eq!(reply.status(), StatusCode::OK);
        let mut policies = reply.lines("ratelimit-policy");
        policies.sort_unstable();
        assert_eq!(policies.join(", "), r#""new";q=2;w=3600, "old";q=5;w=3600"#);
        reply.field("x-ratelimit-remaining").map(str::to_owned)
    };
    for expected in ["1", "0", "0"] {
        assert_eq!(remaining(&app.get("/").await).as_deref(), Some(expected));
    }
    // Also on its own.
    limiter
        .swap(ratekeeper::RuleSet::new([global("new", quota).shadow().show_in_shadow(true)]).expect("good"));
    let reply = app.get("/").await;
    assert_eq!(
        (reply.field("x-ratelimit-limit"), reply.field("x-ratelimit-remaining")),
        (Some("2"), Some("0"))
    );
    assert_eq!(reply.lines("ratelimit-policy"), [r#""new";q=2;w=3600"#]);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_what_is_in_shadow_whatever_its_algorithm_and_however_slow_the_store() {
    let limiter = Limiter::builder()
        .store(memory())
        .rule(global("leaky", Quota::leaky_bucket(1, ratekeeper::SECOND).capacity(100)).shadow())
        .rule(global("held", Quota::per_second(1)).hold_up_to(ratekeeper::MINUTE).shadow())
        .build()
        .expect("good rules");
    let (start, app) = (Instant::now(), App::over(&RateLimitLayer::new(limiter), ok));
    assert_eq!(app.admitted(5, || get("/")).await, 5);
    assert_eq!(start.elapsed(), millis(0));

    let (clock, quota) = (crate::support::clock(), Quota::per_hour(3));
    let slow = Slow { store: crate::support::memory(&clock), after: millis(50) };
    let limiter = Limiter::builder()
        .store(slow)
        .rule(global("shadow", quota).shadow().show_in_shadow(true))
        .build()
        .expect("good rules");
    let (start, app) = (Instant::now(), App::over(&RateLimitLayer::new(limiter.clone()), ok));
    let reply = app.get("/").await;
    assert_eq!(start.elapsed(), millis(0));
    assert_eq!(reply.field("x-ratelimit-limit"), None, "it was not known in time");
    while left(&limiter, "shadow").await != 2 {
        assert!(start.elapsed() < millis(10_000), "it is counted all the same");
        tokio::time::sleep(millis(10)).await;
    }
}

#[tokio::test]
async fn a_candidate_runs_beside_the_quota_in_force_for_each_tier() {
    let (candidate, pro) = (Quota::per_hour(3), Quota::per_hour(7));
    let rule = global("api", Quota::per_hour(5))
        .tier("pro", Quota::per_hour(50))
        .tier_by(|head| head.headers().contains_key("pro").then_some("pro"))
        .candidate(candidate)
        .candidate_of_tier("pro", pro);
    let (limiter, _clock) = limiter([rule]);
    let app = App::over(&RateLimitLayer::new(limiter.clone()), ok);
    let reply = app.get("/").await;
    assert_eq!(reply.field("x-ratelimit-limit"), Some("5"));
    assert_eq!(candidate_left(&limiter, "api", candidate).await, 2);
    assert_eq!(app.admitted(10, || get("/")).await, 4, "the quota in force decides");
    assert_eq!((left(&limiter, "api").await, candidate_left(&limiter, "api", candidate).await), (0, 0));

    limiter.refund("api", Key::GLOBAL, 2).await.expect("the store works");
    let lefts = (left(&limiter, "api").await, candidate_left(&limiter, "api", candidate).await);
    assert_eq!(lefts, (2, 2), "what is given back is given back to both");

    limiter.reset("api", Key::GLOBAL).await.expect("the store works");
    let as_pro = || Request::get("/").header("pro", "1").body(()).expect("a request");
    assert_eq!(app.admitted(10, as_pro).await, 10);
    assert_eq!(candidate_left(&limiter, "api", pro).await, 0);
}

#[tokio::test]
async fn what_is_wrong_with_a_candidate_is_said() {
    let wrong = |rule: Rule| {
        let error = Limiter::builder().rule(rule).build().map(drop).unwrap_err();
        error.to_string()
    };
    let rule = || Rule::new("api", Quota::per_hour(5)).tier("free", ratekeeper::Tier::Unlimited);
    for tier in ["pro", "free"] {
        let error = wrong(rule().candidate_of_tier(tier, Quota::per_hour(1)));
        assert!(error.contains("`api`") && error.contains(tier), "{error}");
    }
    let error = wrong(rule().cost(4).candidate(Quota::per_hour(3)));
    assert!(error.contains("`api`") && error.contains('4') && error.contains('3'), "{error}");
    let taken = Limiter::builder()
        .rule(Rule::new("api~candidate", Quota::per_hour(5)))
        .rule(rule().candidate(Quota::per_hour(3)))
        .build();
    assert!(taken.is_err(), "two counters would be one");
}

/// The callers, out of a thousand, that are denied their second request.
async fn denied(share: Share) -> BTreeSet<u32> {
    let rule = Rule::new("api", Quota::per_hour(1)).key(key::header("user")).mode(Mode::EnforceFor(share));
    let app = App::new([rule]);
    let mut denied = BTreeSet::new();
    for user in 0..1_000 {
        let request = || Request::get("/").header("user", user).body(()).expect("a request");
        match app.admitted(3, request).await {
            1 => assert!(denied.insert(user)),
            admitted => assert_eq!(admitted, 3, "of {user}"),
        }
    }
    denied
}

#[tokio::test]
async fn a_rule_is_enforced_for_a_share_of_keys_and_always_for_the_same() {
    let percent = |percent| Share::new(percent, 100).expect("a share");
    let (ten, thirty) = (denied(percent(10)).await, denied(percent(30)).await);
    assert!((60..=140).contains(&ten.len()), "{}", ten.len());
    assert!((240..=360).contains(&thirty.len()), "{}", thirty.len());
    assert!(ten.is_subset(&thirty), "whoever was among the first stays among them");
    assert_eq!(denied(percent(10)).await, ten, "another process says the same");
    assert_eq!(denied(Share::WHOLE).await.len(), 1_000);
}

#[tokio::test]
async fn those_who_are_not_enforced_see_nothing_of_it() {
    let none = Mode::EnforceFor(Share::new(1, u32::MAX).expect("a share"));
    let app = App::new([global("api", Quota::per_hour(1)).mode(none)]);
    for _ in 0..3 {
        let reply = app.get("/").await;
        assert_eq!((reply.status(), reply.field("x-ratelimit-limit")), (StatusCode::OK, None));
    }
}

#[tokio::test]
async fn a_missing_key_is_not_denied_in_shadow() {
    assert_eq!(without_key("user", Mode::Shadow).admitted(3, || get("/")).await, 3);
}

fn without_key(rule: &str, mode: Mode) -> App {
    let rule = Rule::new(rule, Quota::per_hour(1)).key(key::header("user"));
    App::new([rule.on_missing_key(MissingKey::Deny).mode(mode)])
}

#[tokio::test]
async fn a_missing_key_is_denied_by_a_rule_that_is_enforced_for_those_who_have_none() {
    assert_eq!(without_key("user", Mode::EnforceFor(Share::WHOLE)).admitted(3, || get("/")).await, 0);
    // Requests without a key are in or out of a share together, depending on the rule.
    let half = Share::one_of(2);
    let mut enforced = 0;
    for name in (0..20).map(|number| format!("rule-{number}")) {
        let included = half.includes(RuleName::new(&name).expect("a name"), &Key::GLOBAL);
        let admitted = without_key(&name, Mode::EnforceFor(half)).admitted(3, || get("/")).await;
        assert_eq!(admitted, if included { 0 } else { 3 }, "{name}");
        enforced += usize::from(included);
    }
    assert!((1..20).contains(&enforced), "{enforced}");
}

#[tokio::test]
async fn without_a_request_it_is_the_same() {
    let (limiter, _clock) =
        limiter([global("new", Quota::per_hour(1)).shadow(), global("old", Quota::per_hour(3))]);
    for _ in 0..3 {
        let decision =
            limiter.charge("new", Key::GLOBAL).and("old", Key::GLOBAL).await.expect("the store works");
        assert!(decision.is_admitted() && decision.outcome("new").is_none());
    }
    assert!(!limiter.charge("new", Key::GLOBAL).and("old", Key::GLOBAL).await.expect("works").is_admitted());
    assert!(limiter.charge("new", Key::GLOBAL).until_ready().await.expect("works").is_admitted());
    assert_eq!(left(&limiter, "new").await, 0);
    assert!(!limiter.charge("new", Key::GLOBAL).peek().await.expect("works").is_admitted());
}

#[tokio::test]
async fn a_store_that_fails_has_nothing_to_say_of_what_is_in_shadow() {
    let failing = Failing { kind: ratekeeper::store::StoreErrorKind::Unavailable, after: None };
    let deny = ratekeeper::FailurePolicy::Deny;
    let limiter = Limiter::builder()
        .store(failing)
        .rule(global("new", Quota::per_hour(1)).shadow().on_store_failure(deny))
        .build()
        .expect("good rules");
    let app = App::over(&RateLimitLayer::new(limiter), ok);
    assert_eq!(app.admitted(3, || get("/")).await, 3);
}

/// A limiter with two rules that are settled, one of them in shadow, and a candidate.
fn settled<S: Store>(store: S) -> Limiter {
    let quota = Quota::fixed_window(100, ratekeeper::HOUR);
    Limiter::builder()
        .store(store)
        .rule(global("new", quota).cost(10).settle_in_handler().shadow())
        .rule(global("old", quota).cost(10).settle_in_handler().candidate(quota))
        .build()
        .expect("good rules")
}

async fn all_left(limiter: &Limiter) -> [u32; 3] {
    let candidate = candidate_left(limiter, "old", Quota::fixed_window(100, ratekeeper::HOUR)).await;
    [left(limiter, "new").await, left(limiter, "old").await, candidate]
}

fn settle(request: &Request<()>) {
    let limits = Limits::of(request.extensions()).expect("they are there");
    let cost: u32 = request.uri().path()[1..].parse().expect("a number");
    limits.settle("new", cost).expect("there is such a rule");
    limits.settle("old", cost).expect("there is such a rule");
}

#[tokio::test]
async fn what_is_in_shadow_is_settled_like_all_else() {
    let limiter = settled(crate::support::memory(&crate::support::clock()));
    let app = App::over(&RateLimitLayer::new(limiter.clone()), |request| {
        settle(&request);
        ok(request)
    });
    app.get("/3").await;
    assert_eq!(all_left(&limiter).await, [97; 3]);
    app.get("/30").await;
    assert_eq!(all_left(&limiter).await, [67; 3]);
}

#[tokio::test(start_paused = true)]
async fn what_was_settled_before_the_store_has_answered_is_settled_then() {
    let slow = Slow { store: crate::support::memory(&crate::support::clock()), after: millis(50) };
    let limiter = settled(slow);
    let app = App::over(&RateLimitLayer::new(limiter.clone()), |request| {
        settle(&request);
        ok(request)
    });
    for (path, expected) in [("/3", 97), ("/30", 67)] {
        app.get(path).await;
        let start = Instant::now();
        while all_left(&limiter).await != [expected; 3] {
            assert!(start.elapsed() < millis(10_000), "{path}: {:?}", all_left(&limiter).await);
            tokio::time::sleep(millis(10)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_finds_no_room_or_goes_away_is_not_counted_in_shadow() {
    let build = |max_waiting| {
        Limiter::builder()
            .store(memory())
            .max_waiting(max_waiting)
            .rule(global("queue", Quota::leaky_bucket(1, ratekeeper::SECOND).capacity(100)))
            .rule(global("new", Quota::per_hour(10)).shadow())
            .build()
            .expect("good rules")
    };
    let limiter = build(0);
    let app = App::over(&RateLimitLayer::new(limiter.clone()), ok);
    assert_eq!(app.get("/").await.status(), StatusCode::OK);
    assert_eq!(app.get("/").await.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(left(&limiter, "new").await, 9);

    let limiter = build(10);
    let app = App::over(&RateLimitLayer::new(limiter.clone()), ok);
    assert_eq!(app.get("/").await.status(), StatusCode::OK);
    assert!(tokio::time::timeout(millis(10), app.get("/")).await.is_err());
    assert_eq!(left(&limiter, "new").await, 9);
    // A request that stays is counted when it is forwarded.
    assert_eq!(app.get("/").await.status(), StatusCode::OK);
    assert_eq!(left(&limiter, "new").await, 8);
}

#[tokio::test]
async fn what_is_forgotten_is_forgotten_under_the_candidate_as_well() {
    let candidate = Quota::per_hour(3);
    let (limiter, _clock) = limiter([global("api", Quota::per_hour(5)).candidate(candidate)]);
    assert!(limiter.charge("api", Key::GLOBAL).await.expect("the store works").is_admitted());
    assert_eq!(candidate_left(&limiter, "api", candidate).await, 2);
    limiter.reset("api", Key::GLOBAL).await.expect("the store works");
    assert_eq!(candidate_left(&limiter, "api", candidate).await, 3);
}
