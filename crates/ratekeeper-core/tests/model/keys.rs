//! Keys are equal when their parts are.

use std::net::IpAddr;

use proptest::prelude::*;
use ratekeeper_core::{Charge, Key, ManualClock, MemoryStore, Outcome, Quota, RuleName, Timestamp};

use crate::support::cases;

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Bytes(Vec<u8>),
    Secret(Vec<u8>),
    Number(u64),
    Address(IpAddr),
    Ambiguous,
    Missing,
}

impl Part {
    fn key(&self) -> Key {
        match self {
            Self::Bytes(bytes) => Key::from(bytes.as_slice()),
            Self::Secret(bytes) => Key::secret(bytes),
            Self::Number(number) => Key::from(*number),
            Self::Address(address) => Key::from(*address),
            Self::Ambiguous => Key::AMBIGUOUS,
            Self::Missing => Key::MISSING,
        }
    }

    /// The part as a key stores it: a mapped address becomes the address itself.
    fn canonical(&self) -> Self {
        match self {
            Self::Address(address) => Self::Address(address.to_canonical()),
            part => part.clone(),
        }
    }
}

/// Parts with few possible values, so that equal and similar ones occur.
fn part() -> impl Strategy<Value = Part> {
    let byte = proptest::sample::select(&[0_u8, 1, 2, 6, 32, b'a', b'b', b'|', b'"', b'%', 0xff][..]);
    let bytes = || {
        prop_oneof![
            proptest::collection::vec(byte.clone(), 0..4),
            proptest::collection::vec(byte.clone(), 14..18),
            proptest::collection::vec(Just(b'a'), 50..60),
            "#[0-9]|secret:a|sha256:b|1\\.2\\.3\\.[45]|::[12]|\\*|\\?|-|\"a\"".prop_map(String::into_bytes),
        ]
    };
    let number = proptest::sample::select(&[0_u64, 1, 7, 1 << 32, u64::MAX][..]);
    let address = proptest::sample::select(&["1.2.3.4", "1.2.3.5", "::1", "::ffff:1.2.3.4"][..]);
    prop_oneof![
        4 => bytes().prop_map(Part::Bytes),
        1 => bytes().prop_map(Part::Secret),
        1 => number.prop_map(Part::Number),
        1 => address.prop_map(|text| Part::Address(text.parse().expect("it is an address"))),
        1 => Just(Part::Ambiguous),
        1 => Just(Part::Missing),
    ]
}

fn key(parts: &[Part]) -> Key {
    parts.iter().fold(Key::GLOBAL, |key, part| key.and(part.key()))
}

proptest! {
    #![proptest_config(cases(4096))]

    #[test]
    fn keys_are_equal_and_shown_alike_exactly_when_their_parts_are(
        a in proptest::collection::vec(part(), 0..4),
        b in proptest::collection::vec(part(), 0..4),
    ) {
        let alike = a.iter().map(Part::canonical).eq(b.iter().map(Part::canonical));
        prop_assert_eq!(key(&a) == key(&b), alike, "{:?} {:?}", key(&a), key(&b));
        prop_assert_eq!(key(&a).to_string() == key(&b).to_string(), alike, "{} {}", key(&a), key(&b));
    }

    #[test]
    fn a_key_of_one_part_is_that_part(part in part()) {
        prop_assert_eq!(key(std::slice::from_ref(&part)), part.key());
        prop_assert_eq!(part.key().and(()), part.key());
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn a_store_counts_keys_apart(lists in proptest::collection::vec(proptest::collection::vec(part(), 0..4), 1..40)) {
        let store = MemoryStore::builder().clock(ManualClock::new(Timestamp::from_secs(1))).build();
        let (rule, quota) = (RuleName::new("keys").expect("it is a name"), Quota::per_hour(1_000));
        let keys: Vec<Key> = lists.iter().map(|list| key(list)).collect();
        for (i, key) in keys.iter().enumerate() {
            let decision = store.decide(&[Charge::new(rule, key, &quota)]);
            let same = keys[..=i].iter().filter(|other| *other == key).count() as u32;
            prop_assert_eq!(decision.outcome("keys").map(Outcome::remaining), Some(1_000 - same));
        }
    }
}
