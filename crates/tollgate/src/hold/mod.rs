//! Holding back instead of refusing.
//!
//! Whoever waits has a [`Ticket`] for the waiting room, whose size is bounded. A leaky bucket tells each how long to
//! wait; for all else, those who wait for one key stand in a [line](room), and whoever is at its head asks the store
//! again when it is time ([`turn`]). So those who came first go first, and a line costs the store what its head asks.

mod place;
mod room;
mod turn;

pub(crate) use self::place::{Held, Place};
pub(crate) use self::room::{Room, Ticket};
pub(crate) use self::turn::{Patience, Turn, Turning};
