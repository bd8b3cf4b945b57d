//! Leaky buckets: requests are held back until it is their turn.

use futures_util::FutureExt;
use futures_util::future::join_all;
use http::StatusCode;
use ratekeeper::{Decision, Limiter, MINUTE, Quota, Rule, key};

use crate::support::held::{call, entries, logged, memory, queue, queue_of};
use crate::support::{ReplyExt, millis, secs};

/// A queue of three, of which one leaves each second.
fn of_three() -> Rule {
    Rule::new("queue", Quota::leaky_bucket(1, secs(1)).capacity(3)).key(key::global())
}

#[tokio::test(start_paused = true)]
async fn five_at_once_into_a_queue_of_three_leave_a_second_apart_and_two_are_denied() {
    let (mut queue, log) = queue([of_three()]);
    let mut replies = Vec::new();
    for path in ["/a", "/b", "/c", "/d", "/e"] {
        replies.push(call(&mut queue, path).await);
    }
    let replies = join_all(replies).await;
    let statuses: Vec<_> = replies.iter().map(|reply| reply.as_ref().unwrap().status().as_u16()).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    assert_eq!(logged(&log), entries(&[("/a", 0), ("/b", 1_000), ("/c", 2_000)]));
    let denied = replies[3].as_ref().unwrap();
    assert_eq!(denied.field("retry-after"), Some("1"));
    assert_eq!((denied.trio().unwrap().0, denied.trio().unwrap().1), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_first_leaves_first_however_they_are_polled() {
    let (mut queue, log) = queue([of_three()]);
    let mut replies = Vec::new();
    for path in ["/a", "/b", "/c"] {
        replies.push(call(&mut queue, path).await);
    }
    replies.reverse();
    join_all(replies).await;
    // The one that leaves immediately has left by the time it was called.
    assert_eq!(logged(&log), entries(&[("/a", 0), ("/b", 1_000), ("/c", 2_000)]));
}

#[tokio::test(start_paused = true)]
async fn those_who_come_no_faster_than_the_queue_drains_are_not_held_back() {
    let (mut queue, log) = queue([of_three()]);
    for n in 0..5 {
        assert_eq!(call(&mut queue, "/").await.await.unwrap().status(), StatusCode::OK);
        assert_eq!(logged(&log).len(), n + 1);
        tokio::time::sleep(secs(1)).await;
    }
    assert_eq!(logged(&log).last().unwrap().1, 4_000);
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_the_wait_is_waited_by_those_who_come_between() {
    let (mut queue, log) = queue([of_three()]);
    let first = call(&mut queue, "/a").await;
    tokio::time::sleep(millis(300)).await;
    let second = call(&mut queue, "/b").await;
    let _ = tokio::join!(first, second);
    assert_eq!(logged(&log), entries(&[("/a", 0), ("/b", 1_000)]));
}

#[tokio::test(start_paused = true)]
async fn a_held_request_is_told_of_its_delay_and_its_response_of_the_budget() {
    let (mut queue, _) = queue([of_three()]);
    let (first, second) = (call(&mut queue, "/a").await, call(&mut queue, "/b").await);
    first.await.unwrap();
    let reply = second.await.unwrap();
    let decision: &Decision = reply.extensions().get().unwrap();
    assert_eq!(decision.delay(), secs(1));
    assert_eq!((reply.trio().unwrap().0, reply.trio().unwrap().1), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn the_last_in_line_gives_its_place_back_when_it_goes_away() {
    let (mut queue, log) = queue([of_three()]);
    let a = call(&mut queue, "/a").await;
    let b = call(&mut queue, "/b").await;
    let c = call(&mut queue, "/c").await;
    assert_eq!(call(&mut queue, "/denied").await.await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    drop(c);
    let d = call(&mut queue, "/d").await;
    let _ = tokio::join!(a, b, d);
    assert_eq!(logged(&log), entries(&[("/a", 0), ("/b", 1_000), ("/d", 2_000)]));
}

#[tokio::test(start_paused = true)]
async fn one_with_others_behind_it_keeps_its_place_when_it_goes_away() {
    // Those behind it were told when to leave; a new request in its place would leave too close to them.
    let (mut queue, log) = queue([of_three()]);
    let a = call(&mut queue, "/a").await;
    let b = call(&mut queue, "/b").await;
    let c = call(&mut queue, "/c").await;
    drop(b);
    assert_eq!(call(&mut queue, "/denied").await.await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    let _ = tokio::join!(a, c);
    assert_eq!(logged(&log), entries(&[("/a", 0), ("/c", 2_000)]));
}

#[tokio::test(start_paused = true)]
async fn all_who_go_away_from_the_end_give_their_places_back() {
    let (mut queue, log) = queue([of_three()]);
    let a = call(&mut queue, "/a").await;
    let b = call(&mut queue, "/b").await;
    let c = call(&mut queue, "/c").await;
    tokio::time::sleep(millis(500)).await;
    drop(c);
    drop(b);
    let d = call(&mut queue, "/d").await;
    let e = call(&mut queue, "/e").await;
    let _ = tokio::join!(a, d, e);
    assert_eq!(logged(&log), entries(&[("/a", 0), ("/d", 1_000), ("/e", 2_000)]));
}

#[tokio::test(start_paused = true)]
async fn one_that_goes_away_after_its_turn_has_had_its_place() {
    let (mut queue, _) = queue([of_three()]);
    let a = call(&mut queue, "/a").await;
    let b = call(&mut queue, "/b").await;
    let mut b = Box::pin(b);
    assert!((&mut b).now_or_never().is_none());
    let _ = a.await;
    let _ = b.await;
    // Two left at 0 s and 1 s, so the next leaves at 2 s.
    let c = call(&mut queue, "/c").await;
    let reply = c.await.unwrap();
    let decision: &Decision = reply.extensions().get().unwrap();
    assert_eq!(decision.delay(), secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_place_is_taken_only_if_the_other_rules_admit_as_well() {
    let limit = Rule::new("limit", Quota::fixed_window(2, MINUTE)).key(key::global());
    let (mut queue, log) = queue([of_three(), limit]);
    let mut replies = Vec::new();
    for path in ["/a", "/b", "/c", "/d"] {
        replies.push(call(&mut queue, path).await);
    }
    join_all(replies).await;
    assert_eq!(logged(&log), entries(&[("/a", 0), ("/b", 1_000)]));
}

#[tokio::test(start_paused = true)]
async fn a_request_in_two_queues_waits_for_the_longer() {
    let slow = Rule::new("slow", Quota::leaky_bucket(1, secs(5)).capacity(3)).key(key::global());
    let (mut queue, log) = queue([of_three(), slow]);
    let mut replies = Vec::new();
    for path in ["/a", "/b", "/c"] {
        replies.push(call(&mut queue, path).await);
    }
    join_all(replies).await;
    assert_eq!(logged(&log), entries(&[("/a", 0), ("/b", 5_000), ("/c", 10_000)]));
}

#[tokio::test(start_paused = true)]
async fn queues_are_one_for_each_key() {
    let (mut queue, log) = queue([Rule::new("q", Quota::leaky_bucket(1, secs(1))).key(key::path())]);
    let (a, b) = (call(&mut queue, "/a").await, call(&mut queue, "/b").await);
    let _ = tokio::join!(a, b);
    assert_eq!(logged(&log), entries(&[("/a", 0), ("/b", 0)]));
    let reply = call(&mut queue, "/c").await.await.unwrap();
    assert_eq!(reply.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn whoever_finds_no_room_is_answered_at_once_and_takes_no_place() {
    let (mut queue, log) = queue_of(Limiter::builder().store(memory()).rule(of_three()).max_waiting(1));
    let (a, b) = (call(&mut queue, "/a").await, call(&mut queue, "/b").await);
    let refused = call(&mut queue, "/full").await.now_or_never().unwrap().unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.field("retry-after"), Some("1"));
    let _ = tokio::join!(a, b);
    // Its place was given back, and the next request gets it.
    let _ = call(&mut queue, "/c").await.await;
    assert_eq!(logged(&log), entries(&[("/a", 0), ("/b", 1_000), ("/c", 2_000)]));
}

#[tokio::test(start_paused = true)]
async fn closing_lets_go_those_who_are_held_back_and_nobody_else() {
    let (mut queue, log) = queue([of_three()]);
    let limiter = queue.limiter().clone();
    let (a, b, c) =
        (call(&mut queue, "/a").await, call(&mut queue, "/b").await, call(&mut queue, "/c").await);
    let closing = async {
        tokio::time::sleep(millis(300)).await;
        assert_eq!(limiter.waiting(), 2);
        limiter.close();
    };
    let start = tokio::time::Instant::now();
    let (a, b, c, ()) = tokio::join!(a, b, c, closing);
    assert_eq!(start.elapsed(), millis(300));
    assert_eq!(a.unwrap().status(), StatusCode::OK);
    for let_go in [b, c] {
        assert_eq!(let_go.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!(limiter.waiting(), 0);
    // A request that need not wait is served as usual.
    tokio::time::sleep(secs(3)).await;
    assert_eq!(call(&mut queue, "/late").await.await.unwrap().status(), StatusCode::OK);
    assert_eq!(logged(&log), entries(&[("/a", 0), ("/late", 3_300)]));
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_go_on_has_paid_no_other_rule() {
    let limit = Rule::new("limit", Quota::fixed_window(10, MINUTE)).key(key::global());
    let limiter = Limiter::builder().store(memory()).rules([of_three(), limit]).max_waiting(1);
    let (mut queue, _) = queue_of(limiter);
    let limiter = queue.limiter().clone();
    let left = || async {
        let peeked = limiter.charge("limit", key::Key::GLOBAL).peek().await.unwrap();
        peeked.outcome("limit").unwrap().remaining()
    };
    call(&mut queue, "/a").await.await.unwrap();
    let held = call(&mut queue, "/b").await;
    assert_eq!(left().await, 8);
    let refused = call(&mut queue, "/full").await.await.unwrap();
    assert_eq!((refused.status(), left().await), (StatusCode::SERVICE_UNAVAILABLE, 8));
    // The client goes away.
    drop(held);
    assert_eq!(left().await, 9);
    // The server is shut down.
    let held = call(&mut queue, "/c").await;
    assert_eq!(left().await, 8);
    limiter.close();
    assert_eq!((held.await.unwrap().status(), left().await), (StatusCode::SERVICE_UNAVAILABLE, 9));
}
