//! Exchanges on a clock that advances only while everything waits.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, timeout};

use super::timed::Stalled;
use super::*;

const TIMEOUTS: Timeouts =
    Timeouts { response: Duration::from_secs(10), idle: Duration::from_secs(5), request: None };

/// A body made of what the test sends.
struct Sent(UnboundedReceiver<()>);

impl Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|sent| sent.map(|()| Ok(Frame::data(Bytes::from_static(b"x")))))
    }
}

fn body(direction: Direction, progress: &Arc<Progress>) -> (UnboundedSender<()>, Timed<Sent>) {
    let (sender, receiver) = unbounded_channel();
    (sender, Timed::new(Sent(receiver), direction, Arc::clone(progress)))
}

fn progress(timeouts: Timeouts) -> Arc<Progress> {
    Arc::new(Progress::new(timeouts))
}

/// The number of seconds after which it fails.
async fn fails_after(body: &mut Timed<Sent>) -> f64 {
    let start = Instant::now();
    let frame = body.frame().await.expect("it does not end");
    assert!(frame.unwrap_err().is::<Stalled>());
    start.elapsed().as_secs_f64().round()
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stands_still_fails() {
    let progress = progress(TIMEOUTS);
    let (sender, mut down) = body(Direction::Down, &progress);
    for _ in 0..3 {
        sender.send(()).unwrap();
        assert!(down.frame().await.unwrap().is_ok());
        sleep(Duration::from_secs(4)).await;
    }
    assert_eq!(fails_after(&mut down).await, 5.0);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_may_take_its_time() {
    let progress = progress(TIMEOUTS);
    let (sender, mut down) = body(Direction::Down, &progress);
    sleep(Duration::from_secs(1_000)).await;
    // Nobody has polled it before, so no wait has begun.
    assert_eq!(timeout(Duration::from_secs(4), down.frame()).await.err().map(|_| ()), Some(()));
    sender.send(()).unwrap();
    assert!(down.frame().await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_moves_in_one_direction_keeps_the_other_alive() {
    let progress = progress(TIMEOUTS);
    let (_up, mut up_body) = body(Direction::Up, &progress);
    let (down, mut down_body) = body(Direction::Down, &progress);
    let start = Instant::now();
    let answer = async {
        for _ in 0..5 {
            sleep(Duration::from_secs(4)).await;
            down.send(()).unwrap();
            assert!(down_body.frame().await.unwrap().is_ok());
        }
    };
    let (stalled, ()) = tokio::join!(fails_after(&mut up_body), answer);
    assert_eq!(stalled, 25.0);
    assert_eq!(start.elapsed().as_secs_f64().round(), 25.0);
    assert_eq!(progress.upload(), Upload::Stalled);
}

#[tokio::test(start_paused = true)]
async fn all_of_it_ends_in_time() {
    let progress = progress(Timeouts { request: Some(Duration::from_secs(3)), ..TIMEOUTS });
    let (_sender, mut down) = body(Direction::Down, &progress);
    assert_eq!(fails_after(&mut down).await, 3.0);
    assert!(progress.is_over());
    let start = Instant::now();
    progress.answer_is_late().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_late_when_the_upstream_has_had_its_time() {
    let start = Instant::now();
    progress(TIMEOUTS).answer_is_late().await;
    assert_eq!(start.elapsed().as_secs_f64().round(), 10.0);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_is_not_late_while_the_client_sends() {
    let progress = progress(Timeouts { idle: Duration::from_secs(60), ..TIMEOUTS });
    let (sender, mut up) = body(Direction::Up, &progress);
    let mut late = pin!(progress.answer_is_late());
    // It waits for the client.
    assert!(poll_fn(|cx| Poll::Ready(pin!(up.frame()).poll(cx).is_pending())).await);
    assert!(timeout(Duration::from_secs(55), late.as_mut()).await.is_err());
    // Now it has everything.
    sender.send(()).unwrap();
    assert!(up.frame().await.unwrap().is_ok());
    drop(sender);
    assert!(up.frame().await.is_none());
    let start = Instant::now();
    late.await;
    assert_eq!(start.elapsed().as_secs_f64().round(), 10.0);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_wants_no_more_is_late_in_its_time() {
    let progress = progress(TIMEOUTS);
    let (_sender, mut up) = body(Direction::Up, &progress);
    assert!(poll_fn(|cx| Poll::Ready(pin!(up.frame()).poll(cx).is_pending())).await);
    assert_eq!(progress.upload(), Upload::Awaited);
    drop(up);
    assert_eq!(progress.upload(), Upload::Delivered);
    let start = Instant::now();
    progress.answer_is_late().await;
    assert_eq!(start.elapsed().as_secs_f64().round(), 10.0);
}
