//! Generates the code of the service. `tonic-prost-build` does that from a `.proto` file, with the help of
//! `protoc`. The service is described here instead, so that this example does not need it.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let method = |name: &str, route: &str| {
        Method::builder()
            .name(name)
            .route_name(route)
            .input_type("crate::Name")
            .output_type("crate::Greeting")
            .codec_path("tonic_prost::ProstCodec")
    };
    let greeter = Service::builder()
        .name("Greeter")
        .package("hello.v1")
        .method(method("greet", "Greet").build())
        .method(method("greet_often", "GreetOften").server_streaming().build())
        .build();
    Builder::new().compile(&[greeter]);
    println!("cargo::rerun-if-changed=build.rs");
}
