//! Forwards requests to the upstream.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use http::header::TRANSFER_ENCODING;
use http::{HeaderValue, Request, Response, StatusCode, request};
use http_body::Body as _;
use http_body_util::{Either, Empty};
use hyper::body::Incoming;
use ratekeeper::key::PeerAddr;
use tower::{Service, service_fn};
use tracing::{debug, warn};

use crate::body::Body;
use crate::failure::Failure;
use crate::forwarding::Forwarding;
use crate::listener::Permit;
use crate::metrics;
use crate::shutdown::Shutdown;
use crate::timeouts::{Direction, Progress, Timed, Timeouts};
use crate::upgrade::{self, Ends};
use crate::upstream::{Sent, UpstreamClient};

/// Takes requests to the upstream, and responses back.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    pub(crate) client: UpstreamClient,
    pub(crate) forwarding: Forwarding,
    pub(crate) timeouts: Timeouts,
    pub(crate) shutdown: Shutdown,
}

impl Proxy {
    /// The service behind the limits.
    pub(crate) fn service(
        self,
    ) -> impl Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send
    {
        let proxy = Arc::new(self);
        service_fn(move |request| {
            let proxy = Arc::clone(&proxy);
            async move { Ok(proxy.answer(request).await) }
        })
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        match self.forward(request).await {
            Ok(response) => response,
            Err(failure) => {
                metrics::failed(&failure);
                let status = failure.status().as_u16();
                if failure.is_of_upstream() {
                    warn!(%method, path, status, "{failure}");
                } else {
                    debug!(%method, path, status, "{failure}");
                }
                failure.response()
            }
        }
    }

    async fn forward(&self, mut request: Request<Incoming>) -> Result<Response<Body>, Failure> {
        let client = hyper::upgrade::on(&mut request);
        let (mut head, body) = request.into_parts();
        let permit = head.extensions.get::<Permit>().cloned();
        // Inserted by the listener.
        let peer = head.extensions.get().map(|PeerAddr(peer)| peer.ip());
        let peer = peer.unwrap_or_else(|| std::net::Ipv4Addr::UNSPECIFIED.into());
        let offer = self.forwarding.request(&mut head, peer)?;
        // The layers' extensions are not for the upstream's connection.
        head.extensions.clear();

        let progress = Arc::new(Progress::new(self.timeouts));
        let start = Instant::now();
        let mut answer = self.ask(head, body, &progress).await?;
        metrics::responded(answer.status(), start.elapsed());
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            let (mut head, body) = answer.into_parts();
            self.forwarding.response(&mut head, None);
            return Ok(Response::from_parts(head, Timed::new(body, Direction::Down, progress).into()));
        }

        let upstream = hyper::upgrade::on(&mut answer);
        let (mut head, _) = answer.into_parts();
        let accepted = offer.and_then(|offer| offer.accepted(&head)).ok_or(Failure::Unasked)?;
        self.forwarding.response(&mut head, Some(&accepted));
        debug!(protocol = accepted.as_str(), "upgraded");
        upgrade::pass_on(Ends { client, upstream }, permit, self.timeouts.idle, &self.shutdown);
        Ok(Response::from_parts(head, Body::default()))
    }

    /// Sends a request to the upstream, and once more if it may be repeated and the upstream had closed the
    /// connection.
    async fn ask(
        &self,
        mut head: request::Parts,
        body: Incoming,
        progress: &Arc<Progress>,
    ) -> Result<Response<Incoming>, Failure> {
        if !body.is_end_stream() {
            if body.size_hint().exact().is_none() {
                // Otherwise the client would omit the body of a GET, since one is unusual.
                head.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            }
            let body = Timed::new(body, Direction::Up, Arc::clone(progress));
            return self.ask_once(Request::from_parts(head, Either::Left(body)), progress).await;
        }
        let request = |head| Request::from_parts(head, Either::Right(Empty::new()));
        if !head.method.is_safe() {
            return self.ask_once(request(head), progress).await;
        }
        match self.ask_once(request(head.clone()), progress).await {
            Err(failure) if failure.is_closed_early() => {
                metrics::retried();
                self.ask_once(request(head), progress).await
            }
            answer => answer,
        }
    }

    async fn ask_once(
        &self,
        request: Request<Sent>,
        progress: &Progress,
    ) -> Result<Response<Incoming>, Failure> {
        tokio::select! {
            answer = self.client.request(request) => answer.map_err(|error| Failure::of(error, progress)),
            () = progress.answer_is_late() => Err(Failure::Late),
        }
    }
}
