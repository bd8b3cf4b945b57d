//! Connections that have gone over to another protocol, such as WebSocket.

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;
use tracing::{debug, warn};

use crate::listener::Permit;
use crate::metrics::Open;
use crate::shutdown::Shutdown;

/// Both ends of a connection that is about to go over.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) client: OnUpgrade,
    pub(crate) upstream: OnUpgrade,
}

/// Passes on what either end says, until both have ended or the gateway ends. The permit is that of the client's connection.
pub(crate) fn pass_on(ends: Ends, permit: Option<Permit>, shutdown: &Shutdown) {
    let cut = shutdown.cut();
    shutdown.spawn(async move {
        let _permit = permit;
        let _open = Open::upgrade();
        tokio::select! {
            () = run(ends) => {}
            () = cut => debug!("an upgraded connection is cut"),
        }
    });
}

async fn run(Ends { client, upstream }: Ends) {
    let (client, upstream): (Upgraded, Upgraded) = match tokio::try_join!(client, upstream) {
        Ok(ends) => ends,
        Err(error) => return warn!(%error, "an upgrade failed"),
    };
    match copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(upstream)).await {
        Ok((up, down)) => debug!(up, down, "an upgraded connection has ended"),
        // One of them has gone without a word, which is not for the other to mend.
        Err(error) => debug!(%error, "an upgraded connection broke off"),
    }
}
