//! What takes minutes and hours, with a manual clock; and what happens at once, exactly at once.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use futures_util::future::join_all;
use http_body_util::BodyExt;
use ratekeeper::{ManualClock, Timestamp};
use tower::ServiceExt;

use super::*;

const RIGHT: &str = "correct-horse";
const WRONG: &str = "incorrect-horse";

/// An app with a clock that stands still. Tokio's clock is paused: passwords take no time, but are checked
/// only when nothing else is left to do.
struct World {
    clock: ManualClock,
    app: Router,
}

impl World {
    fn new() -> Self {
        let clock = ManualClock::new(Timestamp::from_secs(20_000 * 86_400));
        let app = app(MemoryStore::builder().clock(clock.clone()).build()).unwrap();
        Self { clock, app }
    }

    async fn send(&self, peer: u8, body: String) -> Answer {
        let request = Request::post("/login").header("content-type", "application/x-www-form-urlencoded");
        let mut request = request.body(Body::from(body)).unwrap();
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([192, 0, 2, peer], 1234))));
        let (head, body) = self.app.clone().oneshot(request).await.unwrap().into_parts();
        let number =
            |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap().parse().unwrap());
        Answer {
            status: head.status.as_u16(),
            remaining: number("x-ratelimit-remaining"),
            retry_after: number("retry-after"),
            body: String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap(),
        }
    }

    async fn login(&self, peer: u8, account: &str, password: &str) -> Answer {
        self.send(peer, format!("account={account}&password={password}")).await
    }

    /// Fifty logins at once: their statuses, in ascending order.
    async fn crowd(&self, password: &str) -> Vec<u16> {
        let crowd = join_all((0..50).map(|_| self.login(1, "alice", password))).await;
        let mut statuses: Vec<_> = crowd.iter().map(|answer| answer.status).collect();
        statuses.sort_unstable();
        statuses
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    remaining: Option<u64>,
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

#[tokio::test(start_paused = true)]
async fn five_guesses_in_any_minute_and_then_not_even_the_right_one() {
    let world = World::new();
    for second in 0..5 {
        assert_eq!(world.login(1, "alice", WRONG).await.status, 401, "{second}");
        world.clock.advance(Duration::from_secs(1));
    }
    world.login(1, "alice", WRONG).await.is_denied_by("guesses", 55);
    world.login(1, "alice", RIGHT).await.is_denied_by("guesses", 55);

    world.clock.advance(Duration::from_micros(54_999_999));
    assert_eq!(world.login(1, "alice", RIGHT).await.status, 429);
    world.clock.advance(Duration::from_micros(1));
    let welcome = world.login(1, "alice", RIGHT).await;
    assert_eq!((welcome.status, &*welcome.body), (200, "welcome, alice\n"));
    assert_eq!(world.login(1, "alice", WRONG).await.status, 401);
    world.login(1, "alice", WRONG).await.is_denied_by("guesses", 1);
}

#[tokio::test(start_paused = true)]
async fn who_knows_the_password_is_never_denied() {
    let world = World::new();
    for _ in 0..200 {
        let welcome = world.login(1, "alice", RIGHT).await;
        assert_eq!((welcome.status, welcome.remaining), (200, Some(4)), "{welcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_is_locked_out_by_others() {
    let world = World::new();
    while world.login(1, "alice", WRONG).await.status == 401 {}
    assert_eq!(world.login(2, "alice", RIGHT).await.status, 200);
    assert_eq!(world.login(1, "bob", "battery-staple").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn an_account_that_is_spelt_otherwise_is_the_same() {
    let world = World::new();
    for name in ["alice", "ALICE", "+Alice", "alice%20%09", "%61lice"] {
        assert_eq!(world.login(1, name, WRONG).await.status, 401, "{name}");
    }
    world.login(1, "aLiCe", RIGHT).await.is_denied_by("guesses", 60);
    assert_eq!(world.login(2, "+ALICE", RIGHT).await.body, "welcome, alice\n");
}

#[tokio::test(start_paused = true)]
async fn accounts_that_nobody_has_look_like_others() {
    let world = World::new();
    for turn in 0..6 {
        let answers = [world.login(1, "alice", WRONG).await, world.login(2, "mallory", WRONG).await];
        let [one, other] = answers.map(|answer| format!("{answer:?}"));
        assert_eq!(one, other, "{turn}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_that_tries_many_accounts_is_stopped() {
    let world = World::new();
    for number in 0..100 {
        assert_eq!(world.login(1, &format!("user-{number}"), WRONG).await.status, 401, "{number}");
    }
    // It is the full hour, so the wait lasts until a hundredth of the next hour has passed.
    world.login(1, "user-100", WRONG).await.is_denied_by("accounts", 3_636);
    assert_eq!(world.login(2, "user-100", WRONG).await.status, 401);
}

#[tokio::test(start_paused = true)]
async fn fifty_at_once_have_five_guesses_all_the_same() {
    let world = World::new();
    let statuses = world.crowd(WRONG).await;
    assert_eq!((&statuses[..5], &statuses[5..]), (&[401; 5][..], &[429; 45][..]));
    // Denied logins were not counted: other accounts have the rest of the address's hundred.
    for number in 0..95 {
        assert_eq!(world.login(1, &format!("user-{number}"), WRONG).await.status, 401, "{number}");
    }
    assert_eq!(world.login(1, "user-95", WRONG).await.status, 429);
}

#[tokio::test(start_paused = true)]
async fn fifty_at_once_who_know_the_password_leave_nothing_counted() {
    let world = World::new();
    // Nobody knows yet that the passwords are right, so only five of them are checked.
    let statuses = world.crowd(RIGHT).await;
    assert_eq!((&statuses[..5], &statuses[5..]), (&[200; 5][..], &[429; 45][..]));
    assert_eq!(world.login(1, "alice", WRONG).await.remaining, Some(4));
}

#[tokio::test(start_paused = true)]
async fn what_is_no_login_is_refused_and_not_counted() {
    let world = World::new();
    let long = format!("account=alice&password={}", "a".repeat(credentials::MAX_LENGTH));
    for (body, status) in [("", 422), ("account=alice", 422), ("nonsense", 422), (&*long, 413)] {
        let answer = world.send(1, body.to_owned()).await;
        assert_eq!((answer.status, answer.remaining), (status, None), "{answer:?}");
    }
    assert_eq!(world.login(1, "alice", WRONG).await.remaining, Some(4));
}
