//! A limiter whose rules come from a source, and helpers to query it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ratekeeper::Limiter;
use ratekeeper_rules::{ReloadHandle, ReloadStatus, Reloader, Source};

/// How long an expected event may take. Far more than it needs, since the machine may be busy.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// A pause between two polls that is longer than any test.
pub(crate) const NEVER: Duration = Duration::from_secs(100_000);

/// The text of one rule, `api`, that admits this many an hour.
pub(crate) fn rules(limit: u32) -> String {
    format!("[[rules]]\nname = \"api\"\nquota = \"{limit}/hour\"\nkey = \"global\"\n")
}

/// A text that is refused: the second of its rules is invalid.
pub(crate) fn wrong_rules() -> String {
    format!("{}\n[[rules]]\nname = \"login\"\nquota = \"5/minuet\"\n", rules(1))
}

/// Writes as editors do: under another name, which then replaces the file. It is never seen half-written.
pub(crate) fn rename_over(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).expect("it is written");
    fs::rename(&beside, path).expect("it is renamed");
}

/// A limiter with rules that are reloaded.
pub(crate) struct Reloaded {
    pub(crate) limiter: Limiter,
    pub(crate) handle: ReloadHandle,
}

impl Reloaded {
    pub(crate) async fn start(source: impl Source) -> Self {
        Self::start_with(Reloader::new(source)).await
    }

    pub(crate) async fn start_with<S: Source>(reloader: Reloader<S>) -> Self {
        let loaded = reloader.load().await.expect("good rules");
        let limiter = loaded.limiter().build().expect("good rules");
        let handle = loaded.start(&limiter);
        Self { limiter, handle }
    }

    /// Waits until the status satisfies a condition.
    pub(crate) async fn until(&self, what: &str, is_so: impl FnMut(&ReloadStatus) -> bool) -> ReloadStatus {
        let mut statuses = self.handle.watch();
        let reached = match tokio::time::timeout(LIMIT, statuses.wait_for(is_so)).await {
            Ok(status) => Some(status.expect("it is reloaded still").clone()),
            Err(_) => None,
        };
        reached.unwrap_or_else(|| panic!("waited for {what}, and still: {:#?}", self.handle.status()))
    }

    /// Waits until `api` admits this many an hour.
    pub(crate) async fn until_limit(&self, limit: u32) -> ReloadStatus {
        let limiter = self.limiter.clone();
        let status = self.until("other rules", |_| limit_of(&limiter) == Some(limit)).await;
        assert_eq!(self.limiter.rule_set().version(), Some(self.handle.status().version()));
        status
    }

    /// Waits until the source has rules that are refused.
    pub(crate) async fn until_refused(&self) -> ReloadStatus {
        self.until("rules to be refused", |status| {
            status.problem().is_some_and(|problem| problem.error().refused_version().is_some())
        })
        .await
    }

    /// Waits until the source cannot be read.
    pub(crate) async fn until_unread(&self) -> ReloadStatus {
        self.until("the source to be unreadable", |status| {
            status.problem().is_some_and(|problem| problem.error().refused_version().is_none())
        })
        .await
    }

    /// Waits until the rules in force are those of the source.
    pub(crate) async fn until_right(&self) -> ReloadStatus {
        self.until("the source to be right", |status| status.problem().is_none()).await
    }

    /// How many an hour `api` admits.
    pub(crate) fn limit(&self) -> Option<u32> {
        limit_of(&self.limiter)
    }
}

/// The limit of `api`, queried without counting anything.
fn limit_of(limiter: &Limiter) -> Option<u32> {
    use futures_util::FutureExt;
    // The in-memory store answers immediately.
    let decision = limiter.charge("api", "nobody").cost(1).peek().now_or_never()?.ok()?;
    Some(decision.outcome("api")?.limit())
}

/// The problem as text.
pub(crate) fn problem(status: &ReloadStatus) -> String {
    status.problem().expect("something is wrong").error().to_string()
}
