//! The task that keeps reading a source.

use std::sync::Arc;
use std::time::SystemTime;

use ratekeeper::Limiter;
use tokio::sync::{mpsc, watch};

use super::handle::{Asked, ReloadHandle};
use super::last_good::LastGood;
use super::set::{Reader, Set};
use super::{Loaded, ReloadError, ReloadProblem, ReloadStatus};
use crate::settings::{self, LayerSettings, LimiterSettings};
use crate::{Document, Format, Source, told};

pub(super) struct Task<S> {
    source: S,
    reader: Arc<Reader>,
    last_good: Option<LastGood>,
    limiter: Limiter,
    /// The settings that the layer and the limiter were built with.
    settings: (LayerSettings, LimiterSettings),
    /// The format of the rules in force.
    format: Format,
    /// The last set that was refused, so that it is not checked again each time it is read.
    refused: Option<Arc<ReloadError>>,
    status: watch::Sender<ReloadStatus>,
}

impl<S: Source> Task<S> {
    pub(super) fn start(loaded: Loaded<S>, limiter: Limiter) -> ReloadHandle {
        let Loaded { source, reader, last_good, set, problem, read_at } = loaded;
        let now = SystemTime::now();
        let first = ReloadStatus {
            version: Arc::clone(&set.version),
            rules: set.count,
            since: now,
            read_at,
            problem: None,
            needs_restart: Arc::default(),
            applied: 0,
            refused: 0,
            unread: 0,
        };
        let (status, watched) = watch::channel(first);
        let settings = set.file.settings();
        let format = set.format;
        let mut task = Self { source, reader, last_good, limiter, settings, format, refused: None, status };
        task.put_into_force(set);
        if let Some(error) = problem {
            task.fail(error);
        }
        let (asked, asking) = mpsc::channel(1);
        let task = tokio::spawn(task.run(asking));
        ReloadHandle { status: watched, asked, task: task.abort_handle() }
    }

    async fn run(mut self, mut asking: mpsc::Receiver<Asked>) {
        loop {
            let asked = tokio::select! {
                () = self.source.changed() => None,
                // Without a handle there is no task either.
                asked = asking.recv() => asked,
            };
            self.reload().await;
            if let Some(asked) = asked {
                // The asker may have gone.
                let _ = asked.send(());
            }
        }
    }

    async fn reload(&mut self) {
        let document = match self.source.read(self.reader.registry.max_size()).await {
            Ok(document) => document,
            Err(error) => return self.fail(ReloadError::unread(error)),
        };
        self.status.send_modify(|status| status.read_at = Some(SystemTime::now()));
        let is_in_force =
            document.version() == &*self.status.borrow().version && document.format() == self.format;
        if is_in_force {
            return self.settle();
        }
        if let Some(error) = self.refused.clone()
            && error.has_refused(&document)
        {
            return self.note(error);
        }
        match self.reader.read(document.clone()).await {
            Ok(set) => self.apply(set, document).await,
            Err(error) => self.fail(error),
        }
    }

    async fn apply(&mut self, set: Set, document: Document) {
        self.put_into_force(set);
        if let Some(last_good) = &self.last_good {
            last_good.keep(document).await;
        }
    }

    fn put_into_force(&mut self, set: Set) {
        let Set { file, rules, count, version, format } = set;
        self.limiter.swap(rules);
        let needs_restart = settings::changed(self.settings, file.settings());
        let former = Arc::clone(&self.status.borrow().version);
        told::applied(self.source.kind(), &former, &version, count, &needs_restart);
        (self.format, self.refused) = (format, None);
        self.status.send_modify(|status| {
            status.version = version;
            status.rules = count;
            status.since = SystemTime::now();
            status.problem = None;
            status.needs_restart = needs_restart.into();
            status.applied += 1;
        });
    }

    /// The rules in force are those of the source, as they were before.
    fn settle(&mut self) {
        self.refused = None;
        let had_problem = self.status.borrow().problem.is_some();
        if had_problem {
            told::mended(self.source.kind(), &self.status.borrow().version);
            self.status.send_modify(|status| status.problem = None);
        }
    }

    /// Rules did not come into force.
    fn fail(&mut self, error: ReloadError) {
        let error = Arc::new(error);
        let is_refused = error.refused_version().is_some();
        self.status.send_modify(|status| if is_refused { status.refused += 1 } else { status.unread += 1 });
        told::counted(self.source.kind(), is_refused);
        if is_refused {
            self.refused = Some(Arc::clone(&error));
        }
        self.note(error);
    }

    /// Logs what is wrong, once for as long as it stays the same.
    fn note(&mut self, error: Arc<ReloadError>) {
        let (is_known, since) = match &self.status.borrow().problem {
            Some(problem) => (problem.error.to_string() == error.to_string(), problem.since),
            None => (false, SystemTime::now()),
        };
        if !is_known {
            told::failed(self.source.kind(), &self.status.borrow().version, &error);
        }
        self.status.send_modify(|status| status.problem = Some(ReloadProblem { error, since }));
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use crate::{Document, Format, Reloader, Source, SourceError};

    struct Handed(watch::Receiver<Document>);

    impl Source for Handed {
        fn kind(&self) -> &'static str {
            "handed"
        }

        async fn read(&mut self, _max_size: usize) -> Result<Document, SourceError> {
            Ok(self.0.borrow_and_update().clone())
        }

        async fn changed(&mut self) {
            std::future::pending::<()>().await;
        }
    }

    /// The version is that of the text, and the wrong format may have been given with it.
    #[tokio::test]
    async fn the_same_text_in_another_format_is_looked_at_again() {
        let text = "[[rules]]\nname = \"api\"\nquota = \"1/s\"\n";
        let other = "[[rules]]\nname = \"api\"\nquota = \"2/s\"\n";
        let (hand, handed) = watch::channel(Document::new("handed", Format::Toml, other));
        let loaded = Reloader::new(Handed(handed)).load().await.expect("good rules");
        let limiter = loaded.limiter().build().expect("good rules");
        let handle = loaded.start(&limiter);
        hand.send_replace(Document::new("handed", Format::Json, text));
        assert!(handle.reload().await.problem().is_some());
        hand.send_replace(Document::new("handed", Format::Toml, text));
        let status = handle.reload().await;
        assert!(status.problem().is_none() && status.applied() == 2, "{status:?}");
        // It is not what is in force, although it has the same version.
        hand.send_replace(Document::new("handed", Format::Json, text));
        assert!(handle.reload().await.problem().is_some());
    }
}
