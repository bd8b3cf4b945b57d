//! The small part of a runtime that the cases need.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Drives a future on this thread until it is done.
///
/// For cases on a store that needs no runtime.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}

/// Drives all futures together until each is done.
pub(crate) async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    // The first poll is what starts most futures, so all are polled once before any is waited for.
    let mut futures: Vec<Result<F::Output, Pin<Box<F>>>> =
        futures.into_iter().map(|future| Err(Box::pin(future))).collect();
    poll_fn(|context| {
        let mut all_done = true;
        for future in &mut futures {
            if let Err(pending) = future {
                match pending.as_mut().poll(context) {
                    Poll::Ready(output) => *future = Ok(output),
                    Poll::Pending => all_done = false,
                }
            }
        }
        if all_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    futures.into_iter().filter_map(Result::ok).collect()
}
