//! What the server and the client share: the service `hello.v1.Greeter`, as `build.rs` describes it, and its
//! messages.

/// Whom to greet.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Name {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// A greeting.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Greeting {
    /// The words.
    #[prost(string, tag = "1")]
    pub text: String,
}

#[allow(missing_docs, missing_debug_implementations, unreachable_pub)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/hello.v1.Greeter.rs"));
}

pub use generated::greeter_client::GreeterClient;
pub use generated::greeter_server::{Greeter, GreeterServer};
