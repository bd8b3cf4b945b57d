//! What a rule does, and the settings of a file besides its rules.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use http_body_util::Full;
use ratekeeper::{
    Decision, FailurePolicy, IetfDraft, Limits, MINUTE, MissingKey, Mode, Quota, RateLimitLayer, Rule, Share,
    Tier,
};
use ratekeeper_rules::{Format, Registry, RuleFile};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{Req, code, file, get, left, of_file, registry, request, rule, send, shown, with};

#[test]
fn a_quota_is_that_of_code_however_it_is_written() {
    for (written, in_code) in [
        ("\"100/minute\"", Quota::per_minute(100)),
        ("{ limit = 100, period = \"minute\" }", Quota::per_minute(100)),
        ("{ limit = 10, period = \"1s\", burst = 20 }", Quota::per_second(10).burst(20)),
        ("{ limit = 5, period = \"1m\", algorithm = \"token-bucket\" }", Quota::token_bucket(5, MINUTE)),
        ("{ limit = 5, period = \"1m\", algorithm = \"fixed-window\" }", Quota::fixed_window(5, MINUTE)),
        ("{ limit = 5, period = \"1m\", algorithm = \"sliding-window\" }", Quota::sliding_window(5, MINUTE)),
        ("{ limit = 5, period = \"1m\", algorithm = \"sliding-log\" }", Quota::sliding_log(5, MINUTE)),
        (
            "{ limit = 5, period = \"1m\", algorithm = \"leaky-bucket\", capacity = 3 }",
            Quota::leaky_bucket(5, MINUTE).capacity(3),
        ),
    ] {
        let file = file(&format!("[[rules]]\nname = \"r\"\nquota = {written}"));
        assert_eq!(shown(&file.rules()[0]), shown(&Rule::new("r", in_code)), "{written}");
    }
}

#[test]
fn what_a_rule_shows_of_itself_is_that_of_code() {
    let held = Tier::from(Quota::per_second(5)).hold_up_to(Duration::from_millis(1_500));
    for (fields, in_code) in [
        ("", code()),
        ("on-store-failure = \"allow\"", code().on_store_failure(FailurePolicy::Allow)),
        ("on-store-failure = \"deny\"", code().on_store_failure(FailurePolicy::Deny)),
        (
            "on-store-failure = { local = \"1/4\" }",
            code().on_store_failure(FailurePolicy::Local(Share::one_of(4))),
        ),
        ("on-missing-key = \"shared\"", code().on_missing_key(MissingKey::Shared)),
        ("on-missing-key = \"skip\"", code().on_missing_key(MissingKey::Skip)),
        ("on-missing-key = \"deny\"", code().on_missing_key(MissingKey::Deny)),
        (
            "tier-by = \"plan\"\ntiers.pro = { quota = \"5/second\", hold-up-to = \"1s 500ms\" }",
            code().tier("pro", held),
        ),
        ("match = \"POST /login\"", code().on(Method::POST, "/login")),
        ("mode = \"enforce\"", code().mode(Mode::Enforce)),
        ("mode = \"shadow\"\nshow-in-shadow = true", code().shadow().show_in_shadow(true)),
        ("mode = { enforce-for = \"10%\" }", code().mode(Mode::EnforceFor(Share::one_of(10)))),
        ("candidate = \"50/day\"", code().candidate(Quota::per_day(50))),
        (
            "tier-by = \"plan\"\ntiers.pro = { quota = \"5/second\", candidate = \"3/second\" }",
            code().tier("pro", Quota::per_second(5)).candidate_of_tier("pro", Quota::per_second(3)),
        ),
    ] {
        assert_eq!(shown(&rule(fields)), shown(&in_code), "{fields}");
    }
}

#[tokio::test]
async fn a_request_without_the_key_is_treated_as_the_file_says() {
    let sent = async |word: &str| {
        let fields = format!("key = {{ header = \"x-none\" }}\non-missing-key = \"{word}\"");
        send(&of_file(&fields), get("/")).await
    };
    assert!(sent("shared").await.unwrap().is_admitted());
    assert!(sent("skip").await.is_none_or(|decision: Decision| decision.outcome("r").is_none()));
    assert!(!sent("deny").await.unwrap().is_admitted());
}

#[tokio::test]
async fn tiers_are_found_by_what_was_registered() {
    let pro = || with(get("/"), "x-pro", "1");
    for lookup in ["plan", "plan-later"] {
        let limiter = of_file(&format!("tier-by = \"{lookup}\"\ntiers.pro = \"1000/day\""));
        assert_eq!(left(&limiter, get("/")).await, Some(99), "{lookup}");
        assert_eq!(left(&limiter, pro()).await, Some(998), "{lookup}");
    }
    let limiter = of_file("tier-by = \"plan\"\ntiers.pro = \"unlimited\"");
    assert_eq!(left(&limiter, pro()).await, None);
    assert_eq!(left(&limiter, get("/")).await, Some(99));
}

#[tokio::test]
async fn a_request_costs_what_the_file_says() {
    assert_eq!(left(&of_file("cost = 7"), get("/")).await, Some(93));
    let registered = of_file("cost = { registered = \"by-method\" }");
    assert_eq!(left(&registered, get("/")).await, Some(99));
    assert_eq!(left(&registered, request(Method::POST, "/")).await, Some(94));
}

#[tokio::test]
async fn who_is_over_the_limit_is_held_back_if_the_file_says_so() {
    // One in a minute, so that no request's turn comes before the limiter releases it.
    let text = "[[rules]]\nname = \"r\"\nquota = \"1/minute\"\n";
    let limiter = file(&format!("{text}hold-up-to = \"1m\"")).limiter().build().unwrap();
    assert!(send(&limiter, get("/")).await.unwrap().is_admitted());
    let held = tokio::spawn({
        let limiter = limiter.clone();
        async move { send(&limiter, get("/")).await }
    });
    tokio::time::timeout(Duration::from_secs(30), async {
        while limiter.waiting() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("it is not held back");
    limiter.close();
    assert!(held.await.unwrap().is_none(), "it is released with 503");

    let limiter = file(&format!("{text}hold-up-to = \"30s\"")).limiter().build().unwrap();
    assert!(send(&limiter, get("/")).await.unwrap().is_admitted());
    assert!(!send(&limiter, get("/")).await.unwrap().is_admitted());
}

#[tokio::test]
async fn a_handler_can_settle_if_the_file_says_so() {
    for (fields, expected) in
        [("", false), ("settle-in-handler = false", false), ("settle-in-handler = true", true)]
    {
        let handler = service_fn(async |request: Req| {
            let settled =
                request.extensions().get::<Limits>().is_some_and(|limits| limits.settle("r", 3).is_ok());
            let mut response = Response::new(Full::<Bytes>::default());
            response.extensions_mut().insert(settled);
            Ok::<_, Infallible>(response)
        });
        let response = RateLimitLayer::new(of_file(fields)).layer(handler).oneshot(get("/")).await.unwrap();
        assert_eq!(response.extensions().get::<bool>(), Some(&expected), "{fields}");
    }
}

#[tokio::test]
async fn the_layer_is_as_the_file_says() {
    let rules = "[[rules]]\nname = \"r\"\nquota = \"10/s\"\n";
    let layer =
        "[layer]\nx-ratelimit-headers = false\nietf-headers = \"draft-11\"\ncharge-preflights = true\n";
    let (said, unsaid) = (file(&format!("{layer}{rules}")), file(rules));
    let settings = said.layer();
    assert_eq!(settings.x_ratelimit_headers(), Some(false));
    assert_eq!(settings.ietf_headers(), Some(IetfDraft::Draft11));
    assert_eq!(settings.charge_preflights(), Some(true));

    for (file, preflight, ietf, legacy) in [(&said, true, true, false), (&unsaid, false, false, true)] {
        let ok = service_fn(async |_: Req| Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())));
        let service = file.layer().apply(RateLimitLayer::new(file.limiter().build().unwrap())).layer(ok);
        let response = service.clone().oneshot(get("/")).await.unwrap();
        assert_eq!(response.headers().contains_key("ratelimit"), ietf, "{response:?}");
        assert_eq!(response.headers().contains_key("x-ratelimit-limit"), legacy, "{response:?}");
        let mut request = with(request(Method::OPTIONS, "/"), "origin", "https://example.com");
        // A preflight has no credentials.
        for credentials in ["authorization", "cookie"] {
            request.headers_mut().remove(credentials);
        }
        let response = service.oneshot(with(request, "access-control-request-method", "GET")).await.unwrap();
        assert_eq!(response.extensions().get::<Decision>().is_some(), preflight, "{response:?}");
    }
}

#[tokio::test]
async fn a_refusal_has_the_body_that_the_file_says() {
    let rules = "[[rules]]\nname = \"r\"\nquota = \"1/hour\"\n";
    let json = "[layer]\nrejection = \"json\"\n";
    let problem = "[layer]\nrejection = \"problem\"\n";
    for (layer, is_problem_in_code, expected) in [
        ("", false, "application/json"),
        ("", true, "application/problem+json"),
        (json, false, "application/json"),
        (json, true, "application/json"),
        (problem, false, "application/problem+json"),
    ] {
        let file = file(&format!("{layer}{rules}"));
        let ok = service_fn(async |_: Req| Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())));
        let own = RateLimitLayer::new(file.limiter().build().unwrap());
        let mut types = Vec::new();
        for _ in 0..2 {
            let response = if is_problem_in_code {
                file.layer().apply(own.clone().problem_details()).layer(ok).oneshot(get("/")).await
            } else {
                file.layer().apply(own.clone()).layer(ok).oneshot(get("/")).await
            };
            types.push(response.unwrap().headers().get("content-type").cloned());
        }
        assert_eq!(types, [None, Some(expected.parse().unwrap())], "{layer}");
    }
}

#[tokio::test]
async fn a_registry_of_any_names_stands_in_for_what_is_not_there() {
    let text = r#"
        [[rules]]
        name = "r"
        quota = "100/day"
        key = ["peer-ip", { registered = "anything" }]
        tier-by = "nobody"
        tiers = { pro = "1000/day" }
        cost = { registered = "whatever" }
        when = "true"
        settle-by = "keep"
    "#;
    assert_eq!(
        RuleFile::parse("rules.toml", text, Format::Toml, &registry()).unwrap_err().problems().len(),
        5
    );
    let file = RuleFile::parse("rules.toml", text, Format::Toml, &Registry::any()).unwrap();
    let limiter = file.limiter().build().unwrap();
    assert_eq!(left(&limiter, get("/")).await, Some(99));
    assert_eq!(left(&limiter, get("/")).await, Some(98));
    // What is registered is used nevertheless.
    let two = Registry::any().cost("whatever", |_| 2);
    let file = RuleFile::parse("rules.toml", text, Format::Toml, &two).unwrap();
    assert_eq!(left(&file.limiter().build().unwrap(), get("/")).await, Some(98));
    let pro = Registry::any().any_tier("pro");
    let file = RuleFile::parse("rules.toml", text, Format::Toml, &pro).unwrap();
    assert_eq!(left(&file.limiter().build().unwrap(), get("/")).await, Some(999));
    // An unknown field is wrong in any registry.
    let error = RuleFile::parse("rules.toml", text.replace("when", "wenn"), Format::Toml, &Registry::any());
    assert_eq!(error.unwrap_err().problems().len(), 1);
}

#[tokio::test]
async fn no_more_wait_than_the_file_says() {
    let text = "limiter.max-waiting = 0\n[[rules]]\nname = \"r\"\nquota = \"1/minute\"\nhold-up-to = \"1m\"";
    let limiter = file(text).limiter().build().unwrap();
    assert!(send(&limiter, get("/")).await.unwrap().is_admitted());
    // Nobody may wait, so this is answered with 503 immediately.
    assert!(send(&limiter, get("/")).await.is_none());
}

#[tokio::test]
async fn json_says_the_same_as_toml() {
    let json = r#"{
        "$schema": "rules.schema.json",
        "rules": [{ "name": "r", "quota": "100/day", "match": ["GET /a"], "key": ["peer-ip", "path"], "cost": 2 }]
    }"#;
    let json = RuleFile::parse("rules.json", json, Format::Json, &registry()).unwrap();
    let toml = rule("match = [\"GET /a\"]\nkey = [\"peer-ip\", \"path\"]\ncost = 2");
    assert_eq!(shown(&json.rules()[0]), shown(&toml));
    assert_eq!(left(&json.limiter().build().unwrap(), get("/a")).await, Some(98));
}

#[test]
fn what_editors_add_is_no_mistake() {
    let toml = "\u{feff}[[rules]]\r\nname = \"r\"\r\nquota = \"10/s\"\r\n";
    assert_eq!(file(toml).rules().len(), 1);
    let json = |text: &str| RuleFile::parse("rules.json", text, Format::Json, &registry());
    assert_eq!(
        json("\u{feff}{ \"rules\": [{ \"name\": \"r\", \"quota\": \"10/s\" }] }\r\n").unwrap().rules().len(),
        1
    );
    #[cfg(feature = "yaml")]
    {
        let yaml = "\u{feff}rules:\r\n  - name: r\r\n    quota: 10/s\r\n";
        let yaml = RuleFile::parse("rules.yaml", yaml, Format::Yaml, &registry());
        assert_eq!(yaml.unwrap_or_else(|error| panic!("{error}")).rules().len(), 1);
    }
    // And positions are still right.
    for (text, column) in [("\u{feff}{ \"rules\": 1 }", 13), ("\u{feff}{ rules", 4)] {
        assert_eq!(json(text).unwrap_err().problems()[0].column(), column, "{text}");
    }
}

#[test]
fn a_file_is_read_by_its_ending() {
    let directory = std::env::temp_dir().join(format!("ratekeeper-rules-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (toml, json) = (directory.join("rules.toml"), directory.join("rules.JSON"));
    std::fs::write(&toml, "[[rules]]\nname = \"r\"\nquota = \"10/s\"\n").unwrap();
    std::fs::write(&json, r#"{ "rules": [{ "name": "r", "quota": "10/s" }] }"#).unwrap();
    let loaded = [&toml, &json].map(|path| RuleFile::load(path, &registry()));
    std::fs::remove_dir_all(&directory).unwrap();
    for file in loaded {
        assert_eq!(file.unwrap().rules().len(), 1);
    }
}

#[cfg(feature = "yaml")]
#[tokio::test]
async fn yaml_says_the_same_as_toml() {
    let yaml = "
rules:
  - name: r
    quota: 100/day
    match:
      - GET /a
    key: [peer-ip, path]
    cost: 0x2
    settle-in-handler: false
";
    let yaml = RuleFile::parse("rules.yaml", yaml, Format::Yaml, &registry()).unwrap();
    let toml = rule("match = [\"GET /a\"]\nkey = [\"peer-ip\", \"path\"]\ncost = 2");
    assert_eq!(shown(&yaml.rules()[0]), shown(&toml));
    assert_eq!(left(&yaml.limiter().build().unwrap(), get("/a")).await, Some(98));
}

/// JSON is YAML, with whatever white space.
#[cfg(feature = "yaml")]
#[test]
fn json_is_read_as_yaml_too() {
    let dense = r#"{"rules":[{"name":"r","quota":"10/s","key":["global","path"],"by-hand":false}]}"#;
    let read = |text: &str, format| {
        let file =
            RuleFile::parse("rules", text, format, &registry()).unwrap_or_else(|error| panic!("{error}"));
        shown(&file.rules()[0])
    };
    let expected = read(dense, Format::Json);
    for space in ["\t", "\n\t", "\r\n\t\t", " \t "] {
        let wide = ["{", "[", ":", ",", "]", "}"]
            .into_iter()
            .fold(dense.to_owned(), |text, sign| text.replace(sign, &format!("{sign}{space}")));
        for text in [&*wide, &format!("\u{feff}{wide}")] {
            assert_eq!(read(text, Format::Json), expected, "{text:?}");
            assert_eq!(read(text, Format::Yaml), expected, "{text:?}");
        }
    }
}
