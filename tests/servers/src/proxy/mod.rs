//! A bad network.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc as blocking,
    },
    thread::{self, JoinHandle},
};

use tokio::sync::mpsc;

use self::listener::{Listener, Order};
use crate::{Error, Result, ports::Port, wait};

mod connection;
mod filter;
mod listener;
mod mode;
mod resp;

pub use self::mode::Mode;

/// A TCP proxy in front of a server on this machine, which can do to connections what networks do.
///
/// It has its own thread, and needs nothing from the caller's runtime.
///
/// ```
/// use ratekeeper_servers::{Mode, Proxy, RedisServer};
///
/// # fn main() -> ratekeeper_servers::Result<()> {
/// let server = RedisServer::start()?;
/// let proxy = Proxy::start(server.port())?;
/// let client = redis::Client::open(server.url_with_port(proxy.port()))?;
/// assert!(client.get_connection().is_ok());
/// proxy.set(Mode::Refuse)?;
/// assert!(client.get_connection().is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    counters: Arc<Counters>,
    /// `None` once it is dropped, which ends the thread.
    orders: Option<mpsc::UnboundedSender<Order>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// What has gone through a [`Proxy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// How many connections have been accepted.
    pub connections: u64,
    /// How many of them are open.
    pub open: u64,
    /// How many bytes have been forwarded to the server, or are about to be.
    pub request_bytes: u64,
    /// How many bytes have been forwarded to clients, or are about to be.
    pub reply_bytes: u64,
}

#[derive(Debug, Default)]
struct Counters {
    connections: AtomicU64,
    open: AtomicU64,
    request_bytes: AtomicU64,
    reply_bytes: AtomicU64,
}

impl Counters {
    fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }
}

impl Proxy {
    /// Starts a proxy in front of the server on this port of 127.0.0.1, which forwards everything.
    ///
    /// # Errors
    ///
    /// If there is no port or no thread for it.
    pub fn start(server: u16) -> Result<Self> {
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, server));
        let (port, bound) = wait::until("a port", wait::LIMIT, || {
            let port = Port::reserve();
            listener::bind(port.number()).map(|bound| (port, bound))
        })?;
        let counters = Arc::new(Counters::default());
        let (orders, received) = mpsc::unbounded_channel();
        let counted = Arc::clone(&counters);
        // The whole runtime is in the thread, since it must not be dropped within another one.
        let thread = thread::Builder::new().name("proxy".to_owned()).spawn(move || {
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
                Listener::new(bound, server, counted)?.run(received).await;
                Ok(())
            })
        })?;
        Ok(Self { port, counters, orders: Some(orders), thread: Some(thread) })
    }

    /// The port for clients. [`RedisServer::url_with_port`](crate::RedisServer::url_with_port) turns it into
    /// an address.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Sets the mode. It is in force when this returns.
    ///
    /// # Errors
    ///
    /// If somebody else took the port while connections were refused, or the proxy's thread has failed.
    pub fn set(&self, mode: Mode) -> Result<()> {
        self.order(|done| Order::Set(mode, done))
    }

    /// Closes all existing connections. New ones are accepted if the mode allows it.
    ///
    /// # Errors
    ///
    /// If the proxy's thread has failed.
    pub fn drop_connections(&self) -> Result<()> {
        self.order(Order::Drop)
    }

    /// What has gone through so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            connections: self.counters.connections.load(Ordering::Relaxed),
            open: self.counters.open(),
            request_bytes: self.counters.request_bytes.load(Ordering::Relaxed),
            reply_bytes: self.counters.reply_bytes.load(Ordering::Relaxed),
        }
    }

    /// Gives an order, and waits until it is carried out.
    fn order(&self, order: impl FnOnce(blocking::Sender<Result<()>>) -> Order) -> Result<()> {
        let gone = || Error::new("the proxy's thread has ended");
        let (done, answer) = blocking::channel();
        let orders = self.orders.as_ref().ok_or_else(gone)?;
        orders.send(order(done)).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // If it failed, the test has noticed by what did not come through.
            let _ = thread.join();
        }
    }
}
