//! Connections that have switched to another protocol, such as WebSocket.

use std::io;
use std::pin::pin;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, split};
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::listener::Permit;
use crate::metrics::Open;
use crate::shutdown::Shutdown;

/// Both ends of a connection that is about to switch.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) client: OnUpgrade,
    pub(crate) upstream: OnUpgrade,
}

/// Forwards data between both ends, until both have ended or the gateway shuts down. The permit is that of
/// the client's connection.
///
/// Either end may be silent for as long as it likes. But once one has ended, the other has no more than
/// `idle`.
pub(crate) fn pass_on(ends: Ends, permit: Option<Permit>, idle: Duration, shutdown: &Shutdown) {
    let cut = shutdown.cut();
    shutdown.spawn(async move {
        let _permit = permit;
        let _open = Open::upgrade();
        tokio::select! {
            () = run(ends, idle) => {}
            () = cut => debug!("an upgraded connection is cut"),
        }
    });
}

async fn run(Ends { client, upstream }: Ends, idle: Duration) {
    let (client, upstream) = match tokio::try_join!(client, upstream) {
        Ok((client, upstream)) => (TokioIo::new(client), TokioIo::new(upstream)),
        Err(error) => return warn!(%error, "an upgrade failed"),
    };
    let ((client_reads, client_writes), (upstream_reads, upstream_writes)) = (split(client), split(upstream));
    let mut up = pin!(copy(client_reads, upstream_writes));
    let mut down = pin!(copy(upstream_reads, client_writes));
    let ended = tokio::select! {
        ended = &mut up => match ended {
            Ok(()) => timeout(idle, down).await.unwrap_or(Ok(())),
            Err(error) => Err(error),
        },
        ended = &mut down => match ended {
            Ok(()) => timeout(idle, up).await.unwrap_or(Ok(())),
            Err(error) => Err(error),
        },
    };
    match ended {
        Ok(()) => debug!("an upgraded connection has ended"),
        // One end disappeared abruptly, which the other cannot repair.
        Err(error) => debug!(%error, "an upgraded connection broke off"),
    }
}

/// Forwards data in one direction, and its end.
async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
    tokio::io::copy(&mut from, &mut to).await?;
    to.shutdown().await
}
