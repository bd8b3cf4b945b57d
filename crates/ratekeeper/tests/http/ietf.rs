//! `RateLimit` and `RateLimit-Policy`, as in draft 11.

use http::StatusCode;
use ratekeeper::{DAY, HOUR, IetfDraft, MINUTE, MissingKey, Quota, Rule, key};
use sfv::{BareItem, List, ListEntry, Parser};

use crate::support::{App, Reply, ReplyExt, RequestExt, get, millis, secs};

/// A member of a list: its name and its parameters.
type Member = (String, Vec<(String, i64)>);

/// A field, all its lines joined, as a parser of structured fields reads it.
pub(crate) fn parse(reply: &Reply, name: &str) -> Vec<Member> {
    let list: List = Parser::new(&reply.lines(name).join(", ")).parse().expect("a list");
    let member = |entry: &ListEntry| {
        let ListEntry::Item(item) = entry else { panic!("an inner list") };
        let BareItem::String(name) = &item.bare_item else { panic!("no string") };
        let params = item.params.iter().map(|(key, value)| {
            let BareItem::Integer(value) = value else { panic!("no integer") };
            (key.as_str().to_owned(), i64::from(*value))
        });
        (name.as_str().to_owned(), params.collect())
    };
    list.iter().map(member).collect()
}

fn app(rules: impl IntoIterator<Item = Rule>) -> App {
    App::with(rules, |layer| layer.ietf_headers(IetfDraft::Draft11))
}

fn global(name: &str, quota: Quota) -> Rule {
    Rule::new(name, quota).key(key::global())
}

#[tokio::test]
async fn all_rules_are_listed_in_their_order() {
    let app = app([
        global("burst", Quota::per_second(10).burst(20)),
        global("daily", Quota::fixed_window(1_000, DAY)),
    ]);
    let reply = app.get("/").await;
    assert_eq!(reply.lines("ratelimit-policy").join(", "), r#""burst";q=20;w=2, "daily";q=1000;w=86400"#);
    // 6,399.75 s of the day are left.
    assert_eq!(reply.lines("ratelimit").join(", "), r#""burst";r=19;t=1, "daily";r=999;t=6400"#);
    let param = |name: &str, value| (name.to_owned(), value);
    assert_eq!(
        parse(&reply, "ratelimit-policy"),
        [
            ("burst".to_owned(), vec![param("q", 20), param("w", 2)]),
            ("daily".to_owned(), vec![param("q", 1_000), param("w", 86_400)]),
        ]
    );
    assert_eq!(
        parse(&reply, "ratelimit"),
        [
            ("burst".to_owned(), vec![param("r", 19), param("t", 1)]),
            ("daily".to_owned(), vec![param("r", 999), param("t", 6_400)]),
        ]
    );
}

#[tokio::test]
async fn a_policy_says_how_much_may_be_used_in_which_window() {
    for (quota, policy) in [
        (Quota::per_minute(60), r#""r";q=60;w=60"#),
        (Quota::per_minute(60).burst(10), r#""r";q=10;w=10"#),
        // A bucket's window is rounded up, so the quota is what comes back in it.
        (Quota::per_second(3).burst(10), r#""r";q=12;w=4"#),
        (Quota::per_second(100).burst(20), r#""r";q=100;w=1"#),
        (Quota::fixed_window(5, HOUR), r#""r";q=5;w=3600"#),
        (Quota::sliding_window(5, HOUR), r#""r";q=5;w=3600"#),
        (Quota::sliding_log(5, MINUTE), r#""r";q=5;w=60"#),
        (Quota::leaky_bucket(2, secs(1)).capacity(9), r#""r";q=10;w=5"#),
        // Whole seconds, rounded up, and at least one.
        (Quota::fixed_window(5, millis(500)), r#""r";q=5;w=1"#),
        (Quota::fixed_window(5, millis(1_001)), r#""r";q=5;w=2"#),
        (Quota::per_second(u32::MAX), r#""r";q=4294967295;w=1"#),
    ] {
        let reply = app([global("r", quota)]).get("/").await;
        assert_eq!(reply.field("ratelimit-policy"), Some(policy), "{quota}");
        parse(&reply, "ratelimit-policy");
        parse(&reply, "ratelimit");
    }
}

#[tokio::test]
async fn nobody_is_told_to_wait_where_waiting_is_in_vain() {
    let no_key = global("r", Quota::per_minute(2)).key(key::header("user")).on_missing_key(MissingKey::Deny);
    for rule in [no_key, global("r", Quota::per_minute(2)).cost_by(|_| 3)] {
        let reply = app([rule]).get("/").await;
        assert_eq!((reply.status(), reply.field("retry-after")), (StatusCode::TOO_MANY_REQUESTS, None));
        assert_eq!(reply.field("ratelimit"), Some(r#""r";r=2"#));
        assert_eq!(reply.trio().map(|(limit, remaining, _)| (limit, remaining)), Some((2, 2)));
    }
}

#[tokio::test]
async fn the_policy_stays_the_same_and_the_limit_follows_what_is_used() {
    let app = app([global("r", Quota::per_minute(2))]);
    for limit in [r#""r";r=1;t=30"#, r#""r";r=0;t=30"#, r#""r";r=0;t=30"#] {
        let reply = app.get("/").await;
        assert_eq!(reply.field("ratelimit-policy"), Some(r#""r";q=2;w=60"#));
        assert_eq!(reply.field("ratelimit"), Some(limit));
    }
    // While nothing is left, the wait is never zero.
    app.clock.advance(millis(29_999));
    let reply = app.get("/").await;
    assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(reply.field("ratelimit"), Some(r#""r";r=0;t=1"#));
    assert_eq!(reply.field("retry-after"), Some("1"));
}

#[tokio::test]
async fn a_denial_lists_the_rules_that_do_not_deny_as_well() {
    let app = app([global("wide", Quota::per_minute(60)), global("narrow", Quota::per_hour(1))]);
    app.get("/").await;
    app.clock.advance(secs(60));
    let reply = app.get("/").await;
    assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(reply.lines("ratelimit-policy"), [r#""wide";q=60;w=60"#, r#""narrow";q=1;w=3600"#]);
    assert_eq!(reply.lines("ratelimit"), [r#""wide";r=60"#, r#""narrow";r=0;t=3540"#]);
    assert_eq!(reply.field("retry-after"), Some("3540"));
}

#[tokio::test]
async fn a_denial_for_a_missing_key_names_the_rule_that_wants_it() {
    let app = app([
        global("all", Quota::per_minute(60)),
        Rule::new("user", Quota::per_minute(5)).key(key::header("x-user")).on_missing_key(MissingKey::Deny),
    ]);
    let reply = app.get("/").await;
    assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS);
    let names = |field| parse(&reply, field).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names("ratelimit"), names("ratelimit-policy"));
    assert_eq!(names("ratelimit"), ["user"]);
    assert_eq!(reply.field("ratelimit-policy"), Some(r#""user";q=5;w=60"#));
}

/// The same as for an admitted request.
#[tokio::test]
async fn a_denial_for_a_missing_key_tells_the_limit_of_the_callers_tier() {
    let rule = || {
        let rule = Rule::new("r", Quota::per_minute(60)).key(key::header("x-user"));
        rule.tier("pro", Quota::per_minute(600)).on_missing_key(MissingKey::Deny)
    };
    for (rule, limit) in [
        (rule().tier_by(|_| "pro"), 600),
        (rule().tier_by_async(|_| async { "pro" }), 600),
        (rule().tier_by(|_| Quota::per_minute(7)), 7),
        (rule().tier_by(|_| "unknown"), 60),
    ] {
        let app = app([rule]);
        let policy = format!(r#""r";q={limit};w=60"#);
        for (request, remaining) in [(get("/"), limit), (get("/").header("x-user", "alice"), limit - 1)] {
            let reply = app.send(request).await;
            assert_eq!(
                reply.trio().map(|(limit, remaining, _)| (limit, remaining)),
                Some((limit, remaining))
            );
            assert_eq!(reply.field("ratelimit-policy"), Some(&*policy));
        }
    }
}

#[tokio::test]
async fn a_callers_tier_is_the_policy_that_it_is_told() {
    let rule = global("r", Quota::per_minute(60)).tier("pro", Quota::per_minute(600));
    let app = app([rule.tier_by(|head| match head.path() {
        "/pro" => ratekeeper::TierChoice::from("pro"),
        "/own" => Quota::per_hour(7).into(),
        _ => ratekeeper::TierChoice::Default,
    })]);
    for (path, policy) in
        [("/", r#""r";q=60;w=60"#), ("/pro", r#""r";q=600;w=60"#), ("/own", r#""r";q=7;w=3600"#)]
    {
        assert_eq!(app.get(path).await.field("ratelimit-policy"), Some(policy));
    }
}

#[tokio::test]
async fn every_name_that_a_rule_can_have_can_be_parsed() {
    let name: String = (b'!'..=b'~').map(char::from).filter(|c| !"\"\\".contains(*c)).collect();
    for name in [&name[..60], &name[60..]] {
        let reply = app([global(name, Quota::per_minute(60))]).get("/").await;
        assert_eq!(parse(&reply, "ratelimit")[0].0, name);
        assert_eq!(parse(&reply, "ratelimit-policy")[0].0, name);
    }
}

#[tokio::test]
async fn both_families_can_be_sent_at_once_or_each_alone_or_none() {
    for (legacy, ietf) in [(true, true), (true, false), (false, true), (false, false)] {
        let app = App::with([global("r", Quota::per_minute(1))], |layer| {
            let layer = layer.x_ratelimit_headers(legacy);
            if ietf { layer.ietf_headers(IetfDraft::Draft11) } else { layer }
        });
        for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
            let reply = app.send(get("/")).await;
            assert_eq!(reply.status(), status);
            assert_eq!(reply.trio().is_some(), legacy);
            assert_eq!(reply.field("ratelimit").is_some(), ietf);
            assert_eq!(reply.field("ratelimit-policy").is_some(), ietf);
            // Never under a name from an earlier draft, where it would mean something else.
            assert_eq!(reply.field("ratelimit-reset"), None);
        }
    }
}
