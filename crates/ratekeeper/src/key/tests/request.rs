//! Keys that the request carries.

use http::{Method, Request};

use super::super::{
    Key, KeyExtractor, bearer, constant, cookie, global, header, method, path, path_param, route,
};
use super::{key_of, shown, to, with};

#[test]
fn a_header_is_counted_by_its_value_whatever_bytes_it_has() {
    let key = header("x-tenant");
    assert_eq!(shown(&key, &with(&[("x-tenant", b"acme")])), "acme");
    assert_eq!(shown(&key, &with(&[("x-tenant", b"\xff|x")])), "%FF%7Cx");
    assert_eq!(key_of(&key, &with(&[("x-other", b"acme")])), None);
}

/// HTTP/1 strips white space, but in HTTP/2 anybody can send it. Most applications do not see it.
#[test]
fn white_space_around_a_value_makes_no_other_caller() {
    for spelling in [&b" acme"[..], b"acme ", b"acme\t", b" \t acme \t "] {
        assert_eq!(shown(&header("x-tenant"), &with(&[("x-tenant", spelling)])), "acme");
        assert_eq!(
            shown(&header("x-tenant"), &with(&[("x-tenant", b"acme"), ("x-tenant", spelling)])),
            "acme"
        );
    }
    assert_eq!(
        shown(&header("x-tenant"), &with(&[("x-tenant", b"ac me")])),
        shown(&header("x-tenant"), &with(&[("x-tenant", b" ac me")]))
    );
}

/// It is not known which of them the application uses, so neither may make the caller a different one.
#[test]
fn of_several_fields_that_differ_none_is_the_key() {
    let key = header("x-tenant");
    for lines in [
        &[("x-tenant", &b"decoy"[..]), ("x-tenant", b"acme")][..],
        &[("x-tenant", b"acme"), ("x-tenant", b"decoy")],
        &[("x-tenant", b"acme"), ("x-tenant", b"acme"), ("x-tenant", b"decoy")],
        &[("x-tenant", b"acme"), ("x-tenant", b"")],
    ] {
        assert_eq!(key_of(&key, &with(lines)), Some(Key::AMBIGUOUS), "{lines:?}");
        assert_eq!(key_of(&key.clone().secret(), &with(lines)), Some(Key::AMBIGUOUS), "{lines:?}");
    }
    let twice = [("x-tenant", &b"acme"[..]), ("x-other", b"x"), ("x-tenant", b"acme")];
    assert_eq!(shown(&key, &with(&twice)), "acme");
}

#[test]
fn of_several_tokens_that_differ_none_is_the_key() {
    let of = |values: &[&'static str]| {
        let lines: Vec<_> = values.iter().map(|value| ("authorization", value.as_bytes())).collect();
        key_of(&bearer(), &with(&lines))
    };
    let expected = Some(Key::secret("t0ken"));
    assert_eq!(of(&["Bearer t0ken", "bearer  t0ken"]), expected);
    assert_eq!(of(&["Bearer decoy", "Bearer t0ken"]), Some(Key::AMBIGUOUS));
    assert_eq!(of(&["Bearer t0ken", "Bearer decoy"]), Some(Key::AMBIGUOUS));
    // A field without a token does not hide one.
    assert_eq!(of(&["Basic dTpw", "Bearer t0ken"]), expected);
    assert_eq!(of(&["Bearer t0ken", "Basic dTpw"]), expected);
    assert_eq!(of(&["Bearer ", "Bearer t0ken"]), expected);
    assert_eq!(of(&["Basic dTpw", "Bearer"]), None);
}

#[test]
fn values_of_any_length_are_different_keys_and_take_no_more_room() {
    let long = |last: u8| {
        let mut value = vec![b'x'; 64 * 1024];
        value.push(last);
        key_of(&header("x-tenant"), &with(&[("x-tenant", &value)])).unwrap()
    };
    assert_eq!(long(b'a'), long(b'a'));
    assert_ne!(long(b'a'), long(b'b'));
    assert!(long(b'a').to_string().len() < 64);
    assert_eq!(size_of::<Key>(), 64);
}

#[test]
fn a_secret_is_counted_and_never_shown() {
    for secret in ["hunter2".to_owned(), "hunter2".repeat(100)] {
        let authorization = format!("Bearer {secret}");
        let session = format!("session={secret}");
        let request = with(&[
            ("x-api-key", secret.as_bytes()),
            ("authorization", authorization.as_bytes()),
            ("cookie", session.as_bytes()),
        ]);
        let keys = [
            key_of(&header("x-api-key").secret(), &request),
            key_of(&bearer(), &request),
            key_of(&cookie("session").secret(), &request),
            key_of(&(header("x-api-key").secret(), path()), &request),
            key_of(&(bearer(), header("x-api-key").secret(), method()), &request),
        ];
        for key in keys {
            let shown = format!("{} {key:?}", key.unwrap());
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        // The same secret is the same key wherever it comes from, and different secrets are different keys.
        assert_eq!(keys[0], keys[1]);
        assert_ne!(keys[0], key_of(&bearer(), &with(&[("authorization", b"Bearer hunter3")])));
    }
}

#[test]
fn an_extractor_that_has_seen_secrets_shows_none() {
    let request = with(&[("authorization", b"Bearer hunter2")]);
    let extracted = bearer().extract(&crate::RequestHead::from(&request));
    assert!(!format!("{extracted:?} {:?}", bearer()).contains("hunter2"));
}

#[test]
fn the_bearer_token_is_found_whatever_the_case_of_the_scheme() {
    let token = |value: &[u8]| key_of(&bearer(), &with(&[("authorization", value)]));
    let expected = Some(Key::secret("t0ken"));
    for value in [&b"Bearer t0ken"[..], b"bearer t0ken", b"BEARER t0ken", b"BeArEr   t0ken "] {
        assert_eq!(token(value), expected);
    }
    // But the case of the token itself matters.
    assert_ne!(token(b"Bearer T0KEN"), expected);
    for value in [
        &b"Basic t0ken"[..],
        b"Bearer",
        b"Bearer ",
        b"Bearer    ",
        b"Bearert0ken",
        b"",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        assert_eq!(token(value), None);
    }
    assert_eq!(key_of(&bearer(), &to("/")), None);
}

/// As around any other value: readers strip white space, or treat a tab as a space.
#[test]
fn white_space_around_the_scheme_and_the_token_hides_no_token() {
    let token = |value: &[u8]| key_of(&bearer(), &with(&[("authorization", value)]));
    for value in [&b" Bearer t0ken"[..], b"\tbearer t0ken", b"Bearer\tt0ken", b" \tBearer \t t0ken\t "] {
        assert_eq!(token(value), Some(Key::secret("t0ken")), "{}", value.escape_ascii());
    }
    for value in [&b" Bearer"[..], b"\tBearer\t", b"Bearer\t ", b" Bearert0ken", b"Bea rer t0ken"] {
        assert_eq!(token(value), None, "{}", value.escape_ascii());
    }
}

#[test]
fn a_cookie_is_found_on_whichever_line_it_is() {
    let key = cookie("session");
    for lines in [
        &[("cookie", &b"session=abc"[..])][..],
        &[("cookie", b"theme=dark; session=abc; lang=de")],
        &[("cookie", b"theme=dark"), ("cookie", b"lang=de;session=abc")],
        // HTTP/2 allows a separate line for each cookie.
        &[("cookie", b"a=1"), ("cookie", b"b=2"), ("cookie", b"session=abc")],
    ] {
        assert_eq!(shown(&key, &with(lines)), "abc", "{lines:?}");
    }
    assert_eq!(shown(&key, &with(&[("cookie", b"session=a=b=c")])), "a=b=c");
}

/// Spellings that some reader of cookies treats as the same session are one key.
#[test]
fn a_cookie_is_one_however_it_is_spelled() {
    for line in [
        &b"session=abc"[..],
        b"session= abc",
        b"session=\tabc ",
        b"session =abc",
        b" session = abc ; theme=dark",
        b"session=\"abc\"",
        b"session=%61bc",
        b"session=%61%62%63",
        b"session=%22abc%22",
        b"session=\"%22abc%22\"",
        b"session=\"a%62c\"",
        b"session=abc; session=%61bc",
        b"%73ession=abc",
        b"s%65ssion =%61bc; session=abc",
    ] {
        let key = key_of(&cookie("session"), &with(&[("cookie", line)]));
        assert_eq!(key, Some(Key::from("abc")), "{}", line.escape_ascii());
    }
    assert_eq!(shown(&cookie("session"), &with(&[("cookie", b"session=\"")])), "%22");
}

/// It is not known which of them the application uses, so neither may make the caller a different one.
#[test]
fn of_several_cookies_that_differ_none_is_the_key() {
    for lines in [
        &[("cookie", &b"session=decoy; session=abc"[..])][..],
        &[("cookie", b"session=abc; session=decoy")],
        &[("cookie", b"session=abc; theme=dark; session=decoy; session=abc")],
        &[("cookie", b"session=abc"), ("cookie", b"session =decoy")],
        &[("cookie", b"session=decoy; %73ession=abc")],
        &[("cookie", b"%73ession=decoy"), ("cookie", b"session=abc")],
    ] {
        assert_eq!(key_of(&cookie("session"), &with(lines)), Some(Key::AMBIGUOUS), "{lines:?}");
        assert_eq!(key_of(&cookie("session").secret(), &with(lines)), Some(Key::AMBIGUOUS), "{lines:?}");
    }
}

#[test]
fn a_cookie_with_a_name_that_only_begins_or_ends_alike_is_another() {
    for line in [
        &b"session2=abc"[..],
        b"xsession=abc",
        b"session",
        b"Session=abc",
        b"x=session=abc",
        b"%2573ession=abc",
        b"",
    ] {
        assert_eq!(key_of(&cookie("session"), &with(&[("cookie", line)])), None, "{line:?}");
    }
    // A name that really contains a percent sign is found as it is, as by readers that do not decode names.
    assert_eq!(shown(&cookie("%73"), &with(&[("cookie", b"%73=abc")])), "abc");
}

#[test]
fn the_query_is_no_part_of_a_path() {
    for uri in ["/a/b", "/a/b?x=1", "/a/b?", "/a/b?x=/c", "http://example.com/a/b?y"] {
        assert_eq!(shown(&path(), &to(uri)), "/a/b", "{uri}");
    }
}

#[test]
fn a_path_is_one_however_it_is_spelled() {
    for uri in ["/a/b", "/%61/b", "/a/%62", "/%61%2Fb", "/%61%2fb"] {
        assert_eq!(shown(&path(), &to(uri)), "/a/b", "{uri}");
    }
    assert_ne!(shown(&path(), &to("/a/b")), shown(&path(), &to("/a/B")));
    // An invalid encoding stands for itself, and a decoded value need not be text.
    assert_eq!(shown(&path(), &to("/%zz%4")), "/%25zz%254");
    assert_eq!(shown(&path(), &to("/%FF%00")), "/%FF%00");
    // Decoded only once: these are different resources.
    assert_ne!(shown(&path(), &to("/%2561")), shown(&path(), &to("/%61")));
}

#[test]
fn the_method_is_a_key() {
    let request = |method: Method| Request::builder().method(method).body(()).unwrap();
    assert_eq!(shown(&method(), &request(Method::DELETE)), "DELETE");
    assert_eq!(shown(&method(), &request(Method::from_bytes(b"PURGE").unwrap())), "PURGE");
}

#[test]
fn a_constant_is_the_same_key_for_all() {
    assert_eq!(shown(&constant("backend"), &to("/a")), "backend");
    assert_eq!(shown(&global(), &to("/a")), "*");
    assert_eq!(key_of(&global(), &to("/a")), key_of(&global(), &to("/b")));
}

#[test]
fn without_a_route_there_are_neither_parameters_nor_a_route() {
    assert_eq!(key_of(&path_param("id"), &to("/users/7")), None);
    assert_eq!(key_of(&route(), &to("/users/7")), None);
}

#[test]
fn the_name_of_a_field_is_written_in_any_case() {
    let request = with(&[("x-tenant", b"acme")]);
    for name in ["x-tenant", "X-Tenant", "X-TENANT"] {
        assert_eq!(shown(&header(name), &request), "acme");
    }
    let field = crate::key::TrustedProxies::hops(1).in_field("CF-Connecting-IP");
    let request = with(&[("cf-connecting-ip", b"203.0.113.9")]);
    assert_eq!(shown(&crate::key::client_ip(field), &request), "203.0.113.9");
}

#[test]
#[should_panic(expected = "`x tenant` is not the name of a header field")]
fn what_cannot_be_the_name_of_a_field_is_a_mistake_of_the_programmer() {
    let _ = header("x tenant");
}
