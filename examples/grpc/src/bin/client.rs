//! A tonic client that calls six times, and waits as long as it is told to.
//!
//! ```text
//! cargo run -p grpc --bin grpc-client
//! ```

use std::time::Duration;

use anyhow::{Context, bail};
use grpc::{GreeterClient, Name};
use tonic::transport::Channel;
use tonic::{Response, Status};
use tonic_types::StatusExt;

const CALLS: usize = 6;
/// How many times a call is attempted.
const ATTEMPTS: usize = 3;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let address = std::env::var("SERVER").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let mut greeter = GreeterClient::connect(format!("http://{address}"))
        .await
        .with_context(|| format!("there is no server at SERVER={address}"))?;
    for call in 1..=CALLS {
        greet(&mut greeter, call).await?;
    }
    // The other method has its own budget.
    let often = greeter.greet_often(name()).await?;
    let (left, mut greetings) = (left(&often), often.into_inner());
    while let Some(greeting) = greetings.message().await? {
        println!("often: {} ({left} left)", greeting.text);
    }
    Ok(())
}

/// Calls once, and again if the server says that it is worth waiting.
async fn greet(greeter: &mut GreeterClient<Channel>, call: usize) -> anyhow::Result<()> {
    for _ in 0..ATTEMPTS {
        match greeter.greet(name()).await {
            Ok(greeting) => {
                println!("{call}: {} ({} left)", greeting.get_ref().text, left(&greeting));
                return Ok(());
            }
            Err(status) => {
                println!("{call}: {}", told(&status));
                let Some(wait) = wait(&status) else { break };
                tokio::time::sleep(wait).await;
            }
        }
    }
    bail!("call {call} was given up")
}

fn name() -> Name {
    Name { name: "world".to_owned() }
}

/// What the rule has left, from the initial metadata.
fn left<T>(response: &Response<T>) -> String {
    let left = response.metadata().get("x-ratelimit-remaining");
    left.and_then(|left| left.to_str().ok()).unwrap_or("nobody knows what is").to_owned()
}

/// How long to wait. A denial without it is permanent.
fn wait(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}

/// A status as text.
fn told(status: &Status) -> String {
    let mut told = format!("{:?}: {}", status.code(), status.message());
    for violation in status.get_details_quota_failure().into_iter().flat_map(|failure| failure.violations) {
        told += &format!(" {}", violation.description);
    }
    if let Some(wait) = wait(status) {
        told += &format!(" Try again in {wait:?}.");
    }
    told
}
