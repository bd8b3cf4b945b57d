//! Rules that hold requests back instead of denying them.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use http::StatusCode;
use ratekeeper::{Limiter, MINUTE, Quota, Rule, Tier, key};
use tokio::time::Instant;

use crate::support::held::{Queue, call, entries, logged, memory, queue, queue_of};
use crate::support::{ReplyExt, millis, secs};

/// One every 100 ms globally, held back for up to half a second.
fn smoothed() -> Rule {
    Rule::new("smooth", Quota::token_bucket(1, millis(100))).key(key::global()).hold_up_to(millis(500))
}

/// The statuses of these calls, made one after the other at the same moment.
async fn statuses(queue: &mut Queue, paths: &[&str]) -> Vec<u16> {
    let mut replies = Vec::new();
    for path in paths {
        replies.push(call(queue, path).await);
    }
    join_all(replies).await.into_iter().map(|reply| reply.unwrap().status().as_u16()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_holds_back_smooths_and_refuses_at_once_what_would_take_too_long() {
    let (mut queue, log) = queue([smoothed()]);
    let start = Instant::now();
    let mut replies = Vec::new();
    for path in ["/a", "/b", "/c", "/d", "/e", "/f"] {
        replies.push(call(&mut queue, path).await);
    }
    // The seventh would have to wait for 600 ms.
    let refused = call(&mut queue, "/g").await.now_or_never().expect("it is refused at once").unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!((start.elapsed(), refused.field("retry-after")), (Duration::ZERO, Some("1")));
    for reply in join_all(replies).await {
        assert_eq!(reply.unwrap().status(), StatusCode::OK);
    }
    let expected = [("/a", 0), ("/b", 100), ("/c", 200), ("/d", 300), ("/e", 400), ("/f", 500)];
    assert_eq!(logged(&log), entries(&expected));
}

#[tokio::test(start_paused = true)]
async fn both_buckets_hold_back_for_as_long_as_it_takes() {
    for (quota, hold, statuses, times) in [
        (Quota::token_bucket(2, secs(1)), secs(2), [200; 4], &[0, 0, 500, 1_000][..]),
        // Two fit into the queue, however long a request would wait.
        (Quota::leaky_bucket(2, secs(1)).capacity(2), secs(2), [200, 200, 429, 429], &[0, 500]),
        // The queue has room, but the request would wait for longer than its rule allows.
        (Quota::leaky_bucket(2, secs(1)).capacity(9), secs(1), [200, 200, 200, 429], &[0, 500, 1_000]),
    ] {
        let rule = Rule::new("rule", quota).key(key::global()).hold_up_to(hold);
        let (mut queue, log) = self::queue([rule]);
        assert_eq!(self::statuses(&mut queue, &["/a", "/b", "/c", "/d"]).await, statuses, "{quota}");
        let came: Vec<_> = logged(&log).into_iter().map(|(_, at)| at).collect();
        assert_eq!(came, times, "{quota}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_comes_while_others_wait_goes_to_the_end_of_their_line() {
    let (mut queue, log) = queue([smoothed()]);
    let (a, b, c) =
        (call(&mut queue, "/a").await, call(&mut queue, "/b").await, call(&mut queue, "/c").await);
    let late = async {
        // At this moment there is budget for one, but it belongs to `/b`.
        tokio::time::sleep(millis(100)).await;
        call(&mut queue, "/late").await.await
    };
    let _ = tokio::join!(late, c, b, a);
    assert_eq!(logged(&log), entries(&[("/a", 0), ("/b", 100), ("/c", 200), ("/late", 300)]));
}

#[tokio::test(start_paused = true)]
async fn keys_wait_in_lines_of_their_own() {
    let rule = Rule::new("rule", Quota::token_bucket(1, secs(1))).key(key::path()).hold_up_to(secs(2));
    let (mut queue, log) = queue([rule]);
    assert_eq!(statuses(&mut queue, &["/a", "/a", "/b", "/b", "/c"]).await, [200; 5]);
    let expected = [("/a", 0), ("/b", 0), ("/c", 0), ("/a", 1_000), ("/b", 1_000)];
    assert_eq!(logged(&log), entries(&expected));
}

#[tokio::test(start_paused = true)]
async fn one_that_goes_away_gives_back_what_it_took_and_those_behind_keep_their_delays() {
    let (mut queue, log) = queue([smoothed()]);
    let limiter = queue.limiter().clone();
    let mut waiting = Vec::new();
    for path in ["/a", "/b", "/c", "/d"] {
        let mut reply = Box::pin(call(&mut queue, path).await);
        let _ = (&mut reply).now_or_never();
        waiting.push(reply);
    }
    assert_eq!(limiter.waiting(), 3);
    drop(waiting.remove(1));
    drop(waiting.remove(1));
    assert_eq!(limiter.waiting(), 1);
    // What the two have given back is there for the next.
    let next = call(&mut queue, "/e").await;
    let (last, next) = tokio::join!(waiting.pop().unwrap(), next);
    assert_eq!((last.unwrap().status(), next.unwrap().status()), (StatusCode::OK, StatusCode::OK));
    assert_eq!(logged(&log), entries(&[("/a", 0), ("/e", 200), ("/d", 300)]));
    assert_eq!(limiter.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn those_who_cost_more_are_not_overtaken() {
    let rule = Rule::new("rule", Quota::token_bucket(10, secs(1)))
        .key(key::global())
        .cost_by(|head| head.path().trim_start_matches('/').parse().unwrap())
        .hold_up_to(secs(5));
    let (mut queue, log) = queue([rule]);
    assert_eq!(statuses(&mut queue, &["/10", "/9", "/1", "/2"]).await, [200; 4]);
    assert_eq!(logged(&log), entries(&[("/10", 0), ("/9", 900), ("/1", 1_000), ("/2", 1_200)]));
}

#[tokio::test(start_paused = true)]
async fn what_can_never_be_admitted_is_not_waited_for() {
    let rule = Rule::new("rule", Quota::token_bucket(10, secs(1))).cost_by(|_| 11).hold_up_to(MINUTE);
    let (mut queue, _) = queue([rule]);
    let refused = call(&mut queue, "/").await.now_or_never().unwrap().unwrap();
    assert_eq!((refused.status(), refused.field("retry-after")), (StatusCode::TOO_MANY_REQUESTS, None));
}

#[tokio::test(start_paused = true)]
async fn a_tier_that_pays_is_smoothed_where_another_is_refused() {
    let quota = Quota::token_bucket(1, millis(100));
    let rule = Rule::new("api", quota)
        .key(key::path())
        .tier("pro", Tier::from(quota).hold_up_to(secs(1)))
        .tier_by(|head| head.path().starts_with("/pro").then_some("pro"));
    let (mut queue, log) = queue([rule]);
    assert_eq!(
        statuses(&mut queue, &["/free", "/free", "/pro", "/pro", "/pro"]).await,
        [200, 429, 200, 200, 200]
    );
    assert_eq!(logged(&log), entries(&[("/free", 0), ("/pro", 0), ("/pro", 100), ("/pro", 200)]));
}

#[tokio::test(start_paused = true)]
async fn a_quota_for_one_caller_alone_can_hold_back_too() {
    let quota = Quota::token_bucket(1, millis(100));
    let rule =
        Rule::new("api", quota).key(key::global()).tier_by(move |_| Tier::from(quota).hold_up_to(secs(1)));
    let (mut queue, _) = queue([rule]);
    assert_eq!(statuses(&mut queue, &["/", "/", "/"]).await, [200; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_refuses_is_not_waited_for_and_nothing_is_charged() {
    let strict = Rule::new("strict", Quota::fixed_window(1, MINUTE)).key(key::global());
    let (mut queue, _) = queue([smoothed(), strict]);
    assert_eq!(statuses(&mut queue, &["/a", "/b"]).await, [200, 429]);
    assert_eq!(queue.limiter().waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_with_two_rules_waits_until_both_admit_and_pays_once() {
    let other =
        Rule::new("other", Quota::token_bucket(1, millis(250))).key(key::global()).hold_up_to(secs(2));
    let (mut queue, log) = queue([smoothed(), other]);
    assert_eq!(statuses(&mut queue, &["/a", "/b", "/c"]).await, [200; 3]);
    assert_eq!(logged(&log), entries(&[("/a", 0), ("/b", 250), ("/c", 500)]));
}

#[tokio::test(start_paused = true)]
async fn lines_that_cross_do_not_lock_each_other() {
    // Each request waits in two lines, in either order.
    let left = Rule::new("left", Quota::token_bucket(1, millis(100)))
        .key(key::from_fn(|head| head.path().get(1..2).map(str::to_owned)))
        .hold_up_to(secs(30));
    let right = Rule::new("right", Quota::token_bucket(1, millis(100)))
        .key(key::from_fn(|head| head.path().get(2..3).map(str::to_owned)))
        .hold_up_to(secs(30));
    let (mut queue, log) = queue([left, right]);
    let paths = ["/ab", "/ba", "/aa", "/bb", "/ab", "/ba", "/bb", "/aa"];
    assert_eq!(statuses(&mut queue, &paths).await, [200; 8]);
    assert_eq!(logged(&log).len(), 8);
}

#[tokio::test(start_paused = true)]
async fn whoever_finds_no_room_behind_others_is_answered_at_once() {
    let (mut queue, _) = queue_of(Limiter::builder().store(memory()).rule(smoothed()).max_waiting(1));
    let (a, b) = (call(&mut queue, "/a").await, call(&mut queue, "/b").await);
    let mut b = Box::pin(b);
    assert!((&mut b).now_or_never().is_none());
    let refused = call(&mut queue, "/full").await.now_or_never().unwrap().unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    let _ = tokio::join!(a, b);
}

#[tokio::test(start_paused = true)]
async fn closing_releases_those_who_wait_and_they_have_paid_nothing() {
    let rule = Rule::new("slow", Quota::token_bucket(1, secs(20))).key(key::global()).hold_up_to(MINUTE);
    let (mut queue, log) = queue([rule]);
    let limiter = queue.limiter().clone();
    let (a, b, c) =
        (call(&mut queue, "/a").await, call(&mut queue, "/b").await, call(&mut queue, "/c").await);
    let closing = async {
        tokio::time::sleep(secs(1)).await;
        limiter.close();
    };
    let start = Instant::now();
    let (a, b, c, ()) = tokio::join!(a, b, c, closing);
    assert_eq!(start.elapsed(), secs(1));
    assert_eq!(a.unwrap().status(), StatusCode::OK);
    for released in [b, c] {
        let released = released.unwrap();
        assert_eq!(
            (released.status(), released.field("retry-after")),
            (StatusCode::SERVICE_UNAVAILABLE, Some("1"))
        );
    }
    assert_eq!(logged(&log), entries(&[("/a", 0)]));
    // From here on no request waits.
    let refused = call(&mut queue, "/d").await.now_or_never().unwrap().unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    tokio::time::sleep(secs(19)).await;
    assert_eq!(call(&mut queue, "/e").await.await.unwrap().status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_is_not_over_its_limit_does_not_say_how_long_is_waited() {
    let slow = Rule::new("slow", Quota::token_bucket(1, secs(1))).key(key::global()).hold_up_to(secs(10));
    let quick = Rule::new("quick", Quota::per_second(100)).key(key::global()).hold_up_to(millis(100));
    let (mut queue, log) = queue([slow, quick]);
    assert_eq!(statuses(&mut queue, &["/a", "/b", "/c"]).await, [200; 3]);
    assert_eq!(logged(&log), entries(&[("/a", 0), ("/b", 1_000), ("/c", 2_000)]));
}

/// A request that another rule denies is denied immediately even while others wait, and takes no place in the
/// line.
#[tokio::test(start_paused = true)]
async fn who_is_denied_by_another_rule_does_not_wait_in_a_line() {
    let each = Rule::new("each", Quota::per_hour(2)).key(key::path());
    let (mut queue, log) =
        queue_of(Limiter::builder().store(memory()).rule(smoothed()).rule(each).max_waiting(3));
    let limiter = queue.limiter().clone();
    for _ in 0..2 {
        assert!(limiter.charge("each", "/flood").await.unwrap().is_admitted());
    }
    let (a, b) = (call(&mut queue, "/a").await, call(&mut queue, "/b").await);
    for _ in 0..10 {
        let denied = call(&mut queue, "/flood").await.now_or_never().expect("it is told at once").unwrap();
        assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(denied.field("x-ratelimit-limit"), Some("2"), "it is told by the rule that denies it");
    }
    assert_eq!(limiter.waiting(), 1);
    let c = call(&mut queue, "/c").await;
    for reply in join_all([a, b, c]).await {
        assert_eq!(reply.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(logged(&log), entries(&[("/a", 0), ("/b", 100), ("/c", 200)]));
}

/// Nor does a request whose cost never fits.
#[tokio::test(start_paused = true)]
async fn what_never_fits_does_not_wait_in_a_line_either() {
    let large = |head: &ratekeeper::RequestHead<'_>| if head.path() == "/large" { 3 } else { 1 };
    let each = Rule::new("each", Quota::per_hour(2)).key(key::path()).cost_by(large).hold_up_to(secs(9));
    for rules in [vec![smoothed(), each], vec![smoothed().cost_by(large)]] {
        let (mut queue, log) = queue(rules);
        let (a, b) = (call(&mut queue, "/a").await, call(&mut queue, "/b").await);
        let denied = call(&mut queue, "/large").await.now_or_never().expect("it is told at once").unwrap();
        assert_eq!((denied.status(), denied.field("retry-after")), (StatusCode::TOO_MANY_REQUESTS, None));
        let _ = tokio::join!(a, b);
        assert_eq!(logged(&log), entries(&[("/a", 0), ("/b", 100)]));
    }
}
