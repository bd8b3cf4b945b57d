//! Rules that hold requests back instead of denying them, with each algorithm.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join_all, join5};
use http::StatusCode;
use ratekeeper::{Key, Limiter, MINUTE, Quota, Retry, Rule, Tier, key};
use tokio::time::Instant;

use crate::support::held::{Queue, call, entries, logged, memory, queue, queue_of};
use crate::support::{ReplyExt, START, millis, secs};

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
async fn every_algorithm_holds_back_for_as_long_as_it_takes() {
    // The clock starts a quarter into a second, so a window of one second ends after 750 ms.
    assert_eq!(START.as_micros() % 1_000_000, 250_000);
    for (quota, waits) in [
        (Quota::token_bucket(2, secs(1)), [0, 0, 500, 1_000]),
        (Quota::fixed_window(2, secs(1)), [0, 0, 750, 750]),
        // One of two is gone when half of the next window is over, and the other at its end.
        (Quota::sliding_window(2, secs(1)), [0, 0, 1_250, 1_750]),
        (Quota::sliding_log(2, secs(1)), [0, 0, 1_000, 1_000]),
        // Two are in the queue, so the third waits for a place, and then in the queue.
        (Quota::leaky_bucket(2, secs(1)).capacity(2), [0, 500, 1_000, 1_500]),
    ] {
        let rule = Rule::new("rule", quota).key(key::global()).hold_up_to(secs(2));
        let (mut queue, log) = self::queue([rule]);
        assert_eq!(statuses(&mut queue, &["/a", "/b", "/c", "/d"]).await, [200; 4], "{quota}");
        let came: Vec<_> = logged(&log).into_iter().map(|(_, at)| at).collect();
        assert_eq!(came, waits, "{quota}");
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
async fn one_that_goes_away_leaves_the_line_at_once_and_has_cost_nothing() {
    let (mut queue, log) = queue([smoothed()]);
    let limiter = queue.limiter().clone();
    let mut waiting = Vec::new();
    for path in ["/a", "/b", "/c", "/d"] {
        let mut reply = Box::pin(call(&mut queue, path).await);
        let _ = (&mut reply).now_or_never();
        waiting.push(reply);
    }
    assert_eq!(limiter.waiting(), 3);
    // The one at the head, and one in the middle.
    drop(waiting.remove(1));
    drop(waiting.remove(1));
    assert_eq!(limiter.waiting(), 1);
    assert_eq!(waiting.pop().unwrap().await.unwrap().status(), StatusCode::OK);
    assert_eq!(logged(&log), entries(&[("/a", 0), ("/d", 100)]));
    assert_eq!(limiter.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_line_that_everybody_has_left_is_forgotten() {
    let (mut queue, log) = queue([smoothed()]);
    assert_eq!(statuses(&mut queue, &["/a", "/b"]).await, [200; 2]);
    tokio::time::sleep(secs(1)).await;
    assert_eq!(statuses(&mut queue, &["/c"]).await, [200]);
    assert_eq!(logged(&log), entries(&[("/a", 0), ("/b", 100), ("/c", 1_100)]));
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
async fn closing_refuses_those_who_wait_with_the_time_they_would_have_had_to_wait() {
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
    let (a, b, c) = (a.unwrap(), b.unwrap(), c.unwrap());
    assert_eq!(a.status(), StatusCode::OK);
    assert_eq!((b.status(), b.field("retry-after")), (StatusCode::TOO_MANY_REQUESTS, Some("20")));
    // This one never came to ask the store.
    assert_eq!((c.status(), c.field("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, Some("1")));
    assert_eq!(logged(&log), entries(&[("/a", 0)]));
    // From here on no request waits.
    let refused = call(&mut queue, "/d").await.now_or_never().unwrap().unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test(start_paused = true)]
async fn who_is_still_behind_others_when_the_time_is_over_is_refused_then() {
    // A window of a second holds two, and the next one begins after 750 ms; but a request that does not wait
    // takes it.
    let rule =
        Rule::new("window", Quota::fixed_window(2, secs(1))).key(key::global()).hold_up_to(millis(900));
    let (mut queue, log) = queue([rule]);
    let limiter = queue.limiter().clone();
    let (a, b) = (call(&mut queue, "/a").await, call(&mut queue, "/b").await);
    let (c, d) = (call(&mut queue, "/c").await, call(&mut queue, "/d").await);
    let thief = async {
        tokio::time::sleep(millis(750)).await;
        // In the same millisecond, ahead of those that wait.
        limiter.charge("window", Key::GLOBAL).cost(2).await.unwrap().is_admitted()
    };
    let start = Instant::now();
    let (stolen, a, b, c, d) = join5(thief, a, b, c, d).await;
    assert!(stolen);
    let statuses = [a, b, c, d].map(|reply| reply.unwrap().status().as_u16());
    assert_eq!(statuses, [200, 200, 429, 429]);
    assert!(start.elapsed() <= millis(900), "{:?}", start.elapsed());
    assert_eq!(logged(&log), entries(&[("/a", 0), ("/b", 0)]));
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

/// A tier that waits for longer, or has another quota, does not get the answer that another tier got.
#[tokio::test(start_paused = true)]
async fn a_tier_is_not_told_what_another_was_told() {
    let tier = |head: &ratekeeper::RequestHead<'_>| match head.path() {
        "/patient" => Some("patient"),
        "/larger" => Some("larger"),
        _ => None,
    };
    let patient = Tier::from(Quota::token_bucket(1, MINUTE)).hold_up_to(secs(300));
    let rules = [
        Rule::new("first", Quota::token_bucket(1, secs(10))).key(key::global()).hold_up_to(secs(300)),
        Rule::new("second", Quota::token_bucket(1, MINUTE))
            .key(key::global())
            .when(|head| head.path() != "/first")
            .tier("patient", patient)
            .tier("larger", Quota::token_bucket(2, MINUTE))
            .tier_by(tier),
    ];
    let (mut queue, _) = queue(rules);
    assert_eq!(statuses(&mut queue, &["/"]).await, [200]);
    let first = call(&mut queue, "/first").await;
    // There is a line, and the second rule denies.
    let denied = call(&mut queue, "/").await.now_or_never().expect("it does not wait").unwrap();
    assert_eq!((denied.status().as_u16(), denied.field("x-ratelimit-limit")), (429, Some("1")));
    let larger = call(&mut queue, "/larger").await;
    assert!(larger.now_or_never().is_none(), "it has one left, and waits for the first rule");
    let patient = call(&mut queue, "/patient").await;
    assert!(patient.now_or_never().is_none());
    drop(first);
}

/// One rule has a line, and another one, which nobody waits for, denies for a moment.
async fn denied_for_a_moment() -> Queue {
    let slow = Rule::new("slow", Quota::token_bucket(1, secs(10)).burst(1));
    let brief = Rule::new("brief", Quota::token_bucket(5, secs(1)).burst(5)).key(key::global());
    let (mut queue, _) = queue([slow.on_path("/slow").key(key::global()).hold_up_to(secs(60)), brief]);
    assert_eq!(call(&mut queue, "/slow").await.await.unwrap().status(), StatusCode::OK);
    tokio::spawn(call(&mut queue, "/slow").await);
    tokio::task::yield_now().await;
    while call(&mut queue, "/other").await.await.unwrap().status() == StatusCode::OK {}
    queue
}

/// A denial is remembered for those who want the same, but no longer than it lasts.
#[tokio::test(start_paused = true)]
async fn who_comes_when_a_denial_is_over_is_not_denied_from_memory() {
    let mut queue = denied_for_a_moment().await;
    for wait in [200, 150, 50] {
        let denied = call(&mut queue, "/slow").await.now_or_never().expect("it is denied at once").unwrap();
        let brief = *denied.decision().outcome("brief").unwrap();
        assert_eq!(brief.retry(), Some(Retry::After(millis(wait))), "as of now, whoever asked first");
        tokio::time::sleep(millis(if wait == 200 { 50 } else { 100 })).await;
    }
    tokio::time::sleep(millis(1)).await;
    assert!(call(&mut queue, "/slow").await.now_or_never().is_none(), "it waits in line");
}

/// Nor if what was used comes back before that.
#[tokio::test(start_paused = true)]
async fn a_reset_is_heard_of_by_those_whom_a_rule_without_a_line_denied() {
    let mut queue = denied_for_a_moment().await;
    assert!(call(&mut queue, "/slow").await.now_or_never().is_some(), "it is denied at once");
    queue.limiter().reset("brief", Key::GLOBAL).await.unwrap();
    assert!(call(&mut queue, "/slow").await.now_or_never().is_none(), "it waits in line");
}
