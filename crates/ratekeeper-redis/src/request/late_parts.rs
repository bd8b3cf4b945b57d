//! The result of a request as a whole, for those of its parts whose answers come too late.

use std::sync::{Mutex, PoisonError};

use crate::request::{Ask, Decided};

/// A request that is charged in parts.
///
/// A part whose time is up is reported as failed, but a server may have charged it nevertheless, and in time.
/// What is done when its answer comes depends on the answer that the request as a whole was given.
#[derive(Debug)]
pub(crate) struct Whole(Mutex<End>);

#[derive(Debug)]
enum End {
    /// Not answered yet. These parts were charged, but their answers came too late.
    Open(Vec<Decided>),
    /// It was denied, or has gone away: everything that was charged is given back.
    Undone,
    /// It was admitted; or it was told that the store failed, and its rules may have let it in.
    Over,
}

impl Whole {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(End::Open(Vec::new())))
    }

    /// A part was decided, but too late to be heard. Returns what is to be given back.
    pub(crate) fn late(&self, decided: Decided) -> Vec<Ask> {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            End::Open(late) => late.push(decided),
            End::Undone => return decided.give_back(),
            End::Over => {}
        }
        Vec::new()
    }

    /// The request is denied, or goes away. Returns what is to be given back; nothing if it has ended before.
    pub(crate) fn undo(&self) -> Vec<Ask> {
        self.end(End::Undone).iter().flat_map(Decided::give_back).collect()
    }

    /// The request got an answer under which late charges stay charged.
    pub(crate) fn is_over(&self) {
        drop(self.end(End::Over));
    }

    /// Ends the request, once, and returns the parts that were too late so far.
    fn end(&self, end: End) -> Vec<Decided> {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            open @ End::Open(_) => match std::mem::replace(open, end) {
                End::Open(late) => late,
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }
}
