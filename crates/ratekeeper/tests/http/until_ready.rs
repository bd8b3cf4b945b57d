//! Waiting without HTTP: jobs, messages, calls to other services.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use ratekeeper::{Decision, Limiter, LimiterError, MINUTE, Quota, Retry, Rule, RuleSet};
use tokio::time::Instant;

use crate::support::held::memory;
use crate::support::{millis, secs};

type Jobs = Limiter;

fn jobs(quota: Quota) -> Jobs {
    Limiter::builder().store(memory()).rule(Rule::new("jobs", quota)).build().unwrap()
}

/// When each of `n` charges made together was ready, in milliseconds, in the order in which they were made.
async fn ready(limiter: &Jobs, n: usize) -> Vec<u64> {
    let start = Instant::now();
    let waiting = (0..n).map(|_| async {
        assert!(limiter.charge("jobs", "worker").until_ready().await.unwrap().is_admitted());
        start.elapsed().as_millis() as u64
    });
    join_all(waiting).await
}

#[tokio::test(start_paused = true)]
async fn all_are_ready_in_the_order_in_which_they_came_whatever_the_algorithm() {
    for (quota, expected) in [
        (Quota::token_bucket(2, secs(1)), [0, 0, 500, 1_000, 1_500]),
        (Quota::fixed_window(2, secs(1)), [0, 0, 750, 750, 1_750]),
        (Quota::sliding_log(2, secs(1)), [0, 0, 1_000, 1_000, 2_000]),
        (Quota::leaky_bucket(2, secs(1)).capacity(2), [0, 500, 1_000, 1_500, 2_000]),
    ] {
        assert_eq!(ready(&jobs(quota), 5).await, expected, "{quota}");
    }
}

#[tokio::test(start_paused = true)]
async fn thousands_wait_fairly_and_nobody_is_forgotten() {
    let limiter = jobs(Quota::token_bucket(1_000, secs(1)).burst(1));
    let order = Arc::new(Mutex::new(Vec::new()));
    let tasks = (0..3_000).map(|number| {
        let (limiter, order) = (limiter.clone(), Arc::clone(&order));
        tokio::spawn(async move {
            assert!(limiter.charge("jobs", "worker").until_ready().await.unwrap().is_admitted());
            order.lock().unwrap().push(number);
        })
    });
    let start = Instant::now();
    for task in join_all(tasks).await {
        task.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..3_000).collect::<Vec<_>>());
    assert_eq!(start.elapsed(), millis(2_999));
    assert_eq!(limiter.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_dropped_gives_back_what_it_took_and_those_behind_keep_their_delays() {
    let limiter = jobs(Quota::token_bucket(1, secs(1)));
    let start = Instant::now();
    limiter.charge("jobs", "worker").until_ready().await.unwrap();
    let mut head = Box::pin(limiter.charge("jobs", "worker").until_ready());
    let mut next = Box::pin(limiter.charge("jobs", "worker").until_ready());
    assert!((&mut head).now_or_never().is_none() && (&mut next).now_or_never().is_none());
    tokio::time::sleep(millis(400)).await;
    drop(head);
    next.await.unwrap();
    assert_eq!(start.elapsed(), secs(2));
    assert!(limiter.charge("jobs", "worker").await.unwrap().is_admitted(), "it was given back");
    assert_eq!(limiter.waiting(), 0);
}

/// In a window nothing is reserved, so those behind move up.
#[tokio::test(start_paused = true)]
async fn one_that_is_dropped_while_it_waits_for_a_window_makes_room_for_the_next() {
    let limiter = jobs(Quota::sliding_log(1, secs(1)));
    let start = Instant::now();
    limiter.charge("jobs", "worker").until_ready().await.unwrap();
    let mut head = Box::pin(limiter.charge("jobs", "worker").until_ready());
    let mut next = Box::pin(limiter.charge("jobs", "worker").until_ready());
    assert!((&mut head).now_or_never().is_none() && (&mut next).now_or_never().is_none());
    assert_eq!(limiter.waiting(), 2);
    tokio::time::sleep(millis(400)).await;
    drop(head);
    next.await.unwrap();
    assert_eq!(start.elapsed(), secs(1));
    assert_eq!(limiter.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_dropped_in_a_leaky_bucket_gives_its_place_back() {
    let limiter = jobs(Quota::leaky_bucket(1, secs(1)).capacity(5));
    let start = Instant::now();
    limiter.charge("jobs", "worker").until_ready().await.unwrap();
    let mut second = Box::pin(limiter.charge("jobs", "worker").until_ready());
    assert!((&mut second).now_or_never().is_none());
    drop(second);
    limiter.charge("jobs", "worker").until_ready().await.unwrap();
    assert_eq!(start.elapsed(), secs(1));
}

#[tokio::test(start_paused = true)]
async fn what_would_take_longer_than_one_has_is_said_as_soon_as_it_is_clear() {
    let limiter = jobs(Quota::token_bucket(1, secs(1)));
    let start = Instant::now();
    limiter.charge("jobs", "worker").until_ready().await.unwrap();
    let decision = limiter.charge("jobs", "worker").ready_within(millis(999)).await.unwrap();
    assert_eq!(decision.retry(), Some(Retry::After(millis(1))), "then as long a wait is enough");
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(limiter.charge("jobs", "worker").ready_within(secs(1)).await.unwrap().is_admitted());
    assert_eq!(start.elapsed(), secs(1));
    // Behind another that already waits, it takes two seconds.
    let mut waiting = Box::pin(limiter.charge("jobs", "worker").until_ready());
    assert!((&mut waiting).now_or_never().is_none());
    let behind = limiter.charge("jobs", "worker").ready_within(millis(1_999)).now_or_never();
    assert!(!behind.expect("it is said at once").unwrap().is_admitted());
    let (first, second) = tokio::join!(waiting, limiter.charge("jobs", "worker").ready_within(secs(2)));
    assert!(first.unwrap().is_admitted() && second.unwrap().is_admitted());
    assert_eq!(start.elapsed(), secs(3));
}

#[tokio::test(start_paused = true)]
async fn what_never_fits_is_not_waited_for() {
    let limiter = jobs(Quota::token_bucket(1, secs(1)));
    let decision = limiter.charge("jobs", "worker").cost(2).until_ready().now_or_never().unwrap().unwrap();
    assert_eq!(decision.retry(), Some(Retry::Never));
    let forever = limiter.charge("jobs", "worker").ready_within(Duration::MAX).await.unwrap();
    assert!(forever.is_admitted());
}

#[tokio::test(start_paused = true)]
async fn several_are_charged_together_when_all_fit() {
    let rules =
        [Rule::new("jobs", Quota::token_bucket(1, millis(300))), Rule::new("bytes", Quota::per_second(10))];
    let limiter = Limiter::builder().store(memory()).rules(rules).build().unwrap();
    let start = Instant::now();
    for _ in 0..3 {
        let charged = limiter.charge("jobs", "a").and("bytes", "a").cost(10).until_ready().await.unwrap();
        assert!(charged.is_admitted());
    }
    assert_eq!(start.elapsed(), secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_closed_limiter_lets_those_go_who_wait() {
    let limiter = jobs(Quota::token_bucket(1, MINUTE));
    limiter.charge("jobs", "worker").until_ready().await.unwrap();
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.charge("jobs", "worker").until_ready().await }
    });
    tokio::task::yield_now().await;
    assert_eq!(limiter.waiting(), 1);
    limiter.close();
    assert!(matches!(waiting.await.unwrap(), Err(LimiterError::Overloaded)));
    let late = limiter.charge("jobs", "worker").until_ready().await;
    assert!(matches!(late, Err(LimiterError::Overloaded)));
    assert!(limiter.charge("jobs", "another").until_ready().await.unwrap().is_admitted());
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_is_not_there_is_said_at_once() {
    let limiter = jobs(Quota::per_second(1));
    let unknown = limiter.charge("job", "worker").until_ready().await;
    assert!(matches!(unknown, Err(LimiterError::UnknownRule(rule)) if rule == "job"));
}

#[tokio::test(start_paused = true)]
async fn one_that_is_dropped_in_a_leaky_bucket_has_paid_nothing_elsewhere() {
    let rules = [
        Rule::new("jobs", Quota::leaky_bucket(1, secs(1)).capacity(5)),
        Rule::new("bytes", Quota::fixed_window(100, MINUTE)),
    ];
    let limiter = Limiter::builder().store(memory()).rules(rules).build().unwrap();
    let job = || limiter.charge("jobs", "a").and("bytes", "a").cost(10);
    job().until_ready().await.unwrap();
    let mut second = Box::pin(job().until_ready());
    assert!((&mut second).now_or_never().is_none());
    drop(second);
    let left = job().peek().await.unwrap();
    assert_eq!(left.outcome("bytes").unwrap().remaining(), 90);
}

#[tokio::test(start_paused = true)]
async fn two_places_under_the_same_rule_are_both_given_back() {
    let limiter = jobs(Quota::leaky_bucket(1, secs(1)).capacity(5));
    limiter.charge("jobs", "a").await.unwrap();
    for _ in 0..2 {
        limiter.charge("jobs", "b").await.unwrap();
    }
    let mut both = Box::pin(limiter.charge("jobs", "a").and("jobs", "b").until_ready());
    assert!((&mut both).now_or_never().is_none());
    drop(both);
    for (key, left) in [("a", 4), ("b", 3)] {
        let peeked = limiter.charge("jobs", key).peek().await.unwrap();
        assert_eq!(peeked.outcome("jobs").unwrap().remaining(), left, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_not_polled_keeps_nobody_waiting_for_longer_than_they_are_ready_to() {
    let limiter = jobs(Quota::token_bucket(10, secs(1)));
    limiter.charge("jobs", "worker").cost(10).await.unwrap();
    let mut forgotten = Box::pin(limiter.charge("jobs", "worker").until_ready());
    assert!((&mut forgotten).now_or_never().is_none());
    let start = Instant::now();
    let waiting = limiter.charge("jobs", "worker").ready_within(secs(1));
    let decision = tokio::time::timeout(MINUTE, waiting).await.expect("it does not wait for ever").unwrap();
    assert!(decision.is_admitted());
    assert!(start.elapsed() <= millis(1_100), "{:?}", start.elapsed());
    assert!(forgotten.await.unwrap().is_admitted());
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_one_key_does_not_keep_others_from_another() {
    let rules = [
        Rule::new("user", Quota::token_bucket(1, secs(10))),
        Rule::new("all", Quota::token_bucket(1_000, secs(1))),
    ];
    let limiter = Limiter::builder().store(memory()).rules(rules).build().unwrap();
    let job = |user: &str| limiter.charge("user", user.to_owned()).and("all", "all").until_ready();
    job("alice").await.unwrap();
    let mut waiting = Box::pin(job("alice"));
    assert!((&mut waiting).now_or_never().is_none());
    let start = Instant::now();
    let bob = job("bob").now_or_never().expect("bob need not wait");
    assert!(bob.unwrap().is_admitted());
    assert!(waiting.await.unwrap().is_admitted());
    assert_eq!(start.elapsed(), secs(10));
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_several_keys_never_lock_each_other_even_if_some_go_away() {
    let rule = |name: &str| Rule::new(name, Quota::token_bucket(1, millis(10)));
    let limiter =
        Limiter::builder().store(memory()).rules(["left", "middle", "right"].map(rule)).build().unwrap();
    let jobs = (0_u64..600).map(|number| {
        // Each takes three keys out of four, and every third goes away at some time.
        let dice = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let key = |place: u32| ["a", "b", "c", "d"][(dice >> (40 + 2 * place)) as usize % 4];
        let job = limiter.charge("left", key(0)).and("middle", key(1)).and("right", key(2));
        let goes_away = millis((dice >> 50) % 2_000);
        async move {
            if number % 3 == 0 {
                let _ = tokio::time::timeout(goes_away, job.until_ready()).await;
                return true;
            }
            job.until_ready().await.unwrap().is_admitted()
        }
    });
    let jobs = tokio::time::timeout(MINUTE, join_all(jobs.map(tokio::spawn)));
    let all = jobs.await.expect("all of them could go within seconds");
    assert!(all.into_iter().all(|ready| ready.unwrap()));
    assert_eq!(limiter.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_leaky_buckets_delay_is_part_of_what_one_is_ready_to_wait() {
    let limiter = jobs(Quota::leaky_bucket(1, secs(1)).capacity(5));
    let start = Instant::now();
    for _ in 0..2 {
        let mut ready = Box::pin(limiter.charge("jobs", "worker").until_ready());
        let _ = (&mut ready).now_or_never();
        tokio::spawn(ready);
    }
    // The next turn would be two seconds from now.
    let denied = limiter.charge("jobs", "worker").ready_within(millis(1_999)).now_or_never();
    let denied = denied.expect("it is said at once").unwrap();
    assert_eq!(denied.retry(), Some(Retry::After(millis(1))));
    // It did not keep its place.
    assert!(limiter.charge("jobs", "worker").ready_within(secs(2)).await.unwrap().is_admitted());
    assert_eq!(start.elapsed(), secs(2));
}

/// The answer to a charge that would not wait for long is no answer to one that would.
#[tokio::test(start_paused = true)]
async fn who_waits_for_as_long_as_it_takes_is_not_told_what_the_impatient_are() {
    let rules = [
        Rule::new("jobs", Quota::token_bucket(1, secs(10))),
        Rule::new("bytes", Quota::token_bucket(1, MINUTE)),
    ];
    let limiter = Limiter::builder().store(memory()).rules(rules).build().unwrap();
    let both = || limiter.charge("jobs", "worker").and("bytes", "worker");
    assert!(both().await.unwrap().is_admitted());
    let start = Instant::now();
    let mut ahead = Box::pin(limiter.charge("jobs", "worker").until_ready());
    assert!((&mut ahead).now_or_never().is_none());
    let denied = both().ready_within(secs(30)).now_or_never().expect("it is said at once").unwrap();
    assert!(!denied.is_admitted());
    let patient = both().until_ready();
    let (ahead, patient) = tokio::join!(ahead, patient);
    assert!(ahead.unwrap().is_admitted() && patient.unwrap().is_admitted());
    assert_eq!(start.elapsed(), MINUTE);
}

/// A denial costs nothing, and reports what is left, under all rules of the charge.
#[tokio::test(start_paused = true)]
async fn a_queue_that_takes_too_long_is_looked_at_and_not_charged() {
    let jobs = Rule::new("jobs", Quota::leaky_bucket(1, secs(1)).capacity(10));
    let other = Rule::new("other", Quota::per_hour(10));
    let limiter = Limiter::builder().store(memory()).rules([jobs, other]).build().unwrap();
    for _ in 0..3 {
        assert!(limiter.charge("jobs", "worker").await.unwrap().is_admitted());
    }
    let both = || limiter.charge("jobs", "worker").and("other", "worker");
    let before = both().peek().await.unwrap();
    let denied = both().ready_within(millis(500)).now_or_never().expect("it is said at once").unwrap();
    assert_eq!(denied.denied_by().map(|rule| rule.to_string()).collect::<Vec<_>>(), ["jobs"]);
    assert_eq!(denied.retry(), Some(Retry::After(millis(2_500))), "then it is held back for half a second");
    let remaining =
        |decision: &Decision| ["jobs", "other"].map(|rule| decision.outcome(rule).unwrap().remaining());
    assert_eq!(remaining(&denied), [7, 10]);
    assert_eq!(both().peek().await.unwrap(), before);
    tokio::time::sleep(millis(2_500)).await;
    assert!(both().ready_within(millis(500)).await.unwrap().is_admitted());
}

/// A place that somebody else has got behind cannot be given back, so those who are denied must not take one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_are_not_willing_to_wait_leave_no_places_behind_that_nobody_holds() {
    let jobs = Rule::new("jobs", Quota::leaky_bucket(1, secs(3_600)).capacity(1_000));
    let limiter = Limiter::builder().rule(jobs).build().unwrap();
    assert!(limiter.charge("jobs", "worker").await.unwrap().is_admitted());
    let impatient = [(); 2].map(|()| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            for _ in 0..20_000 {
                let denied = limiter.charge("jobs", "worker").ready_within(Duration::ZERO).await.unwrap();
                assert!(!denied.is_admitted());
            }
        })
    });
    for task in impatient {
        task.await.unwrap();
    }
    let left = limiter.charge("jobs", "worker").peek().await.unwrap();
    assert_eq!(left.outcome("jobs").unwrap().remaining(), 999);
}

/// A full queue would have to drain first, and then the request would be behind all the others.
#[tokio::test(start_paused = true)]
async fn a_full_queue_is_not_waited_for_if_its_delay_would_be_too_long() {
    let limiter = jobs(Quota::leaky_bucket(1, secs(1)).capacity(3));
    for _ in 0..3 {
        assert!(limiter.charge("jobs", "worker").await.unwrap().is_admitted());
    }
    let before = limiter.charge("jobs", "worker").peek().await.unwrap();
    let denied = limiter.charge("jobs", "worker").ready_within(millis(1_500)).now_or_never();
    assert!(!denied.expect("it is said at once").unwrap().is_admitted());
    assert_eq!(limiter.charge("jobs", "worker").peek().await.unwrap(), before);
    let start = Instant::now();
    assert!(limiter.charge("jobs", "worker").ready_within(secs(3)).await.unwrap().is_admitted());
    assert_eq!(start.elapsed(), secs(3));
}

/// What is in the queue is read under the new quota from the first denial on, also if it is only looked at.
#[tokio::test(start_paused = true)]
async fn a_faster_queue_is_soon_short_enough_for_those_who_hardly_wait() {
    let limiter = jobs(Quota::leaky_bucket(10, secs(3_600)).capacity(10));
    for _ in 0..5 {
        assert!(limiter.charge("jobs", "worker").await.unwrap().is_admitted());
    }
    let faster = Rule::new("jobs", Quota::leaky_bucket(10, secs(1)).capacity(10));
    limiter.swap(RuleSet::new([faster]).unwrap());
    let denied = limiter.charge("jobs", "worker").ready_within(millis(100)).await.unwrap();
    assert_eq!(denied.retry(), Some(Retry::After(millis(400))));
    tokio::time::sleep(millis(400)).await;
    assert!(limiter.charge("jobs", "worker").ready_within(millis(100)).await.unwrap().is_admitted());
}
