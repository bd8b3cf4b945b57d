//! The waiting room, and the lines in it.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use slab::Slab;
use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::Key;

/// Which line: a rule, by its number, and a key.
pub(crate) type Line = (usize, Key);

/// Where those are who wait.
#[derive(Debug)]
pub(crate) struct Room {
    /// How many lines there are, so that most need not take the lock to see that there is none.
    lines: AtomicUsize,
    max_waiting: usize,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    waiting: Slab<Waiting>,
    lines: HashMap<Line, Queue>,
    is_closed: bool,
}

#[derive(Debug, Default)]
struct Waiting {
    waker: Option<Waker>,
    lines: SmallVec<[Line; 1]>,
}

#[derive(Debug, Default)]
struct Queue {
    places: VecDeque<Standing>,
    /// When its head can go, as far as is known.
    ready_at: Option<Instant>,
}

#[derive(Debug)]
struct Standing {
    ticket: usize,
    cost: u32,
}

/// Nobody can wait here: the room is full, or closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoRoom;

/// Who is in a line already.
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
        // Nothing in here panics half way through.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place in the room, if there is one.
    pub(crate) fn enter(self: &Arc<Self>) -> Result<Ticket, NoRoom> {
        let mut inside = self.inside();
        if inside.is_closed || inside.waiting.len() >= self.max_waiting {
            return Err(NoRoom);
        }
        let number = inside.waiting.insert(Waiting::default());
        Ok(Ticket { room: Arc::clone(self), number })
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.inside().waiting.len()
    }

    /// Nobody waits here any more.
    pub(crate) fn close(&self) {
        let mut inside = self.inside();
        inside.is_closed = true;
        let wakers: Vec<_> =
            inside.waiting.iter_mut().filter_map(|(_, waiting)| waiting.waker.take()).collect();
        drop(inside);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether there is a line of one of these.
    pub(crate) fn has_line(&self, mut lines: impl Iterator<Item = Line>) -> bool {
        // Whoever joins at the same moment has come at the same moment.
        self.lines.load(Ordering::Relaxed) > 0 && {
            let inside = self.inside();
            lines.any(|line| inside.lines.contains_key(&line))
        }
    }

    /// Who is in a line, before this ticket if it is there.
    pub(crate) fn ahead(&self, line: &Line, before: Option<&Ticket>) -> Ahead {
        let inside = self.inside();
        let Some(queue) = inside.lines.get(line) else { return Ahead::default() };
        let standing = queue.places.iter();
        let ahead =
            standing.take_while(|standing| before.is_none_or(|ticket| standing.ticket != ticket.number));
        let cost = ahead.map(|standing| u64::from(standing.cost)).sum();
        Ahead { cost, head_cost: queue.places.front().map_or(0, |head| head.cost), ready_at: queue.ready_at }
    }
}

/// A place in the waiting room. Dropping it makes room at once, and lets those behind move up.
#[derive(Debug)]
pub(crate) struct Ticket {
    room: Arc<Room>,
    number: usize,
}

impl Ticket {
    /// Goes to the end of these lines, of all at the same moment: so of all who wait, the one that joined first is at the
    /// head of all its lines, and somebody can always go.
    pub(crate) fn join(&self, lines: impl Iterator<Item = (Line, u32)>) {
        let mut inside = self.room.inside();
        let Inside { waiting, lines: queues, .. } = &mut *inside;
        for (line, cost) in lines {
            let queue = queues.entry(line).or_default();
            // A key that is charged twice stands in its line once.
            match queue.places.back_mut().filter(|last| last.ticket == self.number) {
                Some(own) => own.cost = own.cost.saturating_add(cost),
                None => {
                    queue.places.push_back(Standing { ticket: self.number, cost });
                    waiting[self.number].lines.push(line);
                }
            }
        }
        self.room.lines.store(queues.len(), Ordering::Relaxed);
    }

    /// Tells those behind when this one can go, in the lines that it is at the head of.
    pub(crate) fn expect(&self, ready_at: Instant) {
        let mut inside = self.room.inside();
        let Inside { waiting, lines, .. } = &mut *inside;
        for line in &waiting[self.number].lines {
            let queue = lines.get_mut(line).filter(|queue| queue.is_led_by(self.number));
            if let Some(queue) = queue {
                queue.ready_at = Some(ready_at);
            }
        }
    }

    /// When this one is at the head of all its lines; an error if the room is closed.
    pub(crate) fn turn(&self) -> impl Future<Output = Result<(), NoRoom>> + '_ {
        poll_fn(|cx| self.poll(cx, Inside::is_first))
    }

    /// When the room is closed.
    pub(crate) fn closed(&self) -> impl Future<Output = NoRoom> + '_ {
        poll_fn(|cx| self.poll_closed(cx))
    }

    pub(crate) fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<NoRoom> {
        self.poll(cx, |_, _| false).map(|_| NoRoom)
    }

    fn poll(
        &self,
        cx: &mut Context<'_>,
        is_ready: impl FnOnce(&Inside, usize) -> bool,
    ) -> Poll<Result<(), NoRoom>> {
        let mut inside = self.room.inside();
        if inside.is_closed {
            return Poll::Ready(Err(NoRoom));
        }
        if is_ready(&inside, self.number) {
            return Poll::Ready(Ok(()));
        }
        match &mut inside.waiting[self.number].waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
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

    /// Takes a ticket out of its lines, and says whom that lets move up.
    fn leave(&mut self, ticket: usize) -> SmallVec<[Waker; 1]> {
        let mut moved_up = SmallVec::new();
        for line in self.waiting.remove(ticket).lines {
            let Some(queue) = self.lines.get_mut(&line) else { continue };
            let was_first = queue.is_led_by(ticket);
            queue.places.retain(|standing| standing.ticket != ticket);
            match queue.places.front() {
                None => _ = self.lines.remove(&line),
                Some(head) if was_first => {
                    queue.ready_at = None;
                    moved_up.extend(self.waiting[head.ticket].waker.take());
                }
                Some(_) => {}
            }
        }
        moved_up
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut inside = self.room.inside();
        let moved_up = inside.leave(self.number);
        self.room.lines.store(inside.lines.len(), Ordering::Relaxed);
        drop(inside);
        moved_up.into_iter().for_each(Waker::wake);
    }
}
