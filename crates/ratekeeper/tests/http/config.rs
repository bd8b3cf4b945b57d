//! Invalid configurations: what is wrong, where, and what would be right.

use std::time::Duration;

use http::Method;
use ratekeeper::{ConfigError, Limiter, MINUTE, Quota, QuotaError, RateLimitLayer, Rule, Tier};

const FINE: Quota = Quota::per_minute(5);

fn error(rules: impl IntoIterator<Item = Rule>) -> ConfigError {
    Limiter::builder().rules(rules).build().expect_err("the rules make no sense")
}

#[track_caller]
fn says(error: &ConfigError, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

#[test]
fn a_limiter_without_rules_is_refused() {
    let error = error([]);
    assert_eq!(error, ConfigError::NoRules);
    says(&error, &["no rules", "nothing would be limited"]);
}

#[test]
fn a_bad_name_is_refused() {
    for (name, part) in [
        ("", "cannot be empty"),
        ("a b", "' '"),
        ("näme", "'ä'"),
        ("line\nbreak", "printable ASCII"),
        (&"x".repeat(65), "longer than 64"),
    ] {
        let error = error([Rule::new(name, FINE)]);
        assert!(matches!(error, ConfigError::RuleName(_)));
        says(&error, &[part]);
    }
}

#[test]
fn two_rules_of_one_name_are_refused() {
    let error = error([Rule::new("a", FINE), Rule::new("b", FINE), Rule::new("a", FINE).on_path("/x")]);
    assert_eq!(error, ConfigError::DuplicateRule { rule: "a".to_owned() });
    says(&error, &["`a`", "share their counters"]);
}

#[test]
fn a_quota_that_makes_no_sense_is_refused() {
    for (quota, wrong, part) in [
        (Quota::per_second(0), QuotaError::ZeroLimit, "the least is 1"),
        (FINE.burst(0), QuotaError::ZeroBurst, "the least is 1"),
        (Quota::leaky_bucket(1, MINUTE).capacity(0), QuotaError::ZeroCapacity, "the least is 1"),
        (Quota::token_bucket(1, std::time::Duration::ZERO), QuotaError::PeriodTooShort, "one millisecond"),
        (Quota::token_bucket(1, std::time::Duration::MAX), QuotaError::PeriodTooLong, "ten years"),
        (
            Quota::fixed_window(5, MINUTE).burst(9),
            QuotaError::BurstWithout(ratekeeper::store::Algorithm::FixedWindow),
            "only a token-bucket has",
        ),
        (
            FINE.capacity(9),
            QuotaError::CapacityWithout(ratekeeper::store::Algorithm::TokenBucket),
            "its burst",
        ),
    ] {
        let of_rule = error([Rule::new("api", quota)]);
        assert_eq!(of_rule, ConfigError::Quota { rule: "api".to_owned(), tier: None, error: wrong });
        says(&of_rule, &["rule `api`", part]);
        let of_tier = error([Rule::new("api", FINE).tier("pro", quota)]);
        says(&of_tier, &["rule `api`", "tier `pro`", part]);
    }
}

#[test]
fn holding_back_needs_a_bucket_and_at_most_a_minute() {
    let hold = Duration::from_secs(1);
    for quota in
        [Quota::fixed_window(5, MINUTE), Quota::sliding_window(5, MINUTE), Quota::sliding_log(5, MINUTE)]
    {
        let name = quota.algorithm().to_string();
        let of_rule = error([Rule::new("api", quota).hold_up_to(hold)]);
        assert!(matches!(&of_rule, ConfigError::Hold { rule, tier: None, .. } if rule == "api"));
        says(&of_rule, &["rule `api`", &name, "use a token bucket or a leaky bucket"]);
        let of_tier = error([Rule::new("api", FINE).tier("pro", Tier::from(quota).hold_up_to(hold))]);
        says(&of_tier, &["rule `api`", "tier `pro`", &name]);
    }
    for quota in [FINE, Quota::leaky_bucket(5, MINUTE)] {
        assert!(Rule::new("api", quota).hold_up_to(MINUTE).check().is_ok());
        let error = error([Rule::new("api", quota).hold_up_to(MINUTE + Duration::from_millis(1))]);
        says(&error, &["rule `api`", "longer than 60 s"]);
    }
}

#[test]
fn two_tiers_of_one_name_are_refused() {
    let error = error([Rule::new("api", FINE).tier("pro", FINE).tier("pro", Tier::Unlimited)]);
    assert_eq!(error, ConfigError::DuplicateTier { rule: "api".to_owned(), tier: "pro".to_owned() });
    says(&error, &["rule `api`", "`pro`"]);
}

#[test]
fn a_cost_that_could_never_be_paid_is_refused() {
    let own = error([Rule::new("api", FINE).cost(6)]);
    assert!(matches!(&own, ConfigError::CostAboveQuota { rule, cost: 6, max: 5, .. } if rule == "api"));
    says(&own, &["rule `api`", "costs 6", "more than 5"]);
    let tier = error([Rule::new("api", FINE).cost(5).tier("free", Quota::per_minute(4))]);
    says(&tier, &["rule `api`", "tier `free`", "costs 5", "more than 4"]);
    assert!(Limiter::builder().rule(Rule::new("api", FINE).cost(5)).build().is_ok());
}

#[test]
fn a_cost_of_nothing_is_refused() {
    let error = error([Rule::new("free", FINE).cost(0)]);
    assert_eq!(error, ConfigError::ZeroCost { rule: "free".to_owned() });
    says(&error, &["`free`", "never limited"]);
}

#[test]
fn a_bad_path_is_refused() {
    for (path, part) in [
        ("users", "begins with `/`"),
        ("", "begins with `/`"),
        ("/users/:id", "`{id}`"),
        ("/files/*", "`{*rest}`"),
        ("/users/{id", "`{id}`"),
        ("/users/{}", "with a name"),
        ("/v{version}", "whole segment"),
        ("/{*rest}/x", "comes last"),
        ("/{id}/{id}", "same name"),
        ("/search?q=1", "ends before `?`"),
        ("/login ", "white space"),
    ] {
        let error =
            error([Rule::new("fine", FINE), Rule::new("api", FINE).on_path("/ok").on(Method::GET, path)]);
        assert!(matches!(&error, ConfigError::Path { rule, .. } if rule == "api"), "{path}");
        says(&error, &["rule `api`", &format!("`{path}`"), part]);
    }
}

#[test]
fn a_bad_host_is_refused() {
    for (host, part) in [
        ("", "has a name"),
        ("https://example.com", "without a scheme"),
        ("example.com:80", "without a port"),
        ("::1", "in brackets"),
        ("[example.com]", "IPv6 address"),
        ("api.*.com", "such as in `*.example.com`"),
        ("example..com", "nothing between two dots"),
        ("müsli.example", "`xn--`"),
        ("exam ple.com", "' '"),
    ] {
        let error = error([Rule::new("fine", FINE), Rule::new("api", FINE).on_host("ok").on_host(host)]);
        assert!(matches!(&error, ConfigError::Host { rule, .. } if rule == "api"), "{host}");
        says(&error, &["rule `api`", &format!("host `{host}`"), part]);
    }
}

#[test]
fn a_bad_network_is_refused() {
    let error = ratekeeper::key::TrustedProxies::networks(["10.0.0.0/8", "10.0.0/8"]).unwrap_err();
    assert!(matches!(&error, ConfigError::Network { network, .. } if network == "10.0.0/8"));
    says(&error, &["`10.0.0/8`", "such as `10.0.0.0/8`"]);
}

#[test]
fn an_error_is_an_error_that_can_be_boxed_sent_and_compared() {
    fn check<T: std::error::Error + Clone + PartialEq + Send + Sync + 'static>(_: &T) {}
    check(&error([]));
}

#[test]
fn a_layer_can_be_made_without_a_panic_and_with_a_name() {
    let error = RateLimitLayer::try_new(Quota::per_second(0)).expect_err("nothing would be admitted");
    says(&error, &["a limit of zero admits nothing"]);
    let layer = RateLimitLayer::named("burst", FINE).expect("it is fine");
    let names: Vec<_> = layer.limiter().rule_set().names().map(|name| name.to_string()).collect();
    assert_eq!(names, ["burst"]);
    assert!(matches!(RateLimitLayer::named("a b", FINE), Err(ConfigError::RuleName(_))));
}

/// The panic is reported where the application makes the layer, not inside of the library.
#[test]
fn a_panic_names_the_callers_line() {
    let place = std::sync::Arc::new(std::sync::Mutex::new(None));
    let seen = std::sync::Arc::clone(&place);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        *seen.lock().unwrap() = info.location().map(|location| location.file().to_owned());
    }));
    let panicked = std::panic::catch_unwind(|| RateLimitLayer::new(Quota::per_second(0)));
    std::panic::set_hook(before);
    assert!(panicked.is_err());
    let file = place.lock().unwrap().take().expect("the hook was called");
    assert!(file.ends_with("config.rs"), "{file}");
}

#[test]
#[should_panic(expected = "a limit of zero admits nothing")]
fn a_layer_over_a_quota_that_makes_no_sense_says_so_at_once() {
    let _ = RateLimitLayer::new(Quota::per_second(0));
}

/// Its callers would all have the rule's own quota.
#[test]
fn a_tier_that_nobody_can_be_in_is_refused() {
    let tiered = |rule: Rule| rule.tier("pro", FINE).tier("staff", Tier::Unlimited);
    let refused = error([tiered(Rule::new("api", FINE))]);
    let (rule, tier) = ("api".to_owned(), "pro".to_owned());
    assert_eq!(refused, ConfigError::TierWithoutLookup { rule, tier });
    says(&refused, &["rule `api`", "tier `pro`", "`Rule::tier_by`"]);
    assert!(tiered(Rule::new("api", FINE)).tier_by(|_| None::<&str>).check().is_ok());
    assert!(tiered(Rule::new("api", FINE)).tier_by_async(|_| async { None::<&str> }).check().is_ok());
    // The caller of `Limiter::charge` says the tier.
    assert!(tiered(Rule::new("api", FINE)).manual().check().is_ok());
}

/// No request would have it, and all of them would share one budget.
#[test]
fn a_path_parameter_that_no_path_has_is_refused() {
    use ratekeeper::KeyExtractor;
    use ratekeeper::key::{constant, path_param, peer_ip, required};

    let rule = || Rule::new("api", FINE).on_path("/users/{id}").on(Method::GET, "/posts/{post}/{id}");
    let refused = error([rule().key(path_param("user"))]);
    let known = vec!["id".to_owned(), "post".to_owned()];
    let (name, param) = ("api".to_owned(), "user".to_owned());
    assert_eq!(refused, ConfigError::PathParam { rule: name, param, known });
    says(&refused, &["rule `api`", "`user`", "`id`, `post`"]);
    says(
        &error([Rule::new("api", FINE).on_path("/users").key(path_param("id"))]),
        &["`id`", "they have none"],
    );
    // Wherever in the key it is.
    assert!(rule().key((peer_ip(), path_param("user"))).check().is_err());
    assert!(rule().key((peer_ip(), constant("a"), required(path_param("user")))).check().is_err());
    assert!(rule().key(path_param("id").or(path_param("user"))).check().is_err());
    let list: Vec<std::sync::Arc<dyn KeyExtractor>> = vec![std::sync::Arc::new(path_param("user"))];
    assert!(rule().key(list).check().is_err());

    assert!(rule().key((path_param("id"), path_param("post"))).check().is_ok());
    // It may be one of the application's route.
    assert!(Rule::new("api", FINE).key(path_param("user")).check().is_ok());
    assert!(rule().on_path("/users/{id}/{*rest}").key(path_param("user")).check().is_ok());
    assert!(rule().on_method(Method::POST).key(path_param("user")).check().is_ok());
}

#[test]
fn a_bad_exception_is_refused() {
    let refused = error([Rule::new("api", FINE).except("health")]);
    says(&refused, &["rule `api`", "path `health`", "begins with `/`"]);
    says(
        &error([Rule::new("api", FINE).manual().except("/health")]),
        &["the exception `/health`", "in vain"],
    );
}
