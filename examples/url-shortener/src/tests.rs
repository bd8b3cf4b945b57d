//! What takes hours and days, with a manual clock.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use http_body_util::BodyExt;
use ratekeeper::{ManualClock, Timestamp};
use tower::ServiceExt;

use super::*;

const ALICE: u64 = 1;
const BOB: u64 = 2;

/// An app at half past ten in the evening, with a clock that stands still.
struct World {
    clock: ManualClock,
    limiter: Limiter,
    app: Router,
}

impl World {
    fn new() -> Self {
        let clock = ManualClock::new(Timestamp::from_secs(20_000 * 86_400 + 81_000));
        let limiter = limiter(MemoryStore::builder().clock(clock.clone()).build()).unwrap();
        Self { clock, limiter: limiter.clone(), app: app(limiter) }
    }

    async fn send(&self, peer: u8, request: axum::http::request::Builder, body: &str) -> Answer {
        let peer = SocketAddr::from(([192, 0, 2, peer], 1234));
        let mut request: Request = request.body(Body::from(body.to_owned())).unwrap();
        request.extensions_mut().insert(ConnectInfo(peer));
        let response = self.app.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let retry_after = head.headers.get(header::RETRY_AFTER);
        Answer {
            status: head.status.as_u16(),
            retry_after: retry_after.map(|value| value.to_str().unwrap().parse().unwrap()),
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    async fn shorten(&self, peer: u8, key: &str, url: &str) -> Answer {
        let request = Request::post("/shorten").header("authorization", format!("Bearer {key}"));
        self.send(peer, request, url).await
    }

    async fn follow(&self, peer: u8, code: &str) -> Answer {
        self.send(peer, Request::get(format!("/{code}")), "").await
    }

    /// What is left for an account or an address.
    async fn left(&self, rule: &str, key: impl Into<ratekeeper::Key>) -> u32 {
        self.limiter.charge(rule, key).peek().await.unwrap().outcome(rule).unwrap().remaining()
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    retry_after: Option<u64>,
    body: String,
}

impl Answer {
    #[track_caller]
    fn is_denied_by(&self, rule: &str, retry_after: u64) {
        assert_eq!((self.status, self.retry_after), (429, Some(retry_after)), "{self:?}");
        assert!(self.body.contains(&format!(r#""rule":"{rule}""#)), "{self:?}");
    }
}

const URL: &str = "https://www.rust-lang.org/";

#[tokio::test]
async fn an_account_has_a_thousand_each_day_whatever_its_address() {
    let world = World::new();
    world.limiter.charge("shorten-account", ALICE).cost(998).await.unwrap();
    assert_eq!(world.shorten(1, "alice-key", URL).await.status, 201);
    assert_eq!(world.shorten(2, "alice-key", URL).await.status, 201);
    world.shorten(3, "alice-key", URL).await.is_denied_by("shorten-account", 5_400);
    assert_eq!(world.shorten(3, "bob-key", URL).await.status, 201);

    world.clock.advance(Duration::from_secs(5_400));
    assert_eq!(world.shorten(3, "alice-key", URL).await.status, 201);
}

#[tokio::test]
async fn a_premium_account_has_ten_thousand() {
    let world = World::new();
    world.limiter.charge("shorten-account", BOB).tier("premium").cost(9_999).await.unwrap();
    assert_eq!(world.shorten(1, "bob-key", URL).await.status, 201);
    world.shorten(1, "bob-key", URL).await.is_denied_by("shorten-account", 5_400);
}

#[tokio::test]
async fn an_address_has_a_hundred_an_hour_also_around_the_full_hour() {
    let world = World::new();
    world.clock.advance(Duration::from_secs(1_799));
    for _ in 0..100 {
        assert_eq!(world.shorten(1, "bob-key", URL).await.status, 201);
    }
    // Until a hundredth of the next hour has passed.
    world.shorten(1, "bob-key", URL).await.is_denied_by("shorten-address", 37);
    assert_eq!(world.shorten(2, "bob-key", URL).await.status, 201);

    world.clock.advance(Duration::from_secs(36));
    assert_eq!(world.shorten(1, "bob-key", URL).await.status, 429);
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(world.shorten(1, "bob-key", URL).await.status, 201);
    assert_eq!(world.shorten(1, "bob-key", URL).await.status, 429);
}

#[tokio::test]
async fn links_are_followed_in_bursts_and_then_steadily() {
    let world = World::new();
    for _ in 0..1_000 {
        assert_eq!(world.follow(1, "nowhere").await.status, 404);
    }
    world.follow(1, "nowhere").await.is_denied_by("follow", 1);
    assert_eq!(world.follow(2, "nowhere").await.status, 404);
    world.clock.advance(Duration::from_millis(60));
    assert_eq!(world.follow(1, "nowhere").await.status, 404);
    assert_eq!(world.follow(1, "nowhere").await.status, 429);
}

#[tokio::test]
async fn what_is_not_a_web_address_counts_for_the_address_but_not_for_the_account() {
    let world = World::new();
    let too_long = format!("https://example.com/{}", "a".repeat(MAX_LENGTH));
    for (body, status) in [("nonsense", 400), ("", 400), ("/1", 400), (&*too_long, 413)] {
        assert_eq!(world.shorten(1, "alice-key", body).await.status, status, "{body}");
    }
    assert_eq!(world.left("shorten-account", ALICE).await, 1_000);
    let address = std::net::IpAddr::from([192, 0, 2, 1]);
    assert_eq!(world.left("shorten-address", address).await, 96);
}

#[tokio::test]
async fn trying_keys_counts_for_the_address() {
    let world = World::new();
    for guess in 0..100 {
        assert_eq!(world.shorten(1, &format!("guess-{guess}"), URL).await.status, 401);
    }
    // Not even with the right one.
    assert_eq!(world.shorten(1, "alice-key", URL).await.status, 429);
    assert_eq!(world.left("shorten-account", ALICE).await, 1_000);
}
