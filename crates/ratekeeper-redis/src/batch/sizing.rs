//! How large batches are, and how many are in flight.

use std::time::Duration;

use tokio::time::Instant;

/// How many batches may be in flight to a near server. A single one would leave the server idle while its
/// reply is read here.
const NEAR: usize = 2;

/// How many batches may be in flight to a far server, where a request that is not sent would have to wait for
/// a whole round trip. All of them together have no more requests than two may have, since a server that
/// takes long may have too much to do.
pub(crate) const MAX_IN_FLIGHT: usize = 8;

/// The smallest cap. If so few requests take long, it is not because they are many.
const MIN_CAP: usize = 4;

/// Decides how large batches are, by this rule:
///
/// - Two batches may be in flight: the server decides one while the callers of the other are answered and ask
///   again. So a batch takes half of the requests that have recently waited or been in flight at a time.
/// - While a batch is in flight, the next one waits until it is that large, or until that one is answered. A
///   request that arrives alone is sent immediately.
/// - If replies take longer than a quarter of the timeout, the server is far: nothing waits for others, and
///   up to eight batches may be in flight.
/// - No batch is larger than the cap. A batch that takes too long halves it, and each one in time that was
///   limited by the cap raises it by a quarter. A batch takes too long if a lone request would have been
///   answered half of the timeout earlier: most counters take Redis some microseconds, but a long log takes a
///   tenth of a millisecond, and a batch is answered when all of it is done.
#[derive(Debug)]
pub(crate) struct Sizing {
    /// How many requests have recently waited or been in flight at a time.
    concurrency: usize,
    /// How many requests each batch in flight has.
    in_flight: [usize; MAX_IN_FLIGHT],
    cap: usize,
    max_cap: usize,
    timeout: Duration,
    /// About how long a lone request takes: the shortest time seen recently.
    shortest: Duration,
    /// How long a reply usually takes.
    usual: Duration,
    /// When the oldest batch in flight was sent.
    oldest: Option<Instant>,
}

impl Sizing {
    /// Starts with as large batches as allowed.
    pub(crate) const fn new(max_cap: usize, timeout: Duration) -> Self {
        Self {
            concurrency: 0,
            in_flight: [0; MAX_IN_FLIGHT],
            cap: max_cap,
            max_cap,
            timeout,
            shortest: Duration::MAX,
            usual: Duration::ZERO,
            oldest: None,
        }
    }

    /// How long a reply usually takes.
    pub(crate) const fn usual(&self) -> Duration {
        self.usual
    }

    /// How many settlements, or requests of any kind, a batch may have.
    pub(crate) const fn cap(&self) -> usize {
        self.cap
    }

    /// Half of the requests that have recently waited or been in flight at a time.
    pub(crate) fn half(&self) -> usize {
        self.concurrency.div_ceil(2).clamp(1, self.cap)
    }

    /// How many requests the next batch takes at most, and how many have to wait for it to be sent.
    pub(crate) fn next(&self) -> (usize, usize) {
        match (self.is_far(), self.is_idle()) {
            (true, _) => (self.cap.min(self.room()), 1),
            (false, true) => (self.half(), 1),
            (false, false) => (self.half(), self.half()),
        }
    }

    /// How many batches may be in flight.
    pub(crate) fn max_in_flight(&self) -> usize {
        if self.is_far() && self.room() > 0 { MAX_IN_FLIGHT } else { NEAR }
    }

    /// How many more requests may be in flight.
    fn room(&self) -> usize {
        (NEAR * self.cap).saturating_sub(self.in_flight.iter().sum())
    }

    /// Whether replies take so long that no request can wait for others.
    pub(crate) fn is_far(&self) -> bool {
        self.usual > self.near() || self.oldest.is_some_and(|sent| sent.elapsed() >= self.near())
    }

    /// How long a reply of a near server takes at most. A request can wait that long for others, and still be
    /// answered in time.
    fn near(&self) -> Duration {
        self.timeout / 4
    }

    /// When requests that wait for others have waited for long enough.
    pub(crate) fn far_at(&self) -> Option<Instant> {
        self.oldest.map(|sent| sent + self.near()).filter(|far_at| *far_at > Instant::now())
    }

    /// Whether no request is in flight.
    fn is_idle(&self) -> bool {
        self.in_flight.iter().all(|requests| *requests == 0)
    }

    /// Whether callers that were just answered should get to ask again before a batch is sent.
    pub(crate) fn expects_more(&self) -> bool {
        self.concurrency > 1 && self.is_idle()
    }

    /// Notes how many requests wait.
    pub(crate) fn waiting(&mut self, requests: usize) {
        self.concurrency = self.concurrency.max(self.in_flight.iter().sum::<usize>() + requests);
    }

    pub(crate) fn sent(&mut self, batch: usize, requests: usize) {
        self.in_flight[batch] = requests;
        self.oldest = self.oldest.or_else(|| Some(Instant::now()));
    }

    /// A batch with this many requests and settlements is answered. `limited`: others had to wait because it
    /// could not be larger. `waiting`: how many wait now. `oldest`: when the oldest in flight was sent.
    pub(crate) fn answered(
        &mut self,
        batch: usize,
        sent: (usize, Duration),
        limited: bool,
        waiting: usize,
        oldest: Option<Instant>,
    ) {
        let (size, took) = sent;
        self.oldest = oldest;
        self.adapt(size, limited, took);
        // A batch of settlements says nothing about how many requests there are. A number of them that falls
        // is followed over some batches.
        if self.in_flight[batch] > 0 {
            self.concurrency -= self.concurrency.div_ceil(8);
            self.waiting(waiting);
            self.in_flight[batch] = 0;
        }
    }

    /// Learns how long replies take.
    pub(crate) fn in_time(&mut self, took: Duration) {
        self.usual = (self.usual * 3 + took) / 4;
    }

    /// Adapts the cap to a batch.
    fn adapt(&mut self, size: usize, limited: bool, took: Duration) {
        // Only a small batch shows that a lone request takes longer now.
        let rising = self.shortest.saturating_add(self.shortest / 16);
        self.shortest = took.min(if size <= MIN_CAP { rising } else { self.shortest });
        if took - self.shortest > self.timeout / 2 {
            if size > MIN_CAP {
                // It may be late for another reason, so the cap is at most halved.
                self.cap = (size / 2).max(self.cap / 2).max(MIN_CAP).min(self.cap);
            }
        } else if size >= self.cap || limited {
            self.cap = (self.cap + self.cap.div_ceil(4)).min(self.max_cap);
        }
    }

    /// Starts over with a connection on which a lone request took this long.
    pub(crate) const fn connected(&mut self, took: Duration) {
        (self.shortest, self.usual) = (took, took);
    }

    /// Nothing that is in flight will be answered.
    pub(crate) const fn lost(&mut self) {
        self.in_flight = [0; MAX_IN_FLIGHT];
        self.oldest = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(5);

    fn sizing(max: usize) -> Sizing {
        let mut sizing = Sizing::new(max, TIMEOUT);
        sizing.connected(Duration::from_micros(60));
        sizing
    }

    fn answered(sizing: &mut Sizing, batch: usize, waiting: usize) {
        sizing.answered(batch, (1, Duration::from_micros(60)), false, waiting, None);
    }

    #[test]
    fn a_lone_request_never_waits() {
        let mut sizing = sizing(64);
        for _ in 0..3 {
            assert_eq!(sizing.next(), (1, 1));
            sizing.sent(0, 1);
            answered(&mut sizing, 0, 0);
            assert!(!sizing.expects_more());
        }
    }

    #[test]
    fn a_batch_is_half_of_what_is_outstanding() {
        let mut sizing = sizing(64);
        sizing.waiting(40);
        assert_eq!(sizing.next(), (20, 1));
        sizing.sent(0, 20);
        sizing.sent(1, 20);
        answered(&mut sizing, 0, 0);
        assert_eq!(sizing.next(), (20, 20));
        answered(&mut sizing, 1, 1);
        assert!(sizing.expects_more() && sizing.next().1 == 1);
        sizing.sent(0, 500);
        answered(&mut sizing, 0, 12);
        assert_eq!(sizing.half(), 64, "no more than the cap");
    }

    #[test]
    fn many_batches_have_no_more_requests_than_two() {
        let mut sizing = sizing(64);
        assert_eq!(sizing.room(), 128);
        (0..5).for_each(|batch| sizing.sent(batch, 20));
        assert_eq!(sizing.room(), 28);
        sizing.sent(5, 28);
        assert_eq!((sizing.room(), sizing.max_in_flight()), (0, NEAR));
    }

    #[test]
    fn fewer_requests_make_smaller_batches() {
        let mut sizing = sizing(64);
        sizing.sent(0, 500);
        sizing.lost();
        assert!(sizing.is_idle());
        sizing.sent(0, 500);
        for _ in 0..100 {
            answered(&mut sizing, 0, 0);
            sizing.sent(0, 1);
        }
        assert_eq!(sizing.half(), 1);
    }

    /// The cap after some full batches, with this time for each request and this round-trip time.
    fn settled(sizing: &mut Sizing, batches: usize, each: Duration, round_trip: Duration) -> usize {
        for _ in 0..batches {
            let size = sizing.cap();
            sizing.adapt(size, true, round_trip + each * size as u32);
        }
        sizing.cap()
    }

    #[test]
    fn slow_requests_go_in_smaller_batches() {
        let mut sizing = sizing(256);
        let (quick, slow) = (Duration::from_micros(2), Duration::from_micros(100));
        assert_eq!(settled(&mut sizing, 10, quick, Duration::from_micros(60)), 256);
        for batches in [30, 1_000, 1_001, 1_002, 1_003] {
            let cap = settled(&mut sizing, batches, slow, Duration::from_micros(60));
            assert!((8..=40).contains(&cap), "{cap}");
        }
        assert_eq!(settled(&mut sizing, 30, quick, Duration::from_micros(60)), 256);
    }

    #[test]
    fn the_distance_to_the_server_does_not_matter() {
        let mut sizing = sizing(256);
        let (each, far) = (Duration::from_micros(2), Duration::from_millis(30));
        sizing.connected(far);
        assert_eq!(settled(&mut sizing, 30, each, far), 256);
        assert_eq!(settled(&mut sizing, 100, each, far * 2), 256, "nor does it if it grows");
    }

    #[test]
    fn a_small_batch_says_nothing_about_a_large_one() {
        let mut sizing = sizing(256);
        sizing.adapt(200, false, Duration::from_millis(20));
        assert_eq!(sizing.cap(), 128);
        (0..100).for_each(|_| sizing.adapt(1, false, Duration::from_micros(60)));
        assert_eq!(sizing.cap(), 128);
        (0..100).for_each(|_| sizing.adapt(MIN_CAP, false, Duration::from_secs(1)));
        assert_eq!(sizing.cap(), 128);
        for _ in 0..8 {
            let size = sizing.cap();
            sizing.adapt(size, true, Duration::from_secs(1));
        }
        assert_eq!(sizing.cap(), MIN_CAP, "however long it takes, a few may go");
    }

    /// With several batches in flight to a far server, none is as large as the cap.
    #[test]
    fn the_cap_rises_while_others_have_to_wait() {
        let mut sizing = sizing(256);
        sizing.connected(Duration::from_millis(6));
        (0..8).for_each(|_| sizing.adapt(5, true, Duration::from_millis(30)));
        assert_eq!(sizing.cap(), MIN_CAP);
        (0..30).for_each(|_| sizing.adapt(1, true, Duration::from_millis(6)));
        assert_eq!(sizing.cap(), 256);
    }

    #[test]
    fn the_cap_has_a_maximum() {
        let mut sizing = sizing(3);
        (0..100).for_each(|batch| sizing.adapt(3, true, Duration::from_millis(batch % 7)));
        assert_eq!(sizing.cap(), 3);
    }
}
