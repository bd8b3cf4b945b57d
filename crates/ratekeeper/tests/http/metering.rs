//! Costs that are known only when a body has ended.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use ratekeeper::{
    Limiter, Limits, MINUTE, Mode, Quota, RateLimitLayer, Rule, key, meter::ByteCount, meter::Measure,
    meter::MeterLayer,
};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};

use crate::support::{get, limiter};

/// Reserves 50 bytes of a thousand.
fn bytes() -> Limiter {
    bytes_in(Mode::Enforce)
}

fn bytes_in(mode: Mode) -> Limiter {
    limiter([Rule::new("bytes", Quota::token_bucket(1_000, MINUTE))
        .key(key::global())
        .mode(mode)
        .cost(50)
        .settle_in_handler()])
    .0
}

async fn spent(limiter: &Limiter) -> u32 {
    1_000
        - limiter
            .charge("bytes", key::Key::GLOBAL)
            .peek()
            .await
            .unwrap()
            .outcome("bytes")
            .unwrap()
            .remaining()
}

/// The limits of a request that was forwarded.
async fn limits(limiter: &Limiter) -> Limits {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let service = RateLimitLayer::new(limiter.clone()).layer(service_fn(move |request: Request<()>| {
        sender.send(Limits::of(request.extensions()).unwrap()).unwrap();
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
    }));
    service.oneshot(get("/")).await.unwrap();
    receiver.recv().await.unwrap()
}

type Piece = Result<Frame<Bytes>, &'static str>;

/// The pieces of a body, of these sizes in bytes.
fn pieces(sizes: impl IntoIterator<Item = usize>) -> Vec<Piece> {
    sizes.into_iter().map(|size| Ok(Frame::data(vec![b'x'; size].into()))).collect()
}

fn streamed(pieces: Vec<Piece>) -> StreamBody<impl futures_util::Stream<Item = Piece> + Unpin> {
    StreamBody::new(stream::iter(pieces))
}

#[tokio::test]
async fn a_body_that_has_ended_costs_what_its_pieces_add_up_to() {
    for (sizes, cost) in [(vec![10, 20, 5], 35), (vec![100, 200], 300), (vec![50], 50), (vec![], 0)] {
        let limiter = bytes();
        let limits = limits(&limiter).await;
        let body = limits.meter("bytes", streamed(pieces(sizes)), ByteCount).unwrap();
        assert_eq!(spent(&limiter).await, 50);
        assert_eq!(body.collect().await.unwrap().to_bytes().len(), cost as usize);
        assert_eq!(spent(&limiter).await, cost);
    }
}

#[tokio::test]
async fn nothing_is_settled_before_the_end() {
    let limiter = bytes();
    let mut body = limits(&limiter).await.meter("bytes", streamed(pieces([400, 400])), ByteCount).unwrap();
    body.frame().await.unwrap().unwrap();
    assert_eq!((body.cost(), spent(&limiter).await), (400, 50));
    body.frame().await.unwrap().unwrap();
    assert!(body.frame().await.is_none());
    assert_eq!(spent(&limiter).await, 800);
    drop(body);
    assert_eq!(spent(&limiter).await, 800);
}

#[tokio::test]
async fn trailers_cost_nothing() {
    let limiter = bytes();
    let mut with_trailers = pieces([30]);
    with_trailers.push(Ok(Frame::trailers(http::HeaderMap::new())));
    let body = limits(&limiter).await.meter("bytes", streamed(with_trailers), ByteCount).unwrap();
    body.collect().await.unwrap();
    assert_eq!(spent(&limiter).await, 30);
}

#[tokio::test]
async fn a_body_that_does_not_end_costs_what_was_reserved_or_what_has_gone_by_if_that_is_more() {
    for (first, cost, mode) in
        [(20, 50, Mode::Enforce), (70, 70, Mode::Enforce), (20, 50, Mode::Shadow), (70, 70, Mode::Shadow)]
    {
        // The client goes away.
        let limiter = bytes_in(mode);
        let mut body =
            limits(&limiter).await.meter("bytes", streamed(pieces([first, 500])), ByteCount).unwrap();
        body.frame().await.unwrap().unwrap();
        drop(body);
        assert_eq!(spent(&limiter).await, cost);
        // The body fails.
        let limiter = bytes();
        let mut failing = pieces([first]);
        failing.push(Err("no more"));
        let body = limits(&limiter).await.meter("bytes", streamed(failing), ByteCount).unwrap();
        assert_eq!(body.collect().await.unwrap_err(), "no more");
        assert_eq!(spent(&limiter).await, cost);
    }
}

#[tokio::test]
async fn whoever_knows_that_a_body_is_at_its_end_need_not_ask_again() {
    // As servers do with a body whose length they know.
    let limiter = bytes();
    let mut body = limits(&limiter).await.meter("bytes", Full::<Bytes>::from("hello"), ByteCount).unwrap();
    assert_eq!(body.size_hint().exact(), Some(5));
    body.frame().await.unwrap().unwrap();
    assert!(body.is_end_stream());
    assert_eq!(spent(&limiter).await, 5);
    // An empty body is never read.
    let limiter = bytes();
    drop(limits(&limiter).await.meter("bytes", Empty::<Bytes>::new(), ByteCount).unwrap());
    assert_eq!(spent(&limiter).await, 0);
}

/// A server that has sent as many bytes as announced does not poll for more.
#[tokio::test]
async fn a_body_of_a_length_has_ended_when_so_much_has_gone() {
    let limiter = bytes();
    let limits = limits(&limiter).await;
    let mut body = limits.meter("bytes", streamed(pieces([10, 5])), ByteCount).unwrap().length(15);
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), 10);
    assert_eq!(spent(&limiter).await, 50);
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), 5);
    drop(body);
    assert_eq!(spent(&limiter).await, 15);
}

/// Over a real connection, however the end of the body is marked; what is not sent is not counted.
#[tokio::test]
async fn what_is_sent_is_counted_however_its_end_is_told() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn answer(uri: http::Uri) -> axum::response::Response {
        let body = axum::body::Body::new(streamed(pieces([10, 5])));
        let response = Response::builder();
        match uri.path() {
            "/length" => response.header("content-length", "15").body(body),
            "/unchanged" => {
                response.status(StatusCode::NOT_MODIFIED).header("content-length", "15").body(body)
            }
            _ => response.body(body),
        }
        .unwrap()
    }

    for (request, cost) in [("GET /", 15), ("GET /length", 15), ("HEAD /length", 0), ("GET /unchanged", 0)] {
        let limiter = bytes();
        let app = axum::Router::new()
            .fallback(answer)
            .layer(MeterLayer::new("bytes", ByteCount))
            .layer(RateLimitLayer::new(limiter.clone()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stream = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let server = tokio::spawn(axum::serve(listener, app).into_future());
        let request = format!("{request} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.read_to_end(&mut Vec::new()).await.unwrap();
        assert_eq!(spent(&limiter).await, cost, "{request}");
        server.abort();
    }
}

/// The handler runs for HEAD as it does for GET, so a change of the method must not make it free.
#[tokio::test]
async fn a_head_request_stays_charged_as_reserved_unless_bytes_are_counted() {
    let words = |piece: &Bytes| piece.split(|byte| *byte == b' ').count() as u32;
    let head = || Request::head("/").body(axum::body::Body::empty()).unwrap();
    for (stays, counts_bytes) in [(50, false), (0, true)] {
        let limiter = bytes();
        let app = axum::Router::new().fallback(async || "one two three");
        let app = match counts_bytes {
            true => app.layer(MeterLayer::new("bytes", ByteCount)),
            false => app.layer(MeterLayer::new("bytes", words)),
        };
        let response = app.layer(RateLimitLayer::new(limiter.clone())).oneshot(head()).await.unwrap();
        drop(response);
        assert_eq!(spent(&limiter).await, stays);
    }
}

#[tokio::test]
async fn a_closure_measures_by_what_it_sees() {
    let limiter = bytes();
    // Only the last piece carries the usage.
    let usage = |piece: &Bytes| {
        piece.strip_prefix(b"usage=").map_or(0, |n| std::str::from_utf8(n).unwrap().parse().unwrap())
    };
    let frames = ["one", "two", "usage=77"].map(|text| Ok::<_, Infallible>(Frame::data(Bytes::from(text))));
    let body = StreamBody::new(stream::iter(frames));
    limits(&limiter).await.meter("bytes", body, usage).unwrap().collect().await.unwrap();
    assert_eq!(spent(&limiter).await, 77);
}

/// Each piece counts as one, until one of them reports the total.
#[derive(Clone, Default)]
struct Usage(Option<u32>);

impl Measure<Bytes> for Usage {
    fn measure(&mut self, piece: &Bytes) -> u32 {
        self.0 = piece.strip_prefix(b"usage=").map(|n| std::str::from_utf8(n).unwrap().parse().unwrap());
        1
    }

    fn total(&mut self, sum: u32) -> u32 {
        self.0.unwrap_or(sum)
    }
}

#[tokio::test]
async fn a_measure_says_in_the_end_what_the_whole_has_cost() {
    for (texts, cost) in [
        (&["one", "two", "usage=1"][..], 1),
        (&["one", "usage=99"], 99),
        (&["one", "two"], 2),
        (&["usage=0"], 0),
        (&[], 0),
    ] {
        let limiter = bytes();
        let frames =
            texts.iter().map(|text| Ok::<_, Infallible>(Frame::data(Bytes::from_static(text.as_bytes()))));
        let body = StreamBody::new(stream::iter(frames.collect::<Vec<_>>()));
        limits(&limiter).await.meter("bytes", body, Usage::default()).unwrap().collect().await.unwrap();
        assert_eq!(spent(&limiter).await, cost, "{texts:?}");
    }
    // A server that knows that a body is at its end does not poll again.
    let limiter = bytes();
    let body = Full::<Bytes>::from("usage=7");
    let mut body = limits(&limiter).await.meter("bytes", body, Usage::default()).unwrap();
    body.frame().await.unwrap().unwrap();
    assert_eq!(spent(&limiter).await, 7);
    // Here the body has not ended.
    let limiter = bytes();
    let frames = ["usage=7", "more"].map(|text| Ok::<_, Infallible>(Frame::data(Bytes::from(text))));
    let body = StreamBody::new(stream::iter(frames));
    let mut body = limits(&limiter).await.meter("bytes", body, Usage::default()).unwrap();
    body.frame().await.unwrap().unwrap();
    drop(body);
    assert_eq!(spent(&limiter).await, 50);
}

#[tokio::test]
async fn a_rule_that_is_not_there_cannot_be_metered() {
    let limits = limits(&bytes()).await;
    let error = limits.meter("byte", Full::<Bytes>::default(), ByteCount).unwrap_err();
    assert_eq!(error.to_string(), "there is no rule named `byte`");
}

#[tokio::test]
async fn a_layer_meters_every_response_and_leaves_alone_what_is_not_limited() {
    let limiter = bytes();
    let inner = service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
    });
    let metered = MeterLayer::new("bytes", ByteCount);
    let service = ServiceBuilder::new()
        .layer(RateLimitLayer::new(limiter.clone()))
        .layer(metered.clone())
        .service(inner);
    for n in 1..=3 {
        let response = service.clone().oneshot(get("/")).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body().collect().await.unwrap();
        assert_eq!(spent(&limiter).await, n * 5);
    }
    let alone = metered.layer(inner).oneshot(get("/")).await.unwrap();
    assert_eq!(alone.into_body().collect().await.unwrap().to_bytes(), "hello");
}

#[tokio::test]
async fn pieces_go_by_as_they_come() {
    let limiter = bytes();
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<Piece>();
    let body =
        stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) }).boxed();
    let mut body = limits(&limiter).await.meter("bytes", StreamBody::new(body), ByteCount).unwrap();
    for size in [10, 20] {
        sender.send(pieces([size]).remove(0)).unwrap();
        let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(piece.len(), size);
    }
    drop(sender);
    assert!(body.frame().await.is_none());
    assert_eq!(spent(&limiter).await, 30);
}

/// A body that is dropped inside the layer says nothing about the cost of its request; the response still
/// does.
#[tokio::test]
async fn a_body_that_is_thrown_away_leaves_it_to_the_response_to_settle() {
    let rule = Rule::new("bytes", Quota::token_bucket(1_000, MINUTE))
        .key(key::global())
        .cost(50)
        .settle_in_handler()
        .free_when(|response| response.status().is_server_error());
    let (limiter, _) = limiter([rule]);
    let service = RateLimitLayer::new(limiter.clone()).layer(service_fn(|request: Request<()>| {
        let limits = Limits::of(request.extensions()).unwrap();
        drop(limits.meter("bytes", streamed(pieces([500])), ByteCount).unwrap());
        let mut response = Response::new(Full::<Bytes>::default());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        std::future::ready(Ok::<_, Infallible>(response))
    }));
    service.oneshot(get("/")).await.unwrap();
    assert_eq!(spent(&limiter).await, 0);
}
