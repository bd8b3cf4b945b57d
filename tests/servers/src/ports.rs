//! Ports that nobody uses.

use std::{
    net::{Ipv4Addr, TcpListener},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// From which ports are taken.
///
/// Below those that systems give to outgoing connections: a client that tries again and again to reach a server
/// that is gone would otherwise be given that port itself some day, and be connected to itself.
const FIRST: u16 = 10_000;
const COUNT: u32 = 12_000;

/// How far above a node's port the one is on which it speaks to other nodes of its cluster. Before Redis 7.0 it
/// is always that far. Below the outgoing connections' as well.
pub(crate) const BUS: u16 = 10_000;

/// A port on which nobody listened a moment ago, nor on its [`BUS`].
///
/// Somebody else may be quicker to take it, so who listens there has to ask for another if it is in use.
pub(crate) fn free() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // So that test processes that run at the same time rarely try the same ones.
    let start = process::id() % COUNT * 7919;
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = FIRST + ((start + next) % COUNT) as u16;
        if is_free(port) && is_free(port + BUS) {
            return port;
        }
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_taken_is_not_given() {
        let hold = || TcpListener::bind((Ipv4Addr::LOCALHOST, free())).ok();
        let held: Vec<_> = (0..8).filter_map(|_| hold()).collect();
        let port = free();
        assert!(held.iter().all(|held| held.local_addr().expect("it is bound").port() != port));
        assert!((FIRST..22_000).contains(&port));
    }
}
