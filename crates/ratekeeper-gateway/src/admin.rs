//! The second listener: metrics, health and rules, for operators.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tracing::{debug, warn};

use crate::rules::Status;
use crate::shutdown::Shutdown;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The state that is served here.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    pub(crate) metrics: PrometheusHandle,
    pub(crate) rules: Status,
    pub(crate) shutdown: Shutdown,
}

impl Admin {
    /// Serves for as long as the process runs, even during shutdown: that is when others check whether it
    /// ends.
    pub(crate) async fn serve(self, listener: TcpListener) {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    warn!(%error, "cannot accept a connection for metrics");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    continue;
                }
            };
            let admin = self.clone();
            let answer =
                service_fn(move |request| std::future::ready(Ok::<_, Infallible>(admin.answer(&request))));
            tokio::spawn(async move {
                let mut server = http1::Builder::new();
                let connection =
                    server.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), answer);
                if let Err(error) = connection.await {
                    debug!(%error, "a connection for metrics broke off");
                }
            });
        }
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response =
                respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, "There is nothing to change here.\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            "/metrics" => respond(StatusCode::OK, PROMETHEUS, self.metrics.render()),
            "/healthz" => respond(StatusCode::OK, TEXT, "ok\n"),
            "/readyz" if self.shutdown.is_draining() => {
                respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, "ending\n")
            }
            "/readyz" => respond(StatusCode::OK, TEXT, "ready\n"),
            "/rules" => respond(StatusCode::OK, JSON, self.rules.to_json()),
            _ => respond(StatusCode::NOT_FOUND, TEXT, "There are /metrics, /healthz, /readyz and /rules.\n"),
        }
    }
}

fn respond(status: StatusCode, content: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
