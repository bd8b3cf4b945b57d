//! Bodies of every type.

use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use ratekeeper::{Quota, RateLimitLayer, RequestHead, rejection::Rejection, rejection::RejectionReason};
use tower::{Layer, ServiceExt, service_fn};

/// Exhausts a limit of one, and returns the body of the denial.
async fn denied<A: Default, B, R>(layer: RateLimitLayer<R>, body: fn() -> B) -> B
where
    R: Rejection<B> + Clone,
{
    let inner = service_fn(move |_: Request<A>| async move { Ok::<_, Infallible>(Response::new(body())) });
    let service = layer.layer(inner);
    let reply = service.clone().oneshot(Request::new(A::default())).await.unwrap();
    assert_eq!(reply.status(), StatusCode::OK);
    let reply = service.oneshot(Request::new(A::default())).await.unwrap();
    assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS);
    reply.into_body()
}

fn layer() -> RateLimitLayer {
    RateLimitLayer::new(Quota::per_hour(1))
}

/// A body that can be made from bytes.
#[derive(Debug)]
struct Own(Option<Bytes>);

impl From<Bytes> for Own {
    fn from(bytes: Bytes) -> Self {
        Self(Some(bytes))
    }
}

impl http_body::Body for Own {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// A body that cannot be made from bytes, and can be neither sent nor shared.
#[derive(Debug)]
struct Foreign(Rc<str>);

#[tokio::test]
async fn bodies_that_are_made_from_bytes_need_nothing() {
    let full = denied::<(), _, _>(layer(), Full::<Bytes>::default).await;
    assert!(full.collect().await.unwrap().to_bytes().starts_with(b"{\"error\":\"rate_limited\""));
    let own = denied::<Full<Bytes>, _, _>(layer(), || Own(None)).await;
    assert!(own.collect().await.unwrap().to_bytes().starts_with(b"{\"error\":\"rate_limited\""));
    let own = denied::<(), _, _>(layer().problem_details(), || Own(None)).await;
    assert!(own.collect().await.unwrap().to_bytes().starts_with(b"{\"type\":"));
    let axum = denied::<axum::body::Body, _, _>(layer(), axum::body::Body::empty).await;
    assert!(axum.collect().await.unwrap().to_bytes().starts_with(b"{\"error\""));
    let bytes: Vec<u8> = denied::<String, _, _>(layer(), Vec::new).await;
    assert!(bytes.starts_with(b"{\"error\""));
}

#[tokio::test]
async fn other_bodies_need_a_closure() {
    let rejection = |_: &RequestHead<'_>, refusal: &RejectionReason<'_>| {
        Response::builder().status(refusal.status()).body(Foreign("denied".into())).unwrap()
    };
    let body = denied::<Vec<Rc<()>>, _, _>(layer().rejection(rejection), || Foreign("".into())).await;
    assert_eq!(&*body.0, "denied");
}

#[tokio::test]
async fn the_requests_body_reaches_the_inner_service_as_it_was() {
    let inner = service_fn(|request: Request<Box<str>>| async move {
        Ok::<_, Infallible>(Response::new(Bytes::from(request.into_body().into_string())))
    });
    let service = layer().layer(inner);
    let reply = service.oneshot(Request::new("hello".into())).await.unwrap();
    assert_eq!(reply.into_body(), "hello");
}
