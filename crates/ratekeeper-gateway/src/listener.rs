//! Client connections.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use ratekeeper::key::PeerAddr;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;
use tower::{Service, ServiceExt};
use tracing::{debug, warn};

use crate::activity::Activity;
use crate::body::Body;
use crate::metrics::{self, Open};
use crate::shutdown::Shutdown;
use crate::upstream::KEEP_ALIVE;

/// The longest head of a request, and how much of a body is read ahead.
const BUFFER: usize = 64 * 1024;

/// How much the system buffers of what a client has not read yet. By default it would buffer megabytes, and
/// then a slow client looks for minutes as if it read nothing.
#[cfg(target_os = "linux")]
const UNSENT: u32 = 128 * 1024;

/// How long to wait when no connection can be accepted, such as when too many files are open.
const PAUSE: Duration = Duration::from_millis(100);

/// Counts a connection as open for as long as any clone of this exists.
#[derive(Clone, Debug)]
pub(crate) struct Permit(
    #[expect(dead_code, reason = "held for as long as the connection is open")]
    Arc<(tokio::sync::OwnedSemaphorePermit, Open)>,
);

/// How clients are served.
#[derive(Clone, Debug)]
pub(crate) struct Listening {
    /// How long a client may take to send a head, or another one.
    pub(crate) header_timeout: Duration,
    /// How long a client may stop reading.
    pub(crate) idle_timeout: Duration,
    pub(crate) max_connections: usize,
    pub(crate) shutdown: Shutdown,
}

impl Listening {
    /// Serves clients until the gateway shuts down.
    pub(crate) async fn serve<S>(self, listener: TcpListener, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
    {
        let room = Arc::new(Semaphore::new(self.max_connections));
        let server = Arc::new(self.server());
        let mut draining = pin!(self.shutdown.draining());
        loop {
            let accept = async {
                // The semaphore is never closed.
                let permit = Arc::clone(&room).acquire_owned().await.ok()?;
                Some((permit, listener.accept().await))
            };
            let (permit, accepted) = tokio::select! {
                accepted = accept => match accepted {
                    Some(accepted) => accepted,
                    None => return,
                },
                () = &mut draining => return,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let permit = Permit(Arc::new((permit, Open::connection())));
                    let connection =
                        connection(Arc::clone(&server), stream, peer, permit, service.clone(), self.clone());
                    self.shutdown.spawn(connection);
                }
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn server(&self) -> auto::Builder<TokioExecutor> {
        let mut server = auto::Builder::new(TokioExecutor::new());
        server.http1().timer(TokioTimer::new()).header_read_timeout(self.header_timeout).max_buf_size(BUFFER);
        server
            .http2()
            .timer(TokioTimer::new())
            // A client that is gone does not say so.
            .keep_alive_interval(self.header_timeout)
            .keep_alive_timeout(self.header_timeout);
        server
    }
}

async fn connection<S>(
    server: Arc<auto::Builder<TokioExecutor>>,
    stream: TcpStream,
    peer: SocketAddr,
    permit: Permit,
    service: S,
    listening: Listening,
) where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    if let Err(error) = prepare(&stream) {
        // The client has already disconnected.
        return debug!(%peer, %error, "a connection cannot be served");
    }
    // A client that does not read would keep the upstream waiting forever.
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(listening.idle_timeout));
    let activity = Activity::new();
    let serving = {
        let activity = activity.clone();
        service_fn(move |mut request: Request<Incoming>| {
            let served = activity.begin();
            // Only the acceptor of a connection knows its peer.
            request.extensions_mut().insert(PeerAddr(peer));
            request.extensions_mut().insert(permit.clone());
            let answer = answer(service.clone(), request, peer);
            async move { Ok::<_, Infallible>(answer.await.map(|body| body.serving(served))) }
        })
    };
    let mut connection = pin!(server.serve_connection_with_upgrades(TokioIo::new(Box::pin(stream)), serving));
    let mut ends = pin!(async {
        tokio::select! {
            () = listening.shutdown.draining() => {}
            () = activity.ceases_for(listening.header_timeout) => {}
        }
    });
    let mut is_ending = false;
    loop {
        tokio::select! {
            result = connection.as_mut() => {
                if let Err(error) = result {
                    debug!(%peer, error, "a connection broke off");
                }
                return;
            }
            () = &mut ends, if !is_ending => {
                is_ending = true;
                connection.as_mut().graceful_shutdown();
            }
            () = activity.stalls_for(listening.idle_timeout) => {
                return debug!(%peer, "a client takes no answer");
            }
            // A client of HTTP/2 can leave unread what was handed over long ago.
            () = activity.ceases_for(listening.header_timeout + listening.idle_timeout), if is_ending => {
                return debug!(%peer, "a client does not end");
            }
            () = listening.shutdown.cut() => return debug!(%peer, "a connection is cut"),
        }
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    #[cfg(target_os = "linux")]
    socket.set_tcp_notsent_lowat(UNSENT)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE))
}

/// Calls the service, and counts and logs the request.
async fn answer<S>(service: S, request: Request<Incoming>, peer: SocketAddr) -> Response<Body>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>,
{
    let _open = Open::request();
    let start = tokio::time::Instant::now();
    // The query is left out: it may contain secrets that should not be there.
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = match service.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let status = response.status();
    metrics::answered(status);
    debug!(%peer, %method, path, status = status.as_u16(), seconds = start.elapsed().as_secs_f64(), "answered");
    response
}
