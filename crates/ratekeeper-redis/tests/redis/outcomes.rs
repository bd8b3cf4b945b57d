//! Thousands of requests at once, each with a different fate: what is left at the end is the quota less what
//! should have counted, in memory and in Redis.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use ratekeeper::{
    DAY, HOUR, Limiter, Limits, MemoryStore, Quota, RateLimitLayer, Rule, Settle, Store, key,
    meter::ByteCount, meter::Metered,
};
use tokio::sync::mpsc;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::random::Random;
use crate::support::{PATIENCE, own_server, patient, ready};

const REQUESTS: u64 = 10_000;
const AT_ONCE: usize = 100;
const CALLERS: u64 = 40;

/// What happens to a request.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Its response says nothing about its cost.
    Kept,
    /// Its response says that it was free.
    Free,
    /// Its response says what it has cost.
    Priced(u32),
    /// Its handler reports its cost twice, the second time correctly.
    Handled(u32, u32),
    /// Its handler charges more, and gives a part back.
    More(u32, u32),
    /// Its body has this length, and is read to the end.
    Streamed(u32),
    /// Its body has this length, and is not read.
    Unread(u32),
    /// Its client goes away before there is a response.
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Wanted {
    caller: u64,
    reserved: u32,
    fate: Fate,
}

impl Wanted {
    fn random(random: &mut Random) -> Self {
        let mut cost = || random.below(30) as u32;
        let (one, other) = (cost(), cost());
        let fates = [
            Fate::Kept,
            Fate::Free,
            Fate::Priced(one),
            Fate::Handled(other, one),
            Fate::More(one, other),
            Fate::Streamed(one),
            Fate::Unread(one + 1),
            Fate::Gone,
        ];
        Self { caller: random.below(CALLERS), reserved: 1 + random.below(20) as u32, fate: random.of(&fates) }
    }

    /// What it should count if it was admitted and the handler was granted `more`.
    fn counts(self, more: u32) -> u32 {
        match self.fate {
            Fate::Kept | Fate::Gone | Fate::Unread(_) => self.reserved,
            Fate::Free => 0,
            Fate::Priced(cost) | Fate::Handled(_, cost) | Fate::Streamed(cost) => cost,
            Fate::More(_, back) => (self.reserved + more).saturating_sub(back),
        }
    }
}

/// What a response says about its cost.
#[derive(Clone, Copy)]
struct Price(Settle);

type Body = Metered<Full<Bytes>, ByteCount>;

/// Sends how much more was granted, and signals when the request that never completes has arrived.
type Told = mpsc::UnboundedSender<u32>;

async fn handle(request: Request<()>) -> Result<Response<Body>, Infallible> {
    let wanted = *request.extensions().get::<Wanted>().unwrap();
    let told = request.extensions().get::<Told>().unwrap();
    let limits = Limits::of(request.extensions()).unwrap();
    let unmetered = || Body::from(Bytes::new());
    let metered = |len| limits.meter("units", Full::from(vec![b'x'; len as usize]), ByteCount).unwrap();
    let mut response = Response::new(match wanted.fate {
        Fate::Kept | Fate::Free | Fate::Priced(_) => unmetered(),
        Fate::Handled(wrong, right) => {
            limits.settle("units", wrong).unwrap();
            limits.settle("units", right).unwrap();
            unmetered()
        }
        Fate::More(more, back) => {
            let decision = limits.charge("units", more).await.unwrap().unwrap();
            told.send(if decision.is_admitted() { more } else { 0 }).unwrap();
            limits.refund("units", back).unwrap();
            unmetered()
        }
        Fate::Streamed(len) | Fate::Unread(len) => metered(len),
        Fate::Gone => {
            told.send(0).unwrap();
            pending().await
        }
    });
    response.extensions_mut().insert(Price(match wanted.fate {
        Fate::Free => Settle::Free,
        Fate::Priced(cost) => Settle::Cost(cost),
        _ => Settle::Keep,
    }));
    Ok(response)
}

/// Sends a request, carries out its fate, and returns what it should count; `None` if it was denied.
async fn send(layer: RateLimitLayer, wanted: Wanted) -> Option<u32> {
    let (told, mut is_told) = mpsc::unbounded_channel();
    let mut request = Request::new(());
    request.extensions_mut().insert(wanted);
    request.extensions_mut().insert::<Told>(told);
    let response = layer.layer(service_fn(handle)).oneshot(request);
    if let Fate::Gone = wanted.fate {
        return tokio::select! {
            response = response => {
                assert_eq!(response.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
                None
            }
            Some(_) = is_told.recv() => Some(wanted.counts(0)),
        };
    }
    let response = response.await.unwrap();
    if response.status() == StatusCode::TOO_MANY_REQUESTS {
        return None;
    }
    assert_eq!(response.status(), StatusCode::OK);
    if let Fate::Streamed(len) = wanted.fate {
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), len as usize);
    }
    Some(wanted.counts(is_told.try_recv().unwrap_or(0)))
}

async fn is_exact<S: Store>(store: S, quota: Quota, seed: u64) {
    let rule = Rule::new("units", quota)
        .key(key::from_fn(|head| Some(head.extension::<Wanted>()?.caller.to_string())))
        .cost_by(|head| head.extension::<Wanted>().unwrap().reserved)
        .settle_in_handler()
        .settle_by(|response| response.extension().map_or(Settle::Keep, |Price(settle)| *settle));
    let limiter = Limiter::builder().store(store).rule(rule).build().unwrap();
    let layer = RateLimitLayer::new(limiter.clone());
    let counted: Arc<Vec<AtomicU64>> = Arc::new((0..CALLERS).map(|_| AtomicU64::new(0)).collect());
    let (mut random, denied) = (Random::new(seed), AtomicU64::new(0));
    let requests: Vec<_> = (0..REQUESTS).map(|_| Wanted::random(&mut random)).collect();
    stream::iter(requests)
        .for_each_concurrent(AT_ONCE, |wanted| {
            let (layer, counted, denied) = (layer.clone(), Arc::clone(&counted), &denied);
            async move {
                // On any thread, so that they really run at once.
                let (total, more) = match tokio::spawn(send(layer, wanted)).await.unwrap() {
                    Some(cost) => (&counted[wanted.caller as usize], cost.into()),
                    None => (denied, 1),
                };
                total.fetch_add(more, Ordering::SeqCst);
            }
        })
        .await;
    // Tight quotas deny some requests, but not most.
    let denied = denied.into_inner();
    assert!(denied < REQUESTS / 2, "{denied} were denied");
    assert!((denied > 0) == (quota.max() < 10_000), "{denied} were denied");
    for (caller, counted) in counted.iter().enumerate() {
        let expected = u64::from(quota.max()).saturating_sub(counted.load(Ordering::SeqCst));
        let remaining = || async {
            let peeked = limiter.charge("units", caller.to_string()).peek().await.unwrap();
            u64::from(peeked.outcome("units").unwrap().remaining())
        };
        becomes(remaining, expected).await;
    }
}

/// Waits for settlements that were handed over and may still be under way.
async fn becomes<F: Future<Output = u64>>(remaining: impl Fn() -> F, expected: u64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = remaining().await;
        if left == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{left} are left, and should be {expected}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Quotas of which nothing comes back during a test, and that do or do not hold the cost of all requests. No
/// leaky bucket: it gives back only the last place in its queue.
fn quotas() -> impl Iterator<Item = Quota> {
    [100_000, 2_000].into_iter().flat_map(|limit| {
        [
            Quota::token_bucket(1, HOUR).burst(limit),
            Quota::fixed_window(limit, 30 * DAY),
            Quota::sliding_window(limit, 30 * DAY),
            Quota::sliding_log(limit, 30 * DAY),
        ]
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_in_memory_is_what_should_be() {
    for (seed, quota) in quotas().enumerate() {
        is_exact(MemoryStore::new(), quota, seed as u64).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_in_redis_is_what_should_be() {
    for (seed, quota) in quotas().enumerate() {
        let server = own_server();
        is_exact(ready(patient(&server)).await, quota, seed as u64).await;
    }
}
