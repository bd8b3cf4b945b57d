//! Holding back instead of refusing.
//!
//! Each waiting request has a [`Ticket`] for the waiting room, whose size is bounded. A leaky bucket
//! determines how long each request waits. For all other algorithms, the requests that wait for one key stand
//! in a [line](room), and the one at its head asks the store again when it is time ([`turn`]). So first come
//! is first served, and a line costs the store only what its head asks.

mod place;
mod refusal;
mod room;
mod turn;

pub(crate) use self::place::{Held, Place};
pub(crate) use self::room::{Room, Ticket};
pub(crate) use self::turn::{Patience, Turn, Turning};
