//! The environment variable `LISTEN`.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::Failure;

const DEFAULT: &str = "127.0.0.1:3000";

/// Listens on the address in the environment variable `LISTEN`, by default `127.0.0.1:3000`, and prints it.
///
/// # Errors
///
/// When it is not an address, or cannot be listened on.
pub async fn listen() -> Result<TcpListener, Failure> {
    let text = std::env::var_os("LISTEN").unwrap_or_else(|| DEFAULT.into());
    let text = text.to_string_lossy();
    let address: SocketAddr = text.parse().map_err(|_| {
        Failure::new(format!("LISTEN is `{text}`, which is not an address such as {DEFAULT}"))
    })?;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| Failure::new(format!("cannot listen on LISTEN={address}: {error}")))?;
    // The actual address, not the requested one: port 0 picks a free port.
    println!("listening on http://{}", listener.local_addr()?);
    Ok(listener)
}
