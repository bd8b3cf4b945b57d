//! Ports that nobody else uses.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use socket2::{Domain, Socket, Type};

/// The first port that is used.
///
/// These ports are below those that systems give to outgoing connections. Otherwise a client that keeps
/// trying to reach a server that is gone would be given that port itself some day, and be connected to
/// itself.
const FIRST: u16 = 10_000;
const COUNT: u32 = 10_000;

/// How far above a node's port is the one on which it speaks to other nodes of its cluster. Before Redis 7.0
/// this is fixed. These ports are above all our other ports, and also below those of outgoing connections.
const BUS: u16 = 10_000;

/// A port of 127.0.0.1, and the one for the cluster's bus.
///
/// Where the system allows it, as Linux does, the port is reserved for as long as this lives, even while the
/// server is down: a client that looks for the server must not find one of another test there. Elsewhere it
/// was free a moment ago, and is likely to stay free.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _kept: Option<[Socket; 2]>,
}

impl Port {
    /// A port that nobody uses.
    pub(crate) fn reserve() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Test processes that run at the same time start elsewhere, so they rarely try the same ports.
        let start = process::id() % COUNT * 7919;
        loop {
            let next = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
            let number = FIRST + ((start + next) % COUNT) as u16;
            if let (Ok(port), Ok(bus)) = (reserve(number), reserve(number + BUS)) {
                let kept = can_listen(number).then_some([port, bus]);
                return Self { number, _kept: kept };
            }
        }
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

/// Fails if anybody else has the port, whether reserved or in use.
fn reserve(port: u16) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
    // From now on others that set the same option can listen there, as servers do. They cannot reserve it,
    // because `reserve` sets the option only after binding.
    socket.set_reuse_address(true)?;
    Ok(socket)
}

/// Whether a server can listen on a port that is reserved.
fn can_listen(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_port_that_is_listened_on_is_not_given_again() {
        let port = Port::reserve();
        let address = (Ipv4Addr::LOCALHOST, port.number());
        let listener = TcpListener::bind(address).expect("it is ours");
        reserve(port.number()).expect_err("it is in use");
        TcpStream::connect(address).expect("it is listened on");
        drop(listener);
    }

    #[test]
    fn a_port_is_kept_while_nobody_listens() {
        let port = Port::reserve();
        if port._kept.is_some() {
            reserve(port.number()).expect_err("it is kept");
        }
        let error = TcpStream::connect((Ipv4Addr::LOCALHOST, port.number())).expect_err("nobody listens");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        for _ in 0..2 {
            drop(TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).expect("it is ours"));
        }
    }
}
