//! The thread of a proxy, which accepts connections and receives orders about them.

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

/// An order to the thread. It answers when it has carried it out.
#[derive(Debug)]
pub(super) enum Order {
    Set(Mode, blocking::Sender<Result<()>>),
    Drop(blocking::Sender<Result<()>>),
}

#[derive(Debug)]
pub(super) struct Listener {
    port: u16,
    /// `None` while connections are refused.
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

    /// Runs until nobody can give orders any more.
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
            // For a moment somebody else who looks for a free port may have it.
            let bound = wait::until("the port to be free again", wait::LIMIT, || bind(self.port))?;
            self.listener = Some(TcpListener::from_std(bound)?);
        }
        self.setting.send_modify(|setting| *setting = Arc::new(Setting { mode, number: setting.number + 1 }));
        Ok(())
    }

    /// Closes all connections, and waits until they are closed.
    async fn drop_connections(&self) {
        self.dropped.send_modify(|dropped| *dropped += 1);
        while self.shared.counters.open() > 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// The next connection; waits forever if nobody listens.
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
