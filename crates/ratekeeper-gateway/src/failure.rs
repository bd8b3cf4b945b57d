//! Requests that the upstream does not answer.

use std::error::Error;
use std::fmt;
use std::io;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use hyper_util::client::legacy;
use serde_json::json;
use tower::timeout::error::Elapsed;

use crate::body::Body;
use crate::forwarding::BadRequest;
use crate::timeouts::{Progress, Upload};

/// Why the upstream does not answer a request.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It must not be forwarded.
    Refused(BadRequest),
    /// The client has not sent its body in time.
    ClientStalled,
    /// The client's body broke off or was invalid.
    ClientBroken,
    /// The upstream could not be reached.
    Unreachable(legacy::Error),
    /// The upstream could not be reached in time.
    ConnectTimeout(legacy::Error),
    /// The upstream has not answered in time.
    Late,
    /// The upstream broke off, or its response is invalid.
    Broken(legacy::Error),
    /// The upstream switched to a protocol that was not offered.
    Unasked,
}

impl Failure {
    /// Why a request to the upstream failed, given how far the exchange had come.
    pub(crate) fn of(error: legacy::Error, progress: &Progress) -> Self {
        match progress.upload() {
            Upload::Stalled if progress.is_over() => Self::Late,
            Upload::Stalled => Self::ClientStalled,
            Upload::Broken => Self::ClientBroken,
            Upload::Awaited | Upload::Delivered if !error.is_connect() => Self::Broken(error),
            _ if causes(&error).any(is_timeout) => Self::ConnectTimeout(error),
            _ => Self::Unreachable(error),
        }
    }

    /// Whether the connection was closed before any part of a response arrived. This happens when the
    /// upstream closes an idle connection at the moment it is used again.
    pub(crate) fn is_closed_early(&self) -> bool {
        let Self::Broken(error) = self else { return false };
        causes(error).any(|cause| {
            let is_gone = |error: &io::Error| {
                matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
            };
            cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message)
                || cause.downcast_ref().is_some_and(is_gone)
        })
    }

    pub(crate) const fn status(&self) -> StatusCode {
        match self {
            Self::Refused(refused) => refused.status(),
            Self::ClientStalled => StatusCode::REQUEST_TIMEOUT,
            Self::ClientBroken => StatusCode::BAD_REQUEST,
            Self::Unreachable(_) | Self::Broken(_) | Self::Unasked => StatusCode::BAD_GATEWAY,
            Self::ConnectTimeout(_) | Self::Late => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The label in metrics.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::ClientStalled | Self::ClientBroken => "client",
            Self::Unreachable(_) => "unreachable",
            Self::ConnectTimeout(_) => "connect_timeout",
            Self::Late => "response_timeout",
            Self::Broken(_) | Self::Unasked => "broken",
        }
    }

    /// Whether the upstream is at fault and needs attention.
    pub(crate) fn is_of_upstream(&self) -> bool {
        self.status().is_server_error() && !matches!(self, Self::Refused(_))
    }

    /// The response to the client. Internal details are left out.
    pub(crate) fn response(&self) -> Response<Body> {
        let (error, message) = match self {
            Self::Refused(refused @ (BadRequest::Connect | BadRequest::Coding)) => {
                ("not_implemented", refused.to_string())
            }
            Self::Refused(refused) => ("bad_request", refused.to_string()),
            Self::ClientStalled => ("request_timeout", "The request did not come in time.".to_owned()),
            Self::ClientBroken => ("bad_request", "The request broke off, or makes no sense.".to_owned()),
            Self::Unreachable(_) | Self::Broken(_) | Self::Unasked => {
                ("bad_gateway", "The service does not answer.".to_owned())
            }
            Self::ConnectTimeout(_) | Self::Late => {
                ("gateway_timeout", "The service did not answer in time.".to_owned())
            }
        };
        let text = json!({ "error": error, "message": message }).to_string();
        let mut response = Response::new(Body::from(Bytes::from(text)));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::ClientStalled => f.write_str("the client does not send its request"),
            Self::ClientBroken => f.write_str("the client's request broke off"),
            Self::Unreachable(error) => write!(f, "the upstream cannot be reached{}", Because(error)),
            Self::ConnectTimeout(error) => {
                write!(f, "the upstream cannot be reached in time{}", Because(error))
            }
            Self::Late => f.write_str("the upstream does not answer in time"),
            Self::Broken(error) => write!(f, "the upstream gives no answer{}", Because(error)),
            Self::Unasked => f.write_str("the upstream speaks a protocol that nobody offered"),
        }
    }
}

impl From<BadRequest> for Failure {
    fn from(refused: BadRequest) -> Self {
        Self::Refused(refused)
    }
}

/// An error's causes, one after the other.
struct Because<'a>(&'a legacy::Error);

impl fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        causes(self.0).try_for_each(|cause| write!(f, ": {cause}"))
    }
}

fn causes(error: &legacy::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

fn is_timeout(cause: &(dyn Error + 'static)) -> bool {
    let timed_out = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
    cause.is::<Elapsed>() || cause.downcast_ref().is_some_and(timed_out)
}
