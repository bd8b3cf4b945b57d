//! Documents that are too large, from each kind of source.

use std::fmt::Debug;
use std::fs;

use ratekeeper_rules::{Document, FileSource, Format, RedisSource, Registry, Reloader, Source, SourceError};
use ratekeeper_servers::RedisServer;

use crate::postgres::Database;
use crate::support::rules;

/// Valid rules with a comment that makes them larger than is read by default.
fn large() -> String {
    format!("{}#{}\n", rules(10), "x".repeat(1 << 20))
}

/// Whatever the source is, a document is refused that is a byte larger than what is set, and by default one that
/// is larger than 1 MiB. `has` is the size of what the source has.
async fn check<S: Source + Debug>(name: &str, has: usize, source: impl Fn() -> S) {
    let error = Reloader::new(source()).load().await.expect_err("it is too large");
    assert_eq!(error.to_string(), format!("the rules in {name} have {has} bytes; at most 1048576 are read"));
    let load = |max| Reloader::new(source()).registry(Registry::new().max_document_size(max)).load();
    let error = load(has - 1).await.expect_err("it is too large");
    assert_eq!(
        error.to_string(),
        format!("the rules in {name} have {has} bytes; at most {} are read", has - 1)
    );
    assert_eq!(load(has).await.expect("it is not too large").file().rules().len(), 1);
}

#[tokio::test]
async fn in_a_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("rules.toml");
    fs::write(&path, large()).expect("it is written");
    check(&path.to_string_lossy(), large().len(), || FileSource::new(&path)).await;

    // A terabyte that takes no space, and could not be read.
    fs::File::create(&path).and_then(|file| file.set_len(1 << 40)).expect("a file");
    let error = Reloader::new(FileSource::new(&path)).load().await.expect_err("it is too large");
    assert!(error.to_string().contains("have 1099511627776 bytes; at most 1048576 are read"), "{error}");
}

#[tokio::test]
async fn in_redis() {
    let server = RedisServer::start().expect("it starts");
    let source = || RedisSource::new(server.url()).expect("a good address");
    source().publish(Format::Toml, large()).await.expect("it is published");
    check("key ratekeeper:rules of Redis", large().len(), source).await;
}

#[tokio::test]
async fn in_postgres() {
    let database = Database::with_rules().await;
    let name = "x".repeat(1 << 20);
    database
        .run(&format!("UPDATE ratekeeper_rules SET definition = definition || '{{\"key\": {{\"constant\": \"{name}\"}}}}'"))
        .await;
    let text = database.listening().read(usize::MAX).await.expect("it is there").text().len();
    check("table ratekeeper_rules", text, || database.listening()).await;
}

#[tokio::test]
async fn in_a_source_that_knows_no_bound() {
    #[derive(Debug)]
    struct Handed;

    impl Source for Handed {
        fn kind(&self) -> &'static str {
            "handed"
        }

        async fn read(&mut self, _max_size: usize) -> Result<Document, SourceError> {
            Ok(Document::new("hand", Format::Toml, large()))
        }

        async fn changed(&mut self) {
            std::future::pending::<()>().await;
        }
    }

    check("hand", large().len(), || Handed).await;
}
