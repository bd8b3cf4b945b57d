//! A connection that hears of changes.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, Socket};

/// The channel in which changes are announced.
const LISTEN: &str = "LISTEN ratekeeper_rules";

/// A connection, which ends when it is dropped.
pub(super) struct Link {
    pub(super) client: Client,
    /// Holds an item if a change was announced, and is closed if the connection is lost.
    pub(super) told: mpsc::Receiver<()>,
    task: AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Connecting = Pin<Box<dyn Future<Output = Result<Link, Error>> + Send>>;

/// Makes connections, secured in whichever way the application chooses.
#[derive(Clone)]
pub(super) struct Connector(Arc<dyn Fn() -> Connecting + Send + Sync>);

impl Connector {
    pub(super) fn new<T>(config: Config, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let config = Arc::new(config);
        Self(Arc::new(move || {
            let (config, tls) = (Arc::clone(&config), tls.clone());
            Box::pin(async move {
                let (client, connection) = config.connect(tls).await?;
                let link = drive(client, connection);
                link.client.batch_execute(LISTEN).await?;
                Ok(link)
            })
        }))
    }

    /// A connection that listens already: what changes from now on is reported.
    pub(super) fn connect(&self) -> Connecting {
        (self.0)()
    }
}

/// Drives a connection, which does nothing by itself.
fn drive<T>(client: Client, mut connection: Connection<Socket, T>) -> Link
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (tell, told) = mpsc::channel(1);
    let task = tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(_) = message {
                // If there is an item in it already, that is about to be read.
                let _ = tell.try_send(());
            }
        }
    });
    Link { client, told, task: task.abort_handle() }
}
