//! One connection through a proxy.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    Counters,
    filter::Filter,
    mode::{Direction, Mode, Setting},
};

/// How much is read at once, and how often before something has been written.
const CHUNK: usize = 64 * 1024;
const CHUNKS: usize = 1024;

/// What all connections share.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) server: SocketAddr,
    pub(super) setting: watch::Receiver<Arc<Setting>>,
    /// Changes when all connections have to be closed.
    pub(super) dropped: watch::Receiver<u64>,
    pub(super) counters: Arc<Counters>,
}

/// An accepted connection.
#[derive(Debug)]
pub(super) struct Connection {
    client: TcpStream,
    shared: Shared,
}

impl Connection {
    /// From now on it is counted, and learns when connections have to be closed.
    pub(super) fn new(client: TcpStream, mut shared: Shared) -> Self {
        shared.counters.connections.fetch_add(1, Ordering::Relaxed);
        shared.counters.open.fetch_add(1, Ordering::Relaxed);
        shared.dropped.mark_unchanged();
        Self { client, shared }
    }

    /// Serves it until one side closes it, or it is dropped.
    pub(super) async fn serve(self) {
        let Self { client, shared } = self;
        let mut dropped = shared.dropped.clone();
        tokio::select! {
            _ = dropped.changed() => {}
            // One side has gone away. The other one notices when both are closed here.
            _ = carry(client, &shared) => {}
        }
        shared.counters.open.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn carry(mut client: TcpStream, shared: &Shared) -> io::Result<()> {
    let swallowed = shared.setting.borrow().mode == Mode::BlackHole;
    if swallowed {
        // Even if there is no server behind it.
        let mut bytes = vec![0; CHUNK];
        while client.read(&mut bytes).await? > 0 {}
        return Ok(());
    }
    let mut server = TcpStream::connect(shared.server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    tokio::select! {
        ended = pump(from_client, to_server, Direction::Requests, shared) => ended,
        ended = pump(from_server, to_client, Direction::Replies, shared) => ended,
    }
}

/// Forwards bytes in one direction, each when it is due.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    direction: Direction,
    shared: &Shared,
) -> io::Result<()> {
    let counter = match direction {
        Direction::Requests => &shared.counters.request_bytes,
        Direction::Replies => &shared.counters.reply_bytes,
    };
    let mut filter = Filter::new(direction);
    let mut buffer = vec![0; CHUNK];
    let mut queue = VecDeque::<(Instant, Vec<u8>)>::new();
    let mut open = true;
    while open || !queue.is_empty() {
        let due = queue.front().map_or_else(Instant::now, |(due, _)| *due);
        tokio::select! {
            biased;
            () = sleep_until(due), if !queue.is_empty() => {
                let (_, bytes) = queue.pop_front().unwrap_or((due, Vec::new()));
                // Counted first, so that whoever has received the last byte finds it counted.
                counter.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                to.write_all(&bytes).await?;
            }
            read = from.read(&mut buffer), if open && queue.len() < CHUNKS => {
                let read = read?;
                let setting = Arc::clone(&shared.setting.borrow());
                let passed = filter.pass(&setting, buffer[..read].to_vec());
                open = read > 0 && !passed.close;
                queue.push_back((Instant::now() + passed.delay, passed.bytes));
            }
        }
    }
    Ok(())
}
