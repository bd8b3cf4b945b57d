//! Connections with TLS.
//!
//! Apart from the other tests of the store, because certificates are given to redis 2 in another way; see
//! scripts/redis-2.

use std::time::Duration;

use ratekeeper_core::{Charge, HOUR, Key, Quota, RuleName, Store};
use ratekeeper_redis::{RedisStore, Servers};
use ratekeeper_servers::RedisServer;
use redis::{Client, TlsCertificates};

const PATIENCE: Duration = Duration::from_secs(20);

async fn at(client: Client) -> RedisStore {
    let builder = RedisStore::builder(Servers::one(client).expect("an address")).timeout(PATIENCE);
    let store = builder.build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("the server works");
    store
}

/// Charges one of one twice.
async fn decides(store: &RedisStore) {
    let (rule, key) = (RuleName::new("tls").expect("a name"), Key::from("alice"));
    let quota = Quota::sliding_log(1, HOUR);
    for is_admitted in [true, false] {
        let decision = store.charge(&[Charge::new(rule, &key, &quota)]).await.expect("it is decided");
        assert_eq!(decision.is_admitted(), is_admitted);
    }
}

/// A server with TLS, unless it was built without it.
fn with_tls(started: ratekeeper_servers::Result<RedisServer>) -> Option<RedisServer> {
    match started {
        Err(error) if error.lacks_tls() => {
            eprintln!("not tested: {error}");
            None
        }
        started => Some(started.expect("it starts")),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls() {
    let options = RedisServer::builder().tls().user("ratekeeper", "secret", "~ratekeeper:* +@all");
    let Some(server) = with_tls(options.start()) else { return };
    let url = server.tls_url().expect("it has a port for TLS");
    let root_cert = server.certificates().map(|certificates| certificates.authority().into());
    let trusting = TlsCertificates { client_tls: None, root_cert };
    let store = at(Client::build_with_tls(url.as_str(), trusting).expect("a client")).await;
    decides(&store).await;
    // A client that does not trust its certificate does not talk to it.
    let store = RedisStore::builder(Servers::one(url).expect("an address"));
    let store = store.build().expect("the store can be made");
    let error = store.ready(Duration::from_millis(200)).await.expect_err("it is not trusted");
    assert!(error.is_unavailable(), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_with_a_certificate_of_the_client() {
    let Some(server) = with_tls(RedisServer::builder().mutual_tls().start()) else { return };
    let certificates = server.certificates().expect("it has certificates");
    let client_tls = Some(redis::ClientTlsConfig {
        client_cert: certificates.client().into(),
        client_key: certificates.client_key().into(),
    });
    let trusting = TlsCertificates { client_tls, root_cert: Some(certificates.authority().into()) };
    let url = server.tls_url().expect("it has a port for TLS");
    let store = at(Client::build_with_tls(url.as_str(), trusting).expect("a client")).await;
    decides(&store).await;
}
