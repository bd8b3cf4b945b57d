//! Rules in a table of PostgreSQL, reloaded when its rows change.

mod link;
mod text;

use std::fmt;
use std::time::Duration;

use tokio::time::{sleep_until, timeout};
use tokio_postgres::tls::{MakeTlsConnect, NoTls, TlsConnect};
use tokio_postgres::{Client, Config, Row, Socket};

use self::link::{Connector, Link};
use self::text::Rows;
use super::schedule::Schedule;
use super::{Document, Source, SourceError};
use crate::Format;
use crate::size::TooLarge;

/// How often the table is read by default, regardless of notifications.
const POLL: Duration = Duration::from_secs(30);
/// How long PostgreSQL may take by default to be reached, and to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
const TABLE: &str = "table ratekeeper_rules";
const READ: &str = include_str!("read.sql");

/// Rules in a table of PostgreSQL, which are read again when it changes.
///
/// Each row of the table `ratekeeper_rules` is a rule: its `name`; its `definition`, a JSON object of
/// everything else that a rule can have in a file; its `position` among the others; and whether it is
/// `enabled`. The one row of `ratekeeper_rule_set` has the `version`, and in `settings` what a file contains
/// besides its rules.
///
/// ```sql
/// INSERT INTO ratekeeper_rules (name, definition)
/// VALUES ('login', '{"match": "POST /login", "quota": "5/minute sliding-log"}');
/// ```
///
/// [`MIGRATION`](Self::MIGRATION) creates the tables, and triggers that increment the version and announce it
/// (`NOTIFY ratekeeper_rules`). However many rows a transaction changes, the rules change once, when it is
/// committed.
///
/// What is announced while the connection is lost is not heard. So the table is read again after each
/// reconnection, and is polled as well.
///
/// The version is that of `ratekeeper_rule_set` with a digest of the rules, such as `7-44136fa355b3`. So it
/// also changes when rules were changed without incrementing the number, such as where triggers are disabled.
/// An error names the rule and the field; the line that it shows is the rule as JSON.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use ratekeeper_rules::{PostgresSource, Reloader};
///
/// let source = PostgresSource::new("host=/run/postgresql dbname=gateway user=gateway")?;
/// let loaded = Reloader::new(source).load().await?;
/// # Ok(())
/// # }
/// ```
///
/// # What PostgreSQL has to allow
///
/// Reading needs `SELECT` on both tables, which are looked up on the `search_path`. Do not connect through a
/// pooler that gives each transaction another connection: notifications do not come through it, and only
/// polling is left. Do not connect to a standby, which does not allow listening. PostgreSQL 11 or later is
/// required.
#[must_use]
pub struct PostgresSource {
    connector: Connector,
    timeout: Duration,
    link: Option<Link>,
    schedule: Schedule,
}

impl PostgresSource {
    /// The SQL that creates the tables and their triggers. It can be run again at any time.
    pub const MIGRATION: &str = include_str!("migration.sql");

    /// The database that a [connection string](Config) names, without TLS.
    ///
    /// # Errors
    ///
    /// When it is invalid. (It is not repeated, as it may contain a password.)
    pub fn new(connection: &str) -> Result<Self, SourceError> {
        let config = connection.parse::<Config>().map_err(|error| {
            SourceError::new("the address of the PostgreSQL database that has the rules makes no sense")
                .because(error)
        })?;
        Ok(Self::with_tls(config, NoTls))
    }

    /// The database of a configuration, with TLS through one of the crates for it, such as
    /// `postgres-native-tls`.
    pub fn with_tls<T>(config: Config, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        Self {
            connector: Connector::new(config, tls),
            timeout: TIMEOUT,
            link: None,
            schedule: Schedule::every(POLL),
        }
    }

    /// Sets how often the table is read, regardless of notifications; every 30 seconds by default. Less than
    /// ten milliseconds count as ten, and more than a year as one.
    ///
    /// This is also the longest pause between two attempts to reach a server that is gone. The first pause is
    /// a tenth of a second.
    pub fn poll_every(self, interval: Duration) -> Self {
        Self { schedule: Schedule::every(interval), ..self }
    }

    /// Sets how long PostgreSQL may take to be reached, and as long again to answer; five seconds by default.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Creates the tables and their triggers where they do not exist. Concurrent calls wait for each other.
    ///
    /// # Errors
    ///
    /// When the database refuses it, in which case nothing has changed.
    pub async fn migrate(client: &Client) -> Result<(), SourceError> {
        // Statements that are sent together are one transaction.
        client.batch_execute(Self::MIGRATION).await.map_err(|error| {
            SourceError::new("the tables of the rules cannot be made in PostgreSQL").because(error)
        })
    }

    async fn rows(&mut self) -> Result<Vec<Row>, SourceError> {
        let unread = || SourceError::new(format!("the rules in the {TABLE} of PostgreSQL cannot be read"));
        let late = || unread().because("PostgreSQL did not answer in time");
        let mut link = match self.link.take() {
            Some(link) if !link.client.is_closed() => link,
            _ => match timeout(self.timeout, self.connector.connect()).await {
                Ok(connected) => connected.map_err(|error| unread().because(error))?,
                Err(_) => return Err(late()),
            },
        };
        // What was announced until now is about to be read.
        while link.told.try_recv().is_ok() {}
        match timeout(self.timeout, link.client.query(READ, &[])).await {
            // A connection that does not answer is abandoned.
            Err(_) => Err(late()),
            Ok(answer) => {
                self.link = Some(link);
                answer.map_err(|error| unread().because(error))
            }
        }
    }
}

/// The rules that the rows contain.
fn document(rows: &[Row], max_size: usize) -> Result<Document, SourceError> {
    let wrong =
        |error| SourceError::new(format!("the {TABLE} has other columns than it should")).because(error);
    let Some(first) = rows.first() else {
        return Err(SourceError::new("the table ratekeeper_rule_set has no row; the migration makes it"));
    };
    let version: i64 = first.try_get(0).map_err(wrong)?;
    let mut found = Rows { settings: first.try_get(1).map_err(wrong)?, rules: Vec::new() };
    for row in rows {
        // Without any rule there is one row, about the set.
        if let Some(name) = row.try_get::<_, Option<String>>(2).map_err(wrong)? {
            found.rules.push((name, row.try_get(3).map_err(wrong)?));
        }
    }
    let text = found.text();
    TooLarge::check(TABLE, text.len(), max_size).map_err(|error| SourceError::new(error.to_string()))?;
    Ok(Document::new(TABLE, Format::Json, text).revision(version.unsigned_abs()))
}

impl Source for PostgresSource {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    async fn read(&mut self, max_size: usize) -> Result<Document, SourceError> {
        let document = self.rows().await.and_then(|rows| document(&rows, max_size));
        self.schedule.asked(document.is_ok());
        document
    }

    async fn changed(&mut self) {
        if let Some(link) = &mut self.link {
            let was_told = tokio::select! {
                () = sleep_until(self.schedule.wake()) => true,
                told = link.told.recv() => told.is_some(),
            };
            if was_told {
                self.schedule.works();
                return;
            }
            self.link = None;
            self.schedule.lost();
        }
        sleep_until(self.schedule.wake()).await;
    }
}

impl fmt::Debug for PostgresSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSource")
            .field("polled", &format_args!("{}", self.schedule))
            .field("is_connected", &self.link.is_some())
            .finish_non_exhaustive()
    }
}
