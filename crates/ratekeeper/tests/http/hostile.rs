//! Hostile requests.

use http::{HeaderName, HeaderValue, Request};
use ratekeeper::key::{self, KeyExtractor, TrustedProxies};
use ratekeeper::{IetfDraft, Quota, Rule};

use crate::support::{App, RequestExt, get};

const FIELDS: [&str; 7] =
    ["x-forwarded-for", "forwarded", "cf-connecting-ip", "cookie", "authorization", "x-api-key", "origin"];

/// A rule for every kind of key.
fn app() -> App {
    let trusted = || TrustedProxies::networks(["0.0.0.0/0", "::/0"]).unwrap();
    let rule = |name: &str, key: &dyn Fn(Rule) -> Rule| key(Rule::new(name, Quota::per_second(1_000_000)));
    fn by(key: impl KeyExtractor + Clone) -> impl Fn(Rule) -> Rule {
        move |rule| rule.key(key.clone())
    }
    App::with(
        [
            rule("peer", &by(key::peer_ip())),
            rule("networks", &by(key::client_ip(trusted()))),
            rule("hops", &by(key::client_ip(TrustedProxies::hops(usize::MAX)))),
            rule("forwarded", &by(key::client_ip(trusted().in_forwarded()))),
            rule("field", &by(key::client_ip(trusted().in_field("cf-connecting-ip")))),
            rule("cookie", &by(key::cookie("session"))),
            rule("bearer", &by(key::bearer())),
            rule("header", &by(key::header("x-api-key").secret())),
            rule("path", &by(key::path())),
            rule("param", &|rule| rule.on_path("/{a}/{*rest}").key(key::path_param("rest"))),
            rule("route", &by(key::route())),
        ],
        |layer| layer.ietf_headers(IetfDraft::Draft11),
    )
}

async fn survives(app: &App, request: Request<()>) {
    let shown = format!("{request:?}");
    let status = app.send(request.peer("10.0.0.1")).await.status();
    assert!(!status.is_server_error(), "{status} {shown}");
}

#[tokio::test]
async fn eight_kilobytes_of_anything_in_any_field_do_no_harm() {
    let app = app();
    for piece in [
        "a",
        ",",
        ";",
        "=",
        "\"",
        "\\",
        "[",
        "]",
        ":",
        "%",
        " ",
        "\t",
        ", ",
        "for=",
        "for=\"",
        "for=1.2.3.4,",
        "1.2.3.4,",
        "::1,",
        "::",
        "[::1]:80, ",
        "session=",
        "session=;",
        "session",
        "Bearer ",
        "%00",
        "\\\"",
        "for=\"\\\"\\\"\",",
        "999999999999",
        "é",
        "unknown, ",
        "10.0.0.1:99999,",
    ] {
        let value = piece.repeat(8_192 / piece.len());
        for field in FIELDS {
            survives(&app, get("/").header(field, &value)).await;
            // Also in many lines.
            let lines = value.as_bytes().chunks(64).take(100);
            survives(&app, lines.fold(get("/"), |request, line| request.header(field, line))).await;
        }
    }
}

#[tokio::test]
async fn eight_kilobytes_of_path_do_no_harm() {
    let app = app();
    for piece in ["/", "a", "/a", "%", "%2F", "/%", "%FF", "/..", "{", "*", "//a/b", "%25", ";", "/:x", "é"]
    {
        let path = format!("/{}", piece.repeat(8_192 / piece.len()));
        if let Ok(request) = Request::builder().uri(&path).body(()) {
            survives(&app, request).await;
        }
    }
    for uri in ["*", "http://example.com", "https://example.com/a?b#c", "example.com:443"] {
        survives(&app, Request::builder().uri(uri).body(()).unwrap()).await;
    }
}

#[tokio::test]
async fn any_bytes_in_any_field_do_no_harm() {
    let app = app();
    // Bytes that the parsers look for occur often.
    let alphabet = b"0123456789abcdef.:,;=\"\\[]%_ fort\xc3\xa9\xff\t";
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    for _ in 0..3_000 {
        let mut request = get("/");
        for _ in 0..1 + random() % 3 {
            let field = FIELDS[random() % FIELDS.len()];
            let value: Vec<u8> = (0..random() % 60).map(|_| alphabet[random() % alphabet.len()]).collect();
            let value = HeaderValue::from_bytes(&value).unwrap();
            request.headers_mut().append(HeaderName::from_static(field), value);
        }
        survives(&app, request).await;
    }
}

#[tokio::test]
async fn a_flood_of_made_up_keys_takes_no_more_room_than_the_store_has() {
    let clock = crate::support::clock();
    let store = ratekeeper::MemoryStore::builder().clock(clock).max_keys(100).build();
    let rule = Rule::new("r", Quota::per_minute(5)).key(key::header("x-user"));
    let limiter = ratekeeper::Limiter::builder().store(store.clone()).rule(rule).build().unwrap();
    let app = App::over(&ratekeeper::RateLimitLayer::new(limiter), crate::support::ok);
    for n in 0..10_000 {
        app.send(get("/").header("x-user", format!("{n}"))).await;
    }
    assert!(store.len() <= 100, "{}", store.len());
}
