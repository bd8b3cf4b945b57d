//! Keys made from other things, and from each other.

use std::sync::Arc;

use http::Request;

use super::super::{
    Extracted, Key, KeyExtractor, Secret, cookie, extension, first_of, from_async_fn, from_fn, global,
    header, method, path, peer_ip, required,
};
use super::{from_peer, key_of, shown, to, with};
use crate::request::RequestHead;

#[derive(Clone)]
struct User {
    id: u64,
}

async fn wait(extractor: &impl KeyExtractor, request: &Request<()>) -> Option<Key> {
    extractor.extract(&RequestHead::from(request)).wait().await
}

#[test]
fn a_tuple_of_keys_is_a_key_of_all_of_them() {
    let request = from_peer("192.0.2.7", &[("x-a", "a"), ("x-b", "bc")]);
    assert_eq!(shown(&(peer_ip(), path()), &request), "192.0.2.7|/");
    assert_eq!(shown(&(peer_ip(), method(), path()), &request), "192.0.2.7|GET|/");
    assert_eq!(shown(&(peer_ip(), header("x-a"), header("x-b"), path()), &request), "192.0.2.7|a|bc|/");
    assert_eq!(shown(&((header("x-a"), header("x-b")), path()), &request), "a|bc|/");
}

#[test]
fn the_parts_of_a_tuple_do_not_run_into_each_other() {
    let key = |a: &str, b: &str| {
        let request = with(&[("x-a", a.as_bytes()), ("x-b", b.as_bytes())]);
        key_of(&(header("x-a"), header("x-b")), &request).unwrap()
    };
    assert_ne!(key("a", "bc"), key("ab", "c"));
    assert_ne!(key("a|b", "c"), key("a", "b|c"));
    assert_ne!(key("", "a"), key("a", ""));
    let long = "x".repeat(5_000);
    assert_ne!(key(&long, "a"), key(&long, "b"));
    assert_ne!(key("a", &long), key(&long, "a"));
}

/// A caller with an ambiguous part must not be taken for one with the same value in another part.
#[test]
fn a_part_that_is_ambiguous_keeps_its_place_in_a_tuple() {
    let clear = [("x-a", &b"alice"[..]), ("x-b", b"1"), ("x-b", b"2")];
    let other = [("x-a", &b"1"[..]), ("x-a", b"2"), ("x-b", b"alice")];
    let neither = [("x-a", &b"1"[..]), ("x-a", b"2"), ("x-b", b"1"), ("x-b", b"2")];
    let key = (header("x-a"), header("x-b"));
    assert_eq!(shown(&key, &with(&clear)), "alice|?");
    assert_eq!(shown(&key, &with(&other)), "?|alice");
    assert_eq!(shown(&key, &with(&neither)), "?|?");
    let key = (header("x-a").secret(), header("x-b").secret());
    assert_ne!(key_of(&key, &with(&clear)), key_of(&key, &with(&other)));
    // The global key adds nothing, wherever it is.
    assert_eq!(shown(&(global(), header("x-a")), &with(&clear)), "alice");
}

#[test]
fn a_part_that_is_missing_keeps_its_place_in_a_tuple() {
    let request = with(&[("x-a", b"a")]);
    let (a, b) = (|| header("x-a"), || header("x-b"));
    assert_eq!(shown(&(a(), b()), &request), "a|-");
    assert_eq!(shown(&(b(), a()), &request), "-|a");
    assert_eq!(shown(&(a(), path(), b()), &request), "a|/|-");
    assert_eq!(shown(&(path(), b(), path(), a()), &request), "/|-|/|a");
    let list: Vec<Arc<dyn KeyExtractor>> = vec![Arc::new(b()), Arc::new(a()), Arc::new(b())];
    assert_eq!(shown(&list, &request), "-|a|-");
}

#[test]
fn a_tuple_is_missing_if_all_of_its_parts_are_or_one_that_is_required() {
    let request = with(&[("x-a", b"a")]);
    let (a, b) = (|| header("x-a"), || header("x-b"));
    assert_eq!(key_of(&(b(), b()), &request), None);
    assert_eq!(key_of(&(b(), b(), b()), &request), None);
    assert_eq!(key_of(&((b(), b()), b(), b()), &request), None);
    // The global key adds nothing, so nothing is left.
    assert_eq!(key_of(&(global(), b()), &request), None);
    assert_eq!(key_of(&(global(), global()), &request), Some(Key::GLOBAL));

    assert_eq!(key_of(&(a(), required(b())), &request), None);
    assert_eq!(key_of(&(required(b()), a()), &request), None);
    assert_eq!(key_of(&(a(), path(), required(b())), &request), None);
    assert_eq!(key_of(&((a(), required(b().secret())), path()), &request), None);
    let nested: Arc<dyn KeyExtractor> = Arc::new((a(), required(b())));
    assert_eq!(key_of(&(nested, path()), &request), None);
    assert_eq!(shown(&(required(a()), b()), &request), "a|-");
    assert_eq!(shown(&required(a()), &request), "a");
}

#[test]
fn an_empty_text_is_missing_wherever_it_comes_from() {
    let mut request = with(&[("x-a", b""), ("x-b", b" "), ("cookie", b"c=")]);
    request.extensions_mut().insert(String::new());
    assert_eq!(key_of(&header("x-a"), &request), None);
    assert_eq!(key_of(&header("x-b").secret(), &request), None);
    assert_eq!(key_of(&(header("x-a"), header("x-b")), &request), None);
    assert_eq!(key_of(&cookie("c").secret(), &request), None);
    assert_eq!(key_of(&extension(|text: &String| text.clone()), &request), None);
    assert_eq!(key_of(&extension(|text: &String| Key::secret(text)), &request), None);
    assert_eq!(key_of(&from_fn(|_: &RequestHead<'_>| Some("")), &request), None);
    // A number is never empty.
    assert_eq!(key_of(&from_fn(|_: &RequestHead<'_>| Some(0u64)), &request), Some(Key::from(0u64)));
}

#[tokio::test]
async fn the_first_key_that_a_request_has_stands_for_the_others() {
    let request = from_peer("192.0.2.7", &[("x-b", "b"), ("x-c", ""), ("x-d", "d")]);
    let (a, b, c, d) = (|| header("x-a"), || header("x-b"), || header("x-c"), || header("x-d"));
    assert_eq!(shown(&first_of((a(), b())), &request), "b");
    assert_eq!(shown(&first_of((d(), b())), &request), "d");
    assert_eq!(shown(&a().or(b()), &request), "b");
    assert_eq!(shown(&a().secret().or(c()).or(peer_ip()), &request), "192.0.2.7");
    assert_eq!(shown(&first_of((a(), c(), peer_ip())), &request), "192.0.2.7");
    assert_eq!(shown(&first_of((a(), c(), d(), b())), &request), "d");
    assert_eq!(shown(&(path(), a().or(b())), &request), "/|b");
    assert_eq!(key_of(&a().or(c()), &request), None);
    assert_eq!(key_of(&(path(), required(a().or(c()))), &request), None);

    let later = |found: Option<&'static str>| from_async_fn(move |_: &RequestHead<'_>| async move { found });
    let waited = async |key: Arc<dyn KeyExtractor>| wait(&key, &request).await.map(|key| key.to_string());
    assert_eq!(waited(Arc::new(later(None).or(b()))).await.as_deref(), Some("b"));
    assert_eq!(waited(Arc::new(later(Some("")).or(b()))).await.as_deref(), Some("b"));
    assert_eq!(waited(Arc::new(later(Some("later")).or(b()))).await.as_deref(), Some("later"));
    assert_eq!(waited(Arc::new(a().or(later(Some("later"))))).await.as_deref(), Some("later"));
    assert_eq!(waited(Arc::new(later(None).or(later(None)))).await, None);
    // What is known at once need not be looked up.
    assert_eq!(shown(&b().or(later(Some("later"))), &request), "b");
}

#[test]
fn what_an_outer_layer_knows_is_a_key() {
    let key = extension(|user: &User| user.id);
    let mut request = to("/");
    assert_eq!(key_of(&key, &request), None);
    request.extensions_mut().insert(User { id: 7 });
    assert_eq!(key_of(&key, &request), Some(Key::from(7u64)));
    assert_ne!(key_of(&key, &request), Some(Key::from("7")));
}

#[test]
fn a_closure_makes_any_key_of_the_head() {
    let key = from_fn(|head: &RequestHead<'_>| {
        let host = head.uri().host()?;
        Some(Key::from(host).and(head.method().as_str()))
    });
    assert_eq!(shown(&key, &to("http://example.com/x")), "example.com|GET");
    assert_eq!(key_of(&key, &to("/x")), None);
    assert_eq!(format!("{key:?}"), "FromFn(..)");
}

#[tokio::test]
async fn a_key_may_be_looked_up() {
    let key = from_async_fn(|head: &RequestHead<'_>| {
        let name = head.headers().get("x-user").and_then(|name| name.to_str().ok()).map(String::from);
        async move {
            tokio::task::yield_now().await;
            name.filter(|name| name == "alice").map(|_| 7u64)
        }
    });
    let request = with(&[("x-user", b"alice")]);
    assert!(matches!(key.extract(&RequestHead::from(&request)), Extracted::Later(_)));
    assert_eq!(wait(&key, &request).await, Some(Key::from(7u64)));
    assert_eq!(wait(&key, &with(&[("x-user", b"mallory")])).await, None);
    assert_eq!(wait(&key, &to("/")).await, None);
}

#[tokio::test]
async fn a_tuple_may_have_parts_that_are_looked_up() {
    let later = || from_async_fn(|_: &RequestHead<'_>| async { Some("later") });
    let never = || from_async_fn(|_: &RequestHead<'_>| async { None::<&str> });
    let expect = |text: &str| Some(text.to_owned());
    let wait = async |key: Arc<dyn KeyExtractor>| wait(&key, &to("/x")).await.map(|key| key.to_string());
    assert_eq!(wait(Arc::new((path(), later()))).await, expect("/x|later"));
    assert_eq!(wait(Arc::new((later(), path()))).await, expect("later|/x"));
    assert_eq!(wait(Arc::new((later(), later(), method()))).await, expect("later|later|GET"));
    assert_eq!(wait(Arc::new((later(), never()))).await, expect("later|-"));
    assert_eq!(wait(Arc::new((never(), path()))).await, expect("-|/x"));
    assert_eq!(wait(Arc::new((header("x-a"), never()))).await, None);
    assert_eq!(wait(Arc::new((later(), required(never())))).await, None);
    assert_eq!(wait(Arc::new((later(), path(), header("x-a")))).await, expect("later|/x|-"));
    let empty = || from_async_fn(|_: &RequestHead<'_>| async { Some("") });
    assert_eq!(wait(Arc::new(empty())).await, None);
    assert_eq!(wait(Arc::new((empty(), path()))).await, expect("-|/x"));
    // If a required part is missing immediately, the others need not be waited for.
    let request = to("/x");
    let key = (later(), required(header("x-a"))).extract(&RequestHead::from(&request));
    assert!(matches!(key, Extracted::Missing));
}

#[test]
fn a_key_of_ones_own_kind_is_a_key_as_any_other() {
    struct Tenant;

    impl KeyExtractor for Tenant {
        fn extract(&self, head: &RequestHead<'_>) -> Extracted {
            head.uri().host().and_then(|host| host.split('.').next()).into()
        }
    }

    assert_eq!(shown(&(Tenant, path()), &to("http://acme.example.com/x")), "acme|/x");
    let shared: Arc<dyn KeyExtractor> = Arc::new(Tenant);
    assert_eq!(shown(&shared, &to("http://acme.example.com/x")), "acme");
}

#[test]
fn extracted_keys_are_shown_by_what_is_known_of_them() {
    let request = to("/x");
    let head = RequestHead::from(&request);
    assert_eq!(format!("{:?}", path().extract(&head)), "Key(Key(/x))");
    assert_eq!(format!("{:?}", header("x-a").extract(&head)), "Missing");
    let later = from_async_fn(|_: &RequestHead<'_>| async { Some("x") });
    assert_eq!(format!("{:?}", later.extract(&head)), "Later(..)");
}

#[test]
fn extractors_can_be_cloned_shared_and_sent() {
    fn check<T: Clone + Send + Sync + 'static>() {}
    check::<super::super::PeerIp>();
    check::<super::super::ClientIp>();
    check::<super::super::TrustedProxies>();
    check::<super::super::Header>();
    check::<Secret<super::super::Bearer>>();
    check::<super::super::Cookie>();
    check::<super::super::Path>();
    check::<super::super::PathParam>();
    check::<super::super::Route>();
    check::<super::super::RequestMethod>();
    check::<super::super::Constant>();
    check::<super::super::FromFn>();
}
