//! How many requests go together.

/// How many goes may be under way to a near server. A single one would leave it idle while its answer is read
/// here.
pub(crate) const NEAR: usize = 2;

/// How many goes may be under way to a far server, where a request that is not sent has to wait a whole round
/// trip for the next go. All of them together have no more requests than two goes may have, since a server
/// that takes long may have too much to do.
pub(crate) const FLIGHTS: usize = 8;

/// How many requests make a large crowd.
const LARGE: usize = 16;

/// The requests that ask at the same time.
///
/// Half of a crowd goes together, so that the server decides one half while the other is answered and asks
/// again. More and smaller goes would cost the server more. A single go for all would have both sides wait
/// for each other.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// The recent size of the crowd.
    size: usize,
    /// How many requests are under way in each go.
    aboard: [usize; FLIGHTS],
    most: usize,
}

impl Crowd {
    /// An empty crowd, of which at most `most` requests go together.
    pub(crate) const fn new(most: usize) -> Self {
        Self { size: 0, aboard: [0; FLIGHTS], most }
    }

    /// Sets how many requests may go together from now on.
    pub(crate) const fn limit(&mut self, most: usize) {
        self.most = most;
    }

    /// How many requests go together.
    pub(crate) fn half(&self) -> usize {
        self.size.div_ceil(2).clamp(1, self.most)
    }

    /// How many requests have to wait for the next go to be sent. While others are under way, a few wait for
    /// more to arrive, as in a crowd they will, until they are half of it or the others are back. A request
    /// that arrives alone finds nothing under way.
    pub(crate) fn enough(&self) -> usize {
        if self.is_idle() { 1 } else { self.half() }
    }

    /// Whether the crowd is large enough for polling for its answers to be worth it.
    pub(crate) fn is_large(&self) -> bool {
        self.size >= LARGE
    }

    /// Whether no request is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.aboard.iter().all(|aboard| *aboard == 0)
    }

    /// How many more requests may be under way.
    pub(crate) fn room(&self) -> usize {
        (NEAR * self.most).saturating_sub(self.aboard.iter().sum())
    }

    /// Whether callers that were just answered should get to ask again before others are sent.
    pub(crate) fn may_be_more(&self) -> bool {
        self.size > 1 && self.is_idle()
    }

    /// Notes how many requests wait.
    pub(crate) fn seen(&mut self, waiting: usize) {
        self.size = self.size.max(self.aboard.iter().sum::<usize>() + waiting);
    }

    pub(crate) fn sent(&mut self, flight: usize, asks: usize) {
        self.aboard[flight] = asks;
    }

    /// A go is back, while `waiting` requests wait. In a crowd, callers that are answered will ask again. A
    /// shrinking crowd is followed over some goes.
    pub(crate) fn back(&mut self, flight: usize, waiting: usize) {
        if self.aboard[flight] == 0 {
            // It has only settled something, and says nothing about the crowd.
            return;
        }
        self.size -= self.size.div_ceil(8);
        self.seen(waiting);
        self.aboard[flight] = 0;
    }

    /// Nothing that is under way will be back.
    pub(crate) fn lost(&mut self) {
        self.aboard = [0; FLIGHTS];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_alone_never_waits() {
        let mut crowd = Crowd::new(64);
        for _ in 0..3 {
            assert_eq!(crowd.enough(), 1);
            crowd.sent(0, 1);
            crowd.back(0, 0);
            assert!(!crowd.may_be_more());
        }
    }

    #[test]
    fn half_of_a_crowd_goes_together() {
        let mut crowd = Crowd::new(64);
        crowd.seen(40);
        assert_eq!((crowd.half(), crowd.enough()), (20, 1));
        crowd.sent(0, 20);
        crowd.sent(1, 20);
        crowd.back(0, 0);
        assert_eq!((crowd.half(), crowd.enough()), (20, 20));
        crowd.back(1, 1);
        assert!(crowd.may_be_more() && crowd.enough() == 1);
        crowd.sent(0, 500);
        crowd.back(0, 12);
        assert_eq!(crowd.half(), 64, "no more than may");
    }

    #[test]
    fn no_more_are_under_way_in_many_goes_than_in_two() {
        let mut crowd = Crowd::new(64);
        assert_eq!(crowd.room(), 128);
        (0..5).for_each(|flight| crowd.sent(flight, 20));
        assert_eq!(crowd.room(), 28);
        crowd.sent(5, 28);
        assert_eq!(crowd.room(), 0);
    }

    #[test]
    fn a_few_are_no_large_crowd_and_one_that_shrinks_is_none_any_more() {
        let mut crowd = Crowd::new(64);
        crowd.seen(15);
        assert!(!crowd.is_large());
        crowd.seen(16);
        assert!(crowd.is_large());
        for _ in 0..20 {
            crowd.sent(0, 1);
            crowd.back(0, 0);
        }
        assert!(!crowd.is_large());
    }

    #[test]
    fn a_crowd_that_has_gone_is_forgotten() {
        let mut crowd = Crowd::new(64);
        crowd.sent(0, 500);
        crowd.lost();
        assert!(crowd.is_idle());
        crowd.sent(0, 500);
        for _ in 0..100 {
            crowd.back(0, 0);
            crowd.sent(0, 1);
        }
        assert_eq!(crowd.half(), 1);
    }
}
