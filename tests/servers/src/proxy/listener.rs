//! The thread of a proxy, which accepts connections and is told what to do with them.

use std::{
    io,
    net::{self, Ipv4Addr, SocketAddr},
    sync::{Arc, mpsc as blocking},
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
};

use super::{
    Counters,
    connection::{Connection, Shared},
    mode::{Mode, Setting},
};
use crate::{Result, wait};

/// What the thread is told. It answers when it has done so.
#[derive(Debug)]
pub(super) enum Order {
    Set(Mode, blocking::Sender<Result<()>>),
    Drop(blocking::Sender<Result<()>>),
}

#[derive(Debug)]
pub(super) struct Listener {
    port: u16,
    /// Nothing while connections are refused.
    listener: Option<TcpListener>,
    setting: watch::Sender<Arc<Setting>>,
    dropped: watch::Sender<u64>,
    shared: Shared,
}

impl Listener {
    /// Has to be called within a runtime.
    pub(super) fn new(
        listener: net::TcpListener,
        server: SocketAddr,
        counters: Arc<Counters>,
    ) -> io::Result<Self> {
        let (setting, set) = watch::channel(Arc::default());
        let (dropped, told) = watch::channel(0);
        let shared = Shared { server, setting: set, dropped: told, counters };
        let port = listener.local_addr()?.port();
        let listener = Some(TcpListener::from_std(listener)?);
        Ok(Self { port, listener, setting, dropped, shared })
    }

    /// Goes on until nobody can give orders any more.
    pub(super) async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    None => return,
                    Some(Order::Set(mode, done)) => {
                        let _ = done.send(self.set(mode));
                    }
                    Some(Order::Drop(done)) => {
                        self.drop_connections().await;
                        let _ = done.send(Ok(()));
                    }
                },
                Ok(client) = accept(self.listener.as_ref()) => {
                    tokio::spawn(Connection::new(client, self.shared.clone()).serve());
                }
            }
        }
    }

    fn set(&mut self, mode: Mode) -> Result<()> {
        if mode == Mode::Refuse {
            self.listener = None;
        } else if self.listener.is_none() {
            // For a moment the port can be somebody else's who looks for a free one.
            let bound = wait::until("the port to be free again", wait::LIMIT, || bind(self.port))?;
            self.listener = Some(TcpListener::from_std(bound)?);
        }
        self.setting.send_modify(|setting| *setting = Arc::new(Setting { mode, number: setting.number + 1 }));
        Ok(())
    }

    /// Tells all connections to close, and waits until they have.
    async fn drop_connections(&self) {
        self.dropped.send_modify(|dropped| *dropped += 1);
        while self.shared.counters.open() > 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// The next connection; none ever if nobody listens.
async fn accept(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(client, _)| client),
        None => std::future::pending().await,
    }
}

/// Listens on the port, for a runtime.
pub(super) fn bind(port: u16) -> io::Result<net::TcpListener> {
    let listener = net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
