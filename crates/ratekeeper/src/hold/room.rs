//! The waiting room, and the lines in it.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use ratekeeper_core::{Decision, Key, Quota, RuleName};
use slab::Slab;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::refusal::{Asked, News, Reason, Refusal};
use crate::observe;

/// Identifies a line: a rule and a key. The rule is given by name, because those who wait may have come under
/// another set of rules.
pub(crate) type Line = (RuleName, Key);

/// What a request wants: how much of each line, and under which quota, as tiers have different ones.
pub(crate) type Wanted = SmallVec<[(Line, u32, Quota); 1]>;

/// The waiting room.
#[derive(Debug)]
pub(crate) struct Room {
    /// The number of lines, so that most callers can see without the lock that there is none.
    lines: AtomicUsize,
    max_waiting: usize,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    waiting: Slab<Waiting>,
    lines: HashMap<Line, Queue>,
    news: News,
    /// How many requests have ever entered.
    came: u64,
    is_closed: bool,
}

#[derive(Debug, Default)]
struct Waiting {
    waker: Option<Waker>,
    /// Some budget may have come back that it waits for at the head of a line.
    is_called: bool,
    lines: SmallVec<[Line; 1]>,
    /// How many had entered before this one. The earlier one is ahead, whenever it joins a line.
    came: u64,
}

#[derive(Debug, Default)]
struct Queue {
    places: VecDeque<Standing>,
    /// When its head can go, as far as is known.
    ready_at: Option<Instant>,
    /// The denial that a request got immediately which wanted this, and perhaps more.
    refused: Option<Refusal>,
}

#[derive(Debug)]
struct Standing {
    ticket: usize,
    came: u64,
    cost: u32,
}

/// There is no room to wait: the room is full, or closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoRoom;

/// Those who are in a line already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ahead {
    /// What all of them cost.
    pub(crate) cost: u64,
    /// What the one at the head costs.
    pub(crate) head_cost: u32,
    /// When that one can go, as far as is known.
    pub(crate) ready_at: Option<Instant>,
}

impl Room {
    pub(crate) fn new(max_waiting: usize) -> Self {
        Self { lines: AtomicUsize::new(0), max_waiting, inside: Mutex::default() }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        // Nothing here panics halfway through.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place in the room, if there is one.
    pub(crate) fn enter(self: &Arc<Self>) -> Result<Ticket, NoRoom> {
        let mut inside = self.inside();
        if inside.is_closed || inside.waiting.len() >= self.max_waiting {
            return Err(NoRoom);
        }
        let came = inside.came;
        inside.came += 1;
        let number = inside.waiting.insert(Waiting { came, ..Waiting::default() });
        Ok(Ticket { room: Arc::clone(self), number, _inside: observe::Inside::new() })
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.inside().waiting.len()
    }

    /// Closes the room: from now on nobody waits here.
    pub(crate) fn close(&self) {
        let mut inside = self.inside();
        inside.is_closed = true;
        let wakers: Vec<_> =
            inside.waiting.iter_mut().filter_map(|(_, waiting)| waiting.waker.take()).collect();
        drop(inside);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Some of a line's budget has come back: the request at its head may ask the store again without waiting
    /// any longer.
    pub(crate) fn call(&self, line: &Line) {
        if self.lines.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut inside = self.inside();
        let Inside { waiting, lines, news, .. } = &mut *inside;
        news.came_back(line);
        let Some(queue) = lines.get_mut(line) else { return };
        queue.ready_at = None;
        let head = queue.places.front().map(|head| &mut waiting[head.ticket]);
        let waker = head.and_then(|head| {
            head.is_called = true;
            head.waker.take()
        });
        drop(inside);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Whether any of these has a line.
    pub(crate) fn has_line(&self, mut lines: impl Iterator<Item = Line>) -> bool {
        // A request that joins at the same moment counts as having arrived at the same moment.
        self.lines.load(Ordering::Relaxed) > 0 && {
            let inside = self.inside();
            lines.any(|line| inside.lines.contains_key(&line))
        }
    }

    /// The denial that a request for the same got a moment ago, for this reason.
    pub(crate) fn refused(&self, wanted: &Wanted, reason: Reason) -> Option<Decision> {
        let inside = self.inside();
        let mut refused = wanted.iter().filter_map(|(line, ..)| inside.lines.get(line)?.refused.as_ref());
        refused.find_map(|refused| refused.decision(wanted, reason, &inside.news))
    }

    /// To be called before the store is asked, for [`refuse`](Self::refuse).
    pub(crate) fn asking(&self, wanted: &Wanted) -> Asked {
        self.inside().news.until_now(wanted)
    }

    /// Remembers a denial that a request gets immediately. While there is a line, a flood consists of
    /// requests that want the same, and the store need not be asked about each of them.
    pub(crate) fn refuse(&self, wanted: Wanted, reason: Reason, decision: &Decision, asked: Asked) {
        let mut inside = self.inside();
        let lines = &mut inside.lines;
        let line = wanted.iter().map(|(line, ..)| *line).find(|line| lines.contains_key(line));
        if let Some(queue) = line.and_then(|line| lines.get_mut(&line)) {
            queue.refused = Some(Refusal::new(wanted, reason, decision, asked));
        }
    }

    /// Those who are in a line and came before this ticket, or all of them if there is no ticket.
    pub(crate) fn ahead(&self, line: &Line, before: Option<&Ticket>) -> Ahead {
        let inside = self.inside();
        let Some(queue) = inside.lines.get(line) else { return Ahead::default() };
        let before = before.map_or(u64::MAX, |ticket| inside.waiting[ticket.number].came);
        let ahead = queue.places.iter().take_while(|standing| standing.came < before);
        let cost = ahead.map(|standing| u64::from(standing.cost)).sum();
        Ahead { cost, head_cost: queue.places.front().map_or(0, |head| head.cost), ready_at: queue.ready_at }
    }
}

/// A place in the waiting room. Dropping it makes room immediately, and lets those behind move up.
#[derive(Debug)]
pub(crate) struct Ticket {
    room: Arc<Room>,
    number: usize,
    _inside: observe::Inside,
}

impl Ticket {
    /// Joins those of these lines that exist.
    pub(crate) fn join(&self, lines: impl Iterator<Item = (Line, u32)>) {
        let mut inside = self.room.inside();
        for (line, cost) in lines {
            if inside.lines.contains_key(&line) {
                inside.stand(self.number, line, cost);
            }
        }
    }

    /// Joins these lines, and leaves all others.
    pub(crate) fn stand_in(&self, lines: &[(Line, u32)]) {
        let mut inside = self.room.inside();
        let own = std::mem::take(&mut inside.waiting[self.number].lines);
        let stays = |line: &Line| lines.iter().any(|(other, _)| other == line);
        let (kept, left): (SmallVec<[Line; 1]>, SmallVec<[Line; 1]>) = own.into_iter().partition(stays);
        inside.waiting[self.number].lines = kept;
        let moved_up: SmallVec<[Waker; 1]> =
            left.into_iter().filter_map(|line| inside.step_out(self.number, line)).collect();
        for (line, cost) in lines {
            inside.stand(self.number, *line, *cost);
        }
        self.room.lines.store(inside.lines.len(), Ordering::Relaxed);
        drop(inside);
        moved_up.into_iter().for_each(Waker::wake);
    }

    /// Whether nobody is ahead of this one.
    pub(crate) fn is_first(&self) -> bool {
        self.room.inside().is_first(self.number)
    }

    /// Whether this one is in a line.
    pub(crate) fn is_in(&self, line: &Line) -> bool {
        self.room.inside().waiting[self.number].lines.contains(line)
    }

    /// Records when this one can go, for those behind it, if it is at the head of this line.
    pub(crate) fn expect(&self, line: &Line, ready_at: Instant) {
        let mut inside = self.room.inside();
        let queue = inside.lines.get_mut(line).filter(|queue| queue.is_led_by(self.number));
        if let Some(queue) = queue {
            queue.ready_at = Some(ready_at);
        }
    }

    /// Waits until this one is at the head of all its lines. Fails if the room is closed.
    pub(crate) fn turn(&self) -> impl Future<Output = Result<(), NoRoom>> + '_ {
        poll_fn(|cx| self.poll(cx, |inside, ticket| inside.is_first(ticket)))
    }

    /// Waits until this one [is called](Room::call). Fails if the room is closed.
    pub(crate) fn called(&self) -> impl Future<Output = Result<(), NoRoom>> + '_ {
        poll_fn(|cx| self.poll(cx, |inside, ticket| std::mem::take(&mut inside.waiting[ticket].is_called)))
    }

    /// Clears the call, because this one is about to ask the store.
    pub(crate) fn answer_call(&self) {
        self.room.inside().waiting[self.number].is_called = false;
    }

    /// Waits until the room is closed.
    pub(crate) fn closed(&self) -> impl Future<Output = NoRoom> + '_ {
        poll_fn(|cx| self.poll_closed(cx))
    }

    pub(crate) fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<NoRoom> {
        self.poll(cx, |_, _| false).map(|_| NoRoom)
    }

    fn poll(
        &self,
        cx: &mut Context<'_>,
        is_ready: impl FnOnce(&mut Inside, usize) -> bool,
    ) -> Poll<Result<(), NoRoom>> {
        let mut inside = self.room.inside();
        if inside.is_closed {
            return Poll::Ready(Err(NoRoom));
        }
        if is_ready(&mut inside, self.number) {
            return Poll::Ready(Ok(()));
        }
        let waker = &mut inside.waiting[self.number].waker;
        let before = match waker {
            Some(waker) if waker.will_wake(cx.waker()) => None,
            other => other.replace(cx.waker().clone()),
        };
        // Dropped without the lock, because dropping a waker runs unknown code.
        drop(inside);
        drop(before);
        Poll::Pending
    }
}

impl Queue {
    /// Whether this one is at its head.
    fn is_led_by(&self, ticket: usize) -> bool {
        self.places.front().is_some_and(|head| head.ticket == ticket)
    }
}

impl Inside {
    /// Whether this one is at the head of all its lines.
    fn is_first(&self, ticket: usize) -> bool {
        let mut lines = self.waiting[ticket].lines.iter();
        lines.all(|line| self.lines.get(line).is_none_or(|queue| queue.is_led_by(ticket)))
    }

    /// Puts a ticket into a line, behind those who came before it and ahead of all others. So of all who
    /// wait, the one that came first is at the head of all its lines, and there is always one that can go.
    fn stand(&mut self, ticket: usize, line: Line, cost: u32) {
        let Self { waiting, lines, .. } = self;
        let Waiting { came, lines: own, .. } = &mut waiting[ticket];
        let (came, queue) = (*came, lines.entry(line).or_default());
        let place = queue.places.partition_point(|standing| standing.came < came);
        if queue.places.get(place).is_some_and(|standing| standing.ticket == ticket) {
            return;
        }
        if place == 0 {
            queue.ready_at = None;
        }
        queue.places.insert(place, Standing { ticket, came, cost });
        own.push(line);
    }

    /// Takes a ticket out of a line, and returns the waker of the one that moves up to the head.
    fn step_out(&mut self, ticket: usize, line: Line) -> Option<Waker> {
        let queue = self.lines.get_mut(&line)?;
        let was_first = queue.is_led_by(ticket);
        queue.places.retain(|standing| standing.ticket != ticket);
        self.news.left(&line);
        match queue.places.front() {
            None => {
                self.lines.remove(&line);
                None
            }
            Some(head) if was_first => {
                queue.ready_at = None;
                // It got its wait when it was not at the head, and so was not called when budget came back.
                let head = &mut self.waiting[head.ticket];
                head.is_called = true;
                head.waker.take()
            }
            Some(_) => None,
        }
    }

    /// Takes a ticket out of the room, and returns its own waker and those of the ones that move up.
    fn leave(&mut self, ticket: usize) -> (Option<Waker>, SmallVec<[Waker; 1]>) {
        let Waiting { waker, lines, .. } = self.waiting.remove(ticket);
        (waker, lines.into_iter().filter_map(|line| self.step_out(ticket, line)).collect())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut inside = self.room.inside();
        // The waker is dropped without the lock, because dropping it runs unknown code.
        let (_waker, moved_up) = inside.leave(self.number);
        self.room.lines.store(inside.lines.len(), Ordering::Relaxed);
        drop(inside);
        moved_up.into_iter().for_each(Waker::wake);
    }
}
