//! Keys of gRPC requests.

use super::super::{grpc_method, grpc_service};
use super::{key_of, shown, to};

#[test]
fn a_call_is_counted_by_its_service_or_by_its_method() {
    for uri in
        ["/shop.v1.Orders/Place", "/shop.v1.Orders/Place?x=/y", "http://example.com/shop.v1.Orders/Place"]
    {
        assert_eq!(shown(&grpc_service(), &to(uri)), "shop.v1.Orders", "{uri}");
        assert_eq!(shown(&grpc_method(), &to(uri)), "shop.v1.Orders/Place", "{uri}");
    }
    // A service need not be in a package.
    assert_eq!(shown(&grpc_service(), &to("/Orders/Place")), "Orders");
}

#[test]
fn methods_of_one_name_in_two_services_are_two() {
    assert_ne!(
        key_of(&grpc_method(), &to("/shop.Orders/List")),
        key_of(&grpc_method(), &to("/shop.Users/List"))
    );
}

#[test]
fn a_method_is_one_however_it_is_spelled() {
    let spelled = to("/shop%2Ev1.Orders/%50lace");
    assert_eq!(shown(&grpc_service(), &spelled), "shop.v1.Orders");
    assert_eq!(shown(&grpc_method(), &spelled), "shop.v1.Orders/Place");
}

#[test]
fn a_path_that_is_not_a_service_and_a_method_has_no_such_key() {
    for uri in [
        "/",
        "//",
        "/shop.Orders",
        "/shop.Orders/",
        "//Place",
        "/v1/shop.Orders/Place",
        "/shop.Orders/Place/",
        "*",
    ] {
        assert_eq!(key_of(&grpc_service(), &to(uri)), None, "{uri}");
        assert_eq!(key_of(&grpc_method(), &to(uri)), None, "{uri}");
    }
}
