//! What happens to a set of rules once it has been read, whatever its source.

use std::fs;

use ratekeeper::{Quota, Rule, key};
use ratekeeper_rules::{Document, Format, Reloader, Source, SourceError};
use tokio::sync::watch;

use crate::support::{Reloaded, problem, rules, wrong_rules};

/// A source that the test controls; it cannot be read while there is no text.
#[derive(Debug)]
struct Handed(watch::Receiver<Option<String>>);

impl Handed {
    fn new(text: Option<String>) -> (watch::Sender<Option<String>>, Self) {
        let (hand, handed) = watch::channel(text);
        (hand, Self(handed))
    }
}

impl Source for Handed {
    fn kind(&self) -> &'static str {
        "handed"
    }

    async fn read(&mut self, _max_size: usize) -> Result<Document, SourceError> {
        match &*self.0.borrow_and_update() {
            Some(text) => Ok(Document::new("handed rules", Format::Toml, text.as_str())),
            None => Err(SourceError::new("nothing was handed over").because("the hand is empty")),
        }
    }

    async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[tokio::test]
async fn a_service_without_good_rules_does_not_start() {
    let (_hand, source) = Handed::new(None);
    let error = Reloader::new(source).load().await.expect_err("there are none");
    assert_eq!(error.to_string(), "nothing was handed over: the hand is empty");
    assert_eq!(error.refused_version(), None);

    let (_hand, source) = Handed::new(Some(wrong_rules()));
    let error = Reloader::new(source).load().await.expect_err("they make no sense");
    assert!(error.to_string().contains("rule `login`, `quota`"), "{error}");
    assert_eq!(error.problems().len(), 1);
    assert!(error.refused_version().is_some());
}

#[tokio::test]
async fn what_is_wrong_is_told_until_it_is_right() {
    let (hand, source) = Handed::new(Some(rules(10)));
    let reloaded = Reloaded::start(source).await;
    let first = reloaded.handle.status();
    assert!(first.problem().is_none() && first.read_at().is_some());

    hand.send_replace(Some(wrong_rules()));
    let refused = reloaded.until_refused().await;
    let since = refused.problem().unwrap().since();
    hand.send_replace(None);
    let unread = reloaded.until_unread().await;
    assert_eq!(unread.problem().unwrap().since(), since, "it has not been right since then");
    // Already refused, and not checked again.
    hand.send_replace(Some(wrong_rules()));
    let again = reloaded.until_refused().await;
    assert_eq!(problem(&again), problem(&refused));
    assert_eq!((again.applied(), again.refused(), again.unread()), (1, 1, 1));

    // Rolled back to the rules in force.
    hand.send_replace(Some(rules(10)));
    let right = reloaded.until_right().await;
    assert_eq!((right.version(), right.applied(), right.since()), (first.version(), 1, first.since()));
    // And if it is supplied again, that counts as another time.
    hand.send_replace(Some(wrong_rules()));
    assert_eq!(reloaded.until_refused().await.refused(), 2);
}

#[tokio::test]
async fn who_asks_is_told_when_it_was_read() {
    let (hand, source) = Handed::new(Some(rules(10)));
    let reloaded = Reloaded::start(source).await;
    hand.send_replace(Some(rules(20)));
    let status = reloaded.handle.reload().await;
    assert_eq!(reloaded.limit(), Some(20));
    assert_eq!(status.applied(), 2);
    assert!(reloaded.handle.is_running());
}

#[tokio::test]
async fn rules_of_the_application_stay_beside_those_of_the_source() {
    let (hand, source) = Handed::new(Some(rules(10)));
    let own = Rule::new("flood", Quota::per_second(50)).key(key::global());
    let reloaded = Reloaded::start_with(Reloader::new(source).rule(own)).await;
    let names = || reloaded.limiter.rule_set().names().map(|name| name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(), ["api", "flood"]);
    hand.send_replace(Some(rules(20)));
    let status = reloaded.until_limit(20).await;
    assert_eq!((names(), status.rules()), (vec!["api".to_owned(), "flood".to_owned()], 2));

    hand.send_replace(Some(rules(30).replace("\"api\"", "\"flood\"")));
    let error = problem(&reloaded.until_refused().await);
    assert!(error.contains("handed rules") && error.contains("`flood`"), "{error}");
    assert_eq!(reloaded.limit(), Some(20));
}

#[tokio::test]
async fn what_is_reloaded_keeps_what_was_used() {
    let (hand, source) = Handed::new(Some(rules(10)));
    let reloaded = Reloaded::start(source).await;
    for _ in 0..7 {
        assert!(reloaded.limiter.charge("api", "alice").await.unwrap().is_admitted());
    }
    hand.send_replace(Some(rules(8)));
    reloaded.until_limit(8).await;
    assert!(reloaded.limiter.charge("api", "alice").await.unwrap().is_admitted());
    assert!(!reloaded.limiter.charge("api", "alice").await.unwrap().is_admitted());
}

#[tokio::test]
async fn what_takes_a_restart_is_told() {
    let with = |settings: &str| Some(format!("{settings}\n{}", rules(10)));
    let (hand, source) = Handed::new(with("[layer]\nietf-headers = \"draft-11\""));
    let reloaded = Reloaded::start(source).await;
    assert!(reloaded.handle.status().needs_restart().is_empty());

    hand.send_replace(with(
        "[layer]\ncharge-preflights = true\nrejection = \"problem\"\n[limiter]\nmax-waiting = 5",
    ));
    let status = reloaded.until("the rules", |status| status.applied() == 2).await;
    assert_eq!(
        status.needs_restart(),
        ["layer.ietf-headers", "layer.charge-preflights", "layer.rejection", "limiter.max-waiting"]
    );

    hand.send_replace(with("[layer]\nietf-headers = \"draft-11\"\n"));
    let status = reloaded.until("the rules", |status| status.applied() == 3).await;
    assert!(status.needs_restart().is_empty());
}

#[tokio::test]
async fn the_last_good_rules_are_kept_for_the_next_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("last-good.json");
    let kept = |source| Reloader::new(source).last_good(&path);

    let (_hand, source) = Handed::new(None);
    kept(source).load().await.expect_err("nothing was kept yet");

    let (hand, source) = Handed::new(Some(rules(10)));
    let reloaded = Reloaded::start_with(kept(source)).await;
    hand.send_replace(Some(rules(20)));
    // After an explicit reload it is certain that they were kept.
    let version = reloaded.handle.reload().await.version().to_owned();
    hand.send_replace(Some(wrong_rules()));
    reloaded.handle.reload().await;
    drop(reloaded);

    for text in [None, Some(wrong_rules())] {
        let (hand, source) = Handed::new(text.clone());
        let reloaded = Reloaded::start_with(kept(source)).await;
        let status = reloaded.handle.status();
        assert_eq!((reloaded.limit(), status.version()), (Some(20), &*version));
        assert_eq!(status.problem().unwrap().error().refused_version().is_some(), text.is_some());
        assert_eq!(status.read_at().is_some(), text.is_some());
        hand.send_replace(Some(rules(20)));
        let status = reloaded.until_right().await;
        assert_eq!((status.version(), status.applied()), (&*version, 1), "these are what was kept");
    }

    fs::write(&path, "garbage").unwrap();
    let (_hand, source) = Handed::new(None);
    let error = kept(source).load().await.expect_err("what was kept is of no use");
    assert_eq!(error.to_string(), "nothing was handed over: the hand is empty");
}

#[tokio::test]
async fn a_handle_that_is_dropped_ends_it_and_leaves_the_rules() {
    let (hand, source) = Handed::new(Some(rules(10)));
    let Reloaded { limiter, handle } = Reloaded::start(source).await;
    drop(handle);
    // The source is dropped with the task.
    tokio::time::timeout(crate::support::LIMIT, hand.closed()).await.expect("it ends");
    assert!(limiter.charge("api", "alice").await.unwrap().is_admitted());
}
