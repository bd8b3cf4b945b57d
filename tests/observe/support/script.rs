//! Traffic that produces every metric.

use std::fs;
use std::time::Duration;

use http::StatusCode;
use ratekeeper::{
    FailurePolicy, Limiter, MemoryStore, MissingKey, Mode, Quota, Rule, SECOND, Settle, Share, key,
};
use ratekeeper_redis::{RedisStore, Servers};
use ratekeeper_rules::{FileSource, ReloadHandle, Reloader};
use ratekeeper_servers::RedisServer;
use tempfile::TempDir;

use crate::support::{anonymous, get, send};

/// How long Redis may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Scene {
    memory: Limiter,
    crowded: Limiter,
    redis: Limiter,
    store: RedisStore,
    server: RedisServer,
    rules: Rules,
}

/// Rules in a file.
struct Rules {
    directory: TempDir,
    limiter: Limiter,
    handle: ReloadHandle,
}

impl Scene {
    pub(crate) async fn start() -> Self {
        let api = Rule::new("api", Quota::per_hour(1_000).burst(20)).key(key::global());
        let keyed = Rule::new("keyed", Quota::per_hour(5)).key(key::header("x-api-key").secret());
        let memory = Limiter::builder()
            .rule(api.candidate(Quota::per_hour(10)).on_path("/api"))
            .rule(Rule::new("new", Quota::per_hour(3)).key(key::global()).mode(Mode::Shadow).on_path("/api"))
            .rule(keyed.on_missing_key(MissingKey::Deny).on_path("/keyed"))
            .rule(Rule::new("queue", Quota::leaky_bucket(10, SECOND)).on_path("/queue"))
            .rule(Rule::new("back", Quota::per_hour(1_000_000)).cost(9).on_path("/back").free_when(|_| true))
            .rule(
                Rule::new("more", Quota::per_hour(1_000_000)).on_path("/more").settle_by(|_| Settle::Cost(7)),
            )
            .build()
            .expect("good rules");
        let small = MemoryStore::builder().max_keys(64).build();
        let many = Rule::new("many", Quota::per_hour(10)).manual();
        let crowded = Limiter::builder().store(small).rule(many).build().expect("good rules");
        let server = RedisServer::start().expect("a server");
        let servers = Servers::one(server.url()).expect("an address");
        let store = RedisStore::builder(servers).timeout(PATIENCE).build().expect("a store");
        store.ready(PATIENCE).await.expect("the server works");
        let local = FailurePolicy::Local(Share::one_of(2));
        let redis = Limiter::builder()
            .store(store.clone())
            .rule(Rule::new("fleet", Quota::per_hour(4)).on_path("/fleet"))
            // What Redis has just denied is denied from memory, so this rule is for when Redis is gone.
            .rule(Rule::new("spare", Quota::per_hour(4)).on_path("/spare").on_store_failure(local))
            .rule(Rule::new("open", Quota::per_hour(1_000)).on_path("/open"))
            .rule(
                Rule::new("shut", Quota::per_hour(1_000))
                    .on_path("/shut")
                    .on_store_failure(FailurePolicy::Deny),
            )
            .build()
            .expect("good rules");
        Self { memory, crowded, redis, store, server, rules: Rules::start().await }
    }

    /// Everything that works.
    pub(crate) async fn play(&self, round: usize) {
        for _ in 0..30 {
            send(&self.memory, get("/api")).await;
        }
        for path in ["/keyed", "/back", "/more"] {
            send(&self.memory, get(path)).await;
        }
        // The second is held back.
        let held = tokio::join!(send(&self.memory, get("/queue")), send(&self.memory, get("/queue")));
        assert_eq!(held, (StatusCode::OK, StatusCode::OK));
        send(&self.memory, anonymous("/queue")).await;
        for caller in 0..1_000 {
            self.crowded.charge("many", format!("{round}-{caller}").as_str()).await.expect("it works");
        }
        // Redis is not asked about the last ones.
        for path in ["/fleet", "/open", "/shut", "/fleet", "/fleet", "/fleet", "/fleet", "/fleet", "/fleet"] {
            send(&self.redis, get(path)).await;
        }
        self.rules.change(round).await;
        // One came from an unknown peer.
        assert!(!self.memory.hints().is_empty());
    }

    /// Kills Redis; it stays gone.
    pub(crate) async fn lose_redis(&self) {
        let mut breaker = self.store.watch_breaker();
        self.server.kill().expect("it can be killed");
        // The first request that asks Redis notices.
        send(&self.redis, get("/open")).await;
        let opened = breaker.wait_for(ratekeeper_redis::BreakerState::is_open);
        tokio::time::timeout(PATIENCE, opened).await.expect("it opens").expect("there is a store");
    }

    /// Decisions without Redis.
    pub(crate) async fn play_without_redis(&self) {
        for path in ["/spare", "/spare", "/spare", "/open", "/shut"] {
            send(&self.redis, get(path)).await;
        }
    }
}

impl Rules {
    async fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("rules.toml");
        fs::write(&path, "[[rules]]\nname = \"filed\"\nquota = \"10/minute\"\n").expect("it is written");
        // Read only on demand, so that it is never read half-written.
        let source = FileSource::new(&path).watch(false).poll_every(Duration::from_secs(100_000));
        let loaded = Reloader::new(source).load().await.expect("good rules");
        let limiter = loaded.limiter().build().expect("good rules");
        let handle = loaded.start(&limiter);
        Self { directory, limiter, handle }
    }

    /// Loads valid rules, then invalid ones.
    async fn change(&self, round: usize) {
        let path = self.directory.path().join("rules.toml");
        let limit = 20 + round;
        fs::write(&path, format!("[[rules]]\nname = \"filed\"\nquota = \"{limit}/minute\"\n"))
            .expect("written");
        self.handle.reload().await;
        send(&self.limiter, get("/")).await;
        fs::write(&path, format!("[[rules]]\nname = \"bad-{round}\"\n")).expect("written");
        self.handle.reload().await;
        assert!(self.handle.status().problem().is_some());
    }
}
