//! One call: waits, sends, and sends again if the request was refused.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use crate::error::Error;
use crate::field::{Refusal, Report};
use crate::observe;
use crate::pacer::Pacer;
use crate::queue::{Queue, Unsent};

/// How a call went, in the extensions of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Paced {
    /// How long the request waited before it was sent, in all.
    pub waited: Duration,
    /// How often it was sent again.
    pub retries: u32,
}

/// A client that can send one request, perhaps several times.
pub(crate) trait Exchange: Send {
    type Response: Send;
    type Error: Send;

    /// Sends the request. `keep` asks for a copy, for a retry.
    fn send(&mut self, keep: bool) -> impl Future<Output = Result<Self::Response, Self::Error>> + Send;

    /// Whether there is a copy.
    fn can_repeat(&self) -> bool;

    fn head(response: &Self::Response) -> (StatusCode, &HeaderMap);

    fn expose(response: &mut Self::Response, paced: Paced);
}

/// Makes a call.
pub(crate) async fn run<X: Exchange>(
    pacer: &Pacer,
    queue: Arc<Queue>,
    is_repeatable: bool,
    mut exchange: X,
) -> Result<X::Response, Error<X::Error>> {
    let options = pacer.options();
    let deadline = Instant::now() + options.max_wait;
    let mut paced = Paced { waited: Duration::ZERO, retries: 0 };
    loop {
        let started = Instant::now();
        let ticket =
            queue.acquire(deadline, options.max_waiting, options.quota.as_ref()).await.map_err(unsent)?;
        paced.waited += started.elapsed();
        let keep = is_repeatable && paced.retries < options.retries.max_retries;
        observe::sent(started.elapsed(), paced.retries > 0);
        let mut response = exchange.send(keep).await.map_err(Error::Inner)?;

        let (status, headers) = X::head(&response);
        let report = Report::read(status, headers, SystemTime::now(), options.max_pause);
        let wait = report.refusal.map(|refusal| wait_of(&refusal, pacer, paced.retries));
        // Overload without a stated wait concerns this request, not the budget.
        let pause =
            report.refusal.zip(wait).filter(|(refusal, _)| refusal.wait.is_some() || !refusal.is_overload);
        if ticket.received(&report, pause.map(|(_, wait)| wait)) {
            observe::paused(wait.unwrap_or_default());
            #[cfg(feature = "fleet")]
            if let (Some(quota), Some((_, wait))) = (&options.quota, pause) {
                quota.pause(queue.key(), wait).await;
            }
        }

        let Some((refusal, wait)) = report.refusal.zip(wait) else {
            pacer.retry_budget().succeeded();
            X::expose(&mut response, paced);
            return Ok(response);
        };
        observe::refused();
        let is_retried = keep
            && exchange.can_repeat()
            && !refusal.is_final
            && Instant::now() + wait <= deadline
            && pacer.retry_budget().withdraw();
        if !is_retried {
            X::expose(&mut response, paced);
            return Ok(response);
        }
        drop(response);
        if pause.is_none() {
            let started = Instant::now();
            tokio::time::sleep(wait).await;
            paced.waited += started.elapsed();
        }
        paced.retries += 1;
    }
}

/// How long to wait after a refusal: as long as the server says, or a backoff.
fn wait_of(refusal: &Refusal, pacer: &Pacer, retries: u32) -> Duration {
    refusal.wait.unwrap_or_else(|| pacer.options().retries.backoff_before(retries, fastrand::f64()))
}

fn unsent<E>(unsent: Unsent) -> Error<E> {
    observe::unsent(unsent);
    match unsent {
        Unsent::TooLong(wait) => Error::WaitTooLong { wait },
        Unsent::Full => Error::QueueFull,
    }
}
