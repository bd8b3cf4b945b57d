use super::*;

fn pairs() -> impl Iterator<Item = (Quota, Quota)> {
    let quotas = || {
        [each(10, MINUTE), each(100, MINUTE), each(10, SECOND), each(7, 3 * SECOND)]
            .into_iter()
            .flatten()
            .chain([Quota::per_minute(10).burst(3), Quota::leaky_bucket(10, SECOND).capacity(40)])
    };
    quotas().flat_map(move |old| quotas().map(move |new| (old, new)))
}

#[test]
fn what_was_used_stays_used_under_any_new_quota() {
    for (old, new) in pairs() {
        for used in 1..=old.max() {
            let mut subject = Subject::new(old);
            subject.take(used);
            subject.quota = new;
            assert_eq!(subject.remaining(), new.max().saturating_sub(used), "{old}, {used} used, to {new}");
            assert_eq!(subject.drain(), new.max().saturating_sub(used), "{old}, {used} used, to {new}");
        }
    }
}

#[test]
fn nobody_is_locked_for_longer_than_the_new_quotas_full_refill() {
    for (old, new) in pairs() {
        let mut subject = Subject::new(old).at(17 * SECOND);
        subject.drain();
        subject.advance(SECOND);
        subject.quota = new;
        assert!(subject.peek(1).reset_after() <= new.full_refill(), "{old} to {new}");
        let whole = subject.now.saturating_add(new.full_refill());
        while let Some(retry) = subject.charge(new.max()).retry() {
            subject.advance(retry.after().unwrap());
            assert!(subject.now <= whole, "{old} to {new}");
        }
    }
}

#[test]
fn a_wait_announced_after_a_change_is_exact() {
    for (old, new) in pairs() {
        let mut subject = Subject::new(old).at(17 * SECOND);
        subject.drain();
        subject.quota = new;
        let Some(retry) = subject.charge(3).retry() else { continue };
        let wait = retry.after().unwrap();
        let mut early = subject.clone();
        early.advance(wait - MICRO);
        assert!(!early.charge(3).is_admitted(), "{old} to {new}");
        subject.advance(wait);
        assert!(subject.charge(3).is_admitted(), "{old} to {new}");
    }
}

#[test]
fn changing_to_and_fro_gains_nothing_and_loses_nothing() {
    for (old, new) in pairs().filter(|(old, new)| old.max() <= new.max()) {
        let mut subject = Subject::new(old);
        subject.take(2);
        for quota in [new, old, new, old, new, old] {
            subject.quota = quota;
            // Does not fit, and counts under the new quota from here on.
            assert!(!subject.charge(quota.max()).is_admitted(), "{old} and {new}");
        }
        assert_eq!(subject.remaining(), old.max() - 2, "{old} and {new}");
    }
}

#[test]
fn a_live_count_under_a_quota_that_makes_no_sense_admits_nothing() {
    for (sound, broken) in each(5, SECOND).into_iter().zip(each(0, SECOND)) {
        let mut counter = Counter::new(&sound);
        assert!(counter.charge(&sound, 2, START).is_admitted());
        assert!(!counter.charge(&broken, 1, START).is_admitted(), "{broken:?}");
        assert!(!counter.peek(&broken, 1, START).is_admitted(), "{broken:?}");
        assert_eq!(counter.charge(&sound, 1, START).remaining(), 2, "{sound:?}");
    }
}
