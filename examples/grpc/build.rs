//! Makes the code of the service. From a `.proto` file `tonic-prost-build` does that, with the help of `protoc`; so that
//! this example needs none, the service is described here.

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
