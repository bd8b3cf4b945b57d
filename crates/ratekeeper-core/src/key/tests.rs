use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::*;

#[test]
fn different_parts_make_different_keys() {
    let address: IpAddr = "1.2.3.4".parse().unwrap();
    let keys = [
        Key::GLOBAL,
        Key::from(""),
        Key::from("a"),
        Key::from(("a", "bc")),
        Key::from(("ab", "c")),
        Key::from("abc"),
        Key::from("a|bc"),
        Key::from("7"),
        Key::from(7u64),
        Key::from(7u64.to_be_bytes().as_slice()),
        Key::from(address),
        Key::from([1u8, 2, 3, 4].as_slice()),
        Key::from("1.2.3.4"),
        Key::from("\"1.2.3.4\""),
        Key::from("*"),
        Key::from("?"),
        Key::AMBIGUOUS,
        Key::AMBIGUOUS.and("a"),
        Key::from("a").and(Key::AMBIGUOUS),
        Key::AMBIGUOUS.and(Key::AMBIGUOUS),
        Key::from("?").and("a"),
        Key::from("-"),
        Key::MISSING,
        Key::MISSING.and("a"),
        Key::from("a").and(Key::MISSING),
        Key::MISSING.and(Key::MISSING),
        Key::from("-").and("a"),
        Key::from("#7"),
        Key::from("#-7"),
        Key::from("-7"),
        Key::from(-7_i64),
        Key::from(i64::MIN),
        Key::from(i64::MIN.unsigned_abs()),
        Key::secret("a"),
        Key::from("x".repeat(100)),
        Key::from("x".repeat(101)),
        Key::from("a").and("x".repeat(100)),
        Key::from("a").and("x".repeat(40)).and("x".repeat(40)),
        Key::from("a").and("x".repeat(40)).and("x".repeat(41)),
        // Written like the parts of ("x" × 30, "y" × 30).
        Key::from(format!("\u{1}\u{1e}{}\u{1}\u{1e}{}", "x".repeat(30), "y".repeat(30))),
        Key::from("x".repeat(30)).and("y".repeat(30)),
    ];
    for (i, a) in keys.iter().enumerate() {
        for b in &keys[i + 1..] {
            assert_ne!(a, b);
            assert_ne!(a.to_string(), b.to_string());
        }
    }
}

#[test]
fn adding_no_parts_changes_nothing() {
    let texts = [Key::from(""), Key::from("a"), Key::from(("a", "b")), Key::secret("a")];
    for key in [Key::GLOBAL, Key::AMBIGUOUS, Key::MISSING].into_iter().chain(texts) {
        assert_eq!(Key::GLOBAL.and(key), key);
        assert_eq!(key.and(Key::GLOBAL), key);
    }
}

#[test]
fn a_mapped_address_is_the_address() {
    let mapped: IpAddr = "::ffff:1.2.3.4".parse().unwrap();
    assert_eq!(Key::from(mapped).to_string(), "1.2.3.4");
}

#[test]
fn a_secret_is_not_shown() {
    for secret in ["hunter2".to_owned(), "hunter2".repeat(20)] {
        for key in
            [Key::secret(&secret), Key::from(&secret).into_secret(), Key::secret(&secret).and("x".repeat(46))]
        {
            let shown = format!("{key} {key:?}");
            assert!(!shown.contains("hunter2"), "{shown}");
            assert!(key.is_secret(), "{shown}");
        }
    }
    assert!(Key::from("a").and(Key::secret("b")).is_secret());
}

#[test]
fn any_bytes_are_shown_without_ambiguity() {
    let key = Key::from([b'a', 0, 0xff, b'|', b'%', b' ', 0xc3, 0xa9].as_slice());
    assert_eq!(key.to_string(), "a%00%FF%7C%25%20é");
}

#[test]
fn who_is_ambiguous_is_shown_so_and_is_no_secret() {
    let key = Key::from("alice").and(Key::AMBIGUOUS);
    assert_eq!(key.to_string(), "alice|?");
    assert_eq!(Key::AMBIGUOUS.into_secret(), Key::AMBIGUOUS);
    assert_eq!(Key::from("a").and(Key::AMBIGUOUS).into_secret(), Key::secret("a").and(Key::AMBIGUOUS));
}

/// A store may identify keys by how they are shown.
#[test]
fn a_digest_of_several_parts_is_shown_as_no_single_part_is() {
    let part = "x".repeat(40);
    let several = Key::secret(&part).and(part.as_str());
    let mut bytes = vec![2, 40];
    bytes.extend(part.as_bytes());
    bytes.extend([1, 40]);
    bytes.extend(part.as_bytes());
    let (once, twice) = (Sha256::digest(&bytes), Sha256::digest(Sha256::digest(&bytes)));
    for single in [&bytes[..], &once, &twice] {
        for single in [Key::secret(single), Key::from(single)] {
            assert_ne!(several, single);
            assert_ne!(several.to_string(), single.to_string());
        }
    }
}

#[test]
fn what_means_the_same_is_the_same_key() {
    assert_eq!(Key::from(7_i64), Key::from(7_u64));
    assert_eq!(Key::from(-7_i32), Key::from(-7_i64));
    assert_eq!(Key::from(-7_i32).to_string(), "#-7");
    assert_eq!(Key::from(i64::MIN).to_string(), format!("#{}", i64::MIN));
    for bytes in [Key::from(b"alice"), Key::from(*b"alice"), Key::from(b"alice".to_vec())] {
        assert_eq!(bytes, Key::from("alice"));
    }
    assert_eq!(Key::from(Cow::Borrowed("alice")), Key::from("alice"));
    let mapped = Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped();
    assert_eq!(Key::from(mapped), Key::from(Ipv4Addr::new(192, 0, 2, 1)));
    assert_eq!(Key::from(Ipv6Addr::LOCALHOST), Key::from(IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1_u16])));
}
