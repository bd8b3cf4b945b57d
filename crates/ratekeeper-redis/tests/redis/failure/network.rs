//! Bad networks.

use std::time::Duration;

use ratekeeper_core::StoreErrorKind;
use ratekeeper_redis::RedisStore;
use ratekeeper_servers::{Mode, Proxy, RedisServer, wait};

use super::load::{Load, counted};
use super::tally::Caller;
use super::{DEADLINE, hasty, opened, ready, server};
use crate::support::PATIENCE;

struct Setup {
    server: RedisServer,
    proxy: Proxy,
    store: RedisStore,
}

impl Setup {
    /// A store with a shorter deadline, and so with less patience for a silent connection.
    async fn new(deadline: Duration) -> Self {
        let server = server();
        let proxy = Proxy::start(server.port()).expect("a proxy");
        let store = hasty(&server.url_with_port(proxy.port()))
            .timeout(deadline)
            .connect_timeout(Duration::from_millis(500));
        let store = store.build().expect("the store can be made");
        store.ready(PATIENCE).await.expect("the server works");
        Self { server, proxy, store }
    }

    fn set(&self, mode: Mode) {
        self.proxy.set(mode).expect("it obeys");
    }

    /// Waits until at most one connection is left.
    fn tidied_up(&self) {
        wait::until("the old connections' end", PATIENCE, || match self.proxy.counts().open {
            0 | 1 => Ok(()),
            open => Err(format!("{open} are open")),
        })
        .expect("what is given up is closed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_is_killed_again_and_again() {
    let Setup { server, proxy, store } = Setup::new(DEADLINE).await;
    let load = Load::start(&store, 16);
    const KILLS: u32 = 10;
    for _ in 0..KILLS {
        load.served(20).await;
        let before = proxy.counts().connections;
        server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).expect("it obeys");
        // If nothing was under way at that moment, no request notices; mostly something was.
        wait::until("another connection", PATIENCE, || match proxy.counts().connections {
            connections if connections > before => Ok(()),
            _ => Err("there is none"),
        })
        .expect("it is made");
        store.ready(PATIENCE).await.expect("it is back");
    }
    load.served(20).await;
    let (tally, callers) = load.stop().await;
    tally.assert_orderly();
    assert_eq!(tally.protocol, 0, "{tally:?}");
    let counted = counted(&store, &callers).await;
    assert!(counted >= tally.admitted && counted <= tally.admitted + 16 * KILLS, "{counted}: {tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_dropped_and_refused() {
    let setup = Setup::new(DEADLINE).await;
    let load = Load::start(&setup.store, 16);
    load.served(50).await;
    setup.set(Mode::Refuse);
    setup.proxy.drop_connections().expect("it obeys");
    assert_eq!(opened(&setup.store).await.kind(), StoreErrorKind::Unavailable);
    load.failing(100).await;
    setup.set(Mode::Pass);
    load.served(50).await;
    let (tally, callers) = load.stop().await;
    tally.assert_orderly();
    assert!(tally.unavailable > 0 && tally.protocol == 0, "{tally:?}");
    let counted = counted(&setup.store, &callers).await;
    assert!(counted >= tally.admitted && counted <= tally.admitted + 16, "{counted}: {tally:?}");
    setup.tidied_up();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_swallowed() {
    let setup = Setup::new(Duration::from_millis(20)).await;
    let load = Load::start(&setup.store, 16);
    load.served(50).await;
    setup.set(Mode::BlackHole);
    assert!(opened(&setup.store).await.is_timeout());
    load.failing(50).await;
    // The connection is given up, and so are those after it.
    let connections = setup.proxy.counts().connections;
    wait::until("two more connections", PATIENCE, || match setup.proxy.counts().connections {
        more if more >= connections + 2 => Ok(()),
        _ => Err("they were not made"),
    })
    .expect("it is tried again");
    setup.set(Mode::Pass);
    setup.store.ready(PATIENCE).await.expect("it is back");
    load.served(50).await;
    let (tally, callers) = load.stop().await;
    tally.assert_orderly();
    assert_eq!(tally.protocol, 0, "{tally:?}");
    let counted = counted(&setup.store, &callers).await;
    assert!(counted >= tally.admitted && counted <= tally.admitted + 64, "{counted}: {tally:?}");
    setup.tidied_up();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_lost_but_nothing_is_counted_twice() {
    let setup = Setup::new(Duration::from_millis(20)).await;
    let caller = Caller::new("unheard");
    assert_eq!(caller.tally_many(&setup.store, 5).await.admitted, 5);
    setup.set(Mode::LoseReplies);
    let tally = caller.tally_many(&setup.store, 50).await;
    tally.assert_orderly();
    assert_eq!(tally.timeout, 50, "{tally:?}");
    let direct = ready(&setup.server.url()).await;
    let made = caller.counted(&direct).await;
    assert!((5..=55).contains(&made), "{made}");
    setup.set(Mode::Pass);
    setup.store.ready(PATIENCE).await.expect("it is back");
    assert_eq!(caller.counted(&setup.store).await, made);
    assert_eq!(caller.tally_many(&setup.store, 5).await.admitted, 5);
    assert_eq!(caller.counted(&direct).await, made + 5);
    setup.tidied_up();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_cut_short_anywhere() {
    let setup = Setup::new(DEADLINE).await;
    let caller = Caller::new("cut short");
    for length in 0..40 {
        setup.set(Mode::Truncate(length));
        let tally = caller.tally_many(&setup.store, 1).await;
        tally.assert_orderly();
        assert_eq!(tally.timeout, 0, "{length}: {tally:?}");
        assert!(tally.admitted == 0 || length > 30, "{length}: {tally:?}");
        if tally.admitted == 0 {
            opened(&setup.store).await;
        }
        setup.set(Mode::Pass);
        setup.store.ready(PATIENCE).await.expect("it is back");
    }
    // Each may have been made once, though its answer was cut short.
    let counted = caller.counted(&setup.store).await;
    assert!(counted <= 40, "{counted}");
    setup.tidied_up();
}

/// Long deadlines are for high latency. They do not make the store wait any longer for a connection that is
/// gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_gone_is_soon_given_up_however_long_the_deadline() {
    let setup = Setup::new(10 * DEADLINE).await;
    setup.set(Mode::BlackHole);
    let error = Caller::new("gone").charge(&setup.store).await.expect_err("nobody answers");
    assert!(error.is_timeout(), "{error:?}");
    let connections = setup.proxy.counts().connections;
    let another = || match setup.proxy.counts().connections {
        more if more > connections => Ok(()),
        _ => Err("there is none"),
    };
    wait::until("another connection", PATIENCE / 2, another).expect("the old one is given up");
    setup.set(Mode::Pass);
    setup.store.ready(PATIENCE).await.expect("it is back");
    setup.tidied_up();
}
