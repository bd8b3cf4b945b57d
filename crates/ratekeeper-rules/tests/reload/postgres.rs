//! Rules in a table of a real PostgreSQL, which is cut off, restarted and filled with invalid rules.

use std::sync::OnceLock;
use std::time::Duration;

use ratekeeper_rules::{PostgresSource, Reloader};
use ratekeeper_servers::PostgresServer;
use tokio_postgres::{Client, NoTls};

use crate::support::{NEVER, Reloaded, problem};

/// A database on a server, and a connection that changes rules in it.
pub(crate) struct Database {
    pub(crate) connection: String,
    pub(crate) client: Client,
}

impl Database {
    /// A database without tables, on the server that the tests share.
    pub(crate) async fn empty() -> Self {
        static SERVER: OnceLock<PostgresServer> = OnceLock::new();
        Self::on(SERVER.get_or_init(|| PostgresServer::start().expect("it starts"))).await
    }

    /// A database with the rule `api`, which admits ten an hour.
    pub(crate) async fn with_rules() -> Self {
        let database = Self::empty().await;
        database.migrate().await;
        database
    }

    async fn on(server: &PostgresServer) -> Self {
        let connection = server.create_database().expect("it is made");
        let client = connect(&connection).await;
        Self { connection, client }
    }

    async fn migrate(&self) {
        PostgresSource::migrate(&self.client).await.expect("the tables are made");
        self.run(r#"INSERT INTO ratekeeper_rules (name, definition) VALUES ('api', '{"quota": "10/hour", "key": "global"}')"#)
            .await;
    }

    pub(crate) async fn run(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// Makes `api` admit this many an hour.
    pub(crate) async fn limit(&self, limit: u32) {
        self.run(&set_limit(limit)).await;
    }

    /// A source that is notified of changes, and does not poll.
    pub(crate) fn listening(&self) -> PostgresSource {
        PostgresSource::new(&self.connection).expect("a good address").poll_every(NEVER)
    }

    /// A source that polls as well.
    fn polling(&self) -> PostgresSource {
        self.listening().poll_every(Duration::from_millis(50))
    }

    /// Cuts off all other connections to the database, and returns how many there were.
    async fn cut_off(&self) -> u64 {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
            WHERE datname = current_database() AND pid <> pg_backend_pid()";
        self.client.query(sql, &[]).await.expect("they are cut off").len() as u64
    }

    async fn version(&self) -> i64 {
        self.client
            .query_one("SELECT version FROM ratekeeper_rule_set", &[])
            .await
            .expect("it is there")
            .get(0)
    }
}

async fn connect(connection: &str) -> Client {
    let (client, driver) = tokio_postgres::connect(connection, NoTls).await.expect("it is reached");
    tokio::spawn(driver);
    client
}

fn set_limit(limit: u32) -> String {
    format!(
        "UPDATE ratekeeper_rules SET definition = jsonb_set(definition, '{{quota}}', '\"{limit}/hour\"') WHERE name = 'api'"
    )
}

async fn load_error(source: PostgresSource) -> String {
    Reloader::new(source).load().await.expect_err("there are no good rules").to_string()
}

#[tokio::test]
async fn what_is_committed_is_in_force() {
    let database = Database::with_rules().await;
    let reloaded = Reloaded::start(database.listening()).await;
    let first = reloaded.handle.status();
    for limit in [20, 30] {
        database.limit(limit).await;
        let status = reloaded.until_limit(limit).await;
        assert!(
            status.version().starts_with(&format!("{}-", database.version().await)),
            "{}",
            status.version()
        );
    }
    assert_ne!(reloaded.handle.status().version(), first.version());
    assert_eq!(reloaded.handle.status().applied(), 3);
}

#[tokio::test]
async fn rules_are_in_the_order_of_their_positions_and_only_those_that_are_enabled() {
    let database = Database::with_rules().await;
    database
        .run(
            r#"INSERT INTO ratekeeper_rules (name, definition, position, enabled) VALUES
                ('last', '{"quota": "1/s"}', 7, true), ('first', '{"quota": "1/s"}', -1, true),
                ('Beside', '{"quota": "1/s"}', 0, true), ('off', '{"quota": "1/parsec"}', 0, false)"#,
        )
        .await;
    let reloaded = Reloaded::start(database.listening()).await;
    let names: Vec<_> = reloaded.limiter.rule_set().names().map(|name| name.to_string()).collect();
    assert_eq!(names, ["first", "Beside", "api", "last"]);
}

#[tokio::test]
async fn a_transaction_is_one_reload_and_never_seen_in_part() {
    let database = Database::with_rules().await;
    let reloaded = Reloaded::start(database.listening()).await;
    let mut sql = String::from("BEGIN;");
    for number in 0..20 {
        sql += &format!(
            "INSERT INTO ratekeeper_rules (name, definition) VALUES ('rule-{number}', '{{\"quota\": \"1/s\"}}');{};",
            set_limit(100 + number)
        );
    }
    database.run(&sql).await;
    // Nothing is visible before the commit, not even to an explicit reload.
    let during = reloaded.handle.reload().await;
    assert_eq!((during.applied(), reloaded.limit()), (1, Some(10)));
    database.run("COMMIT").await;
    let status = reloaded.until_limit(119).await;
    assert_eq!((status.applied(), status.rules()), (2, 21));
    assert_eq!(database.version().await, 41, "each statement has counted");
    // All notifications of it have been read, and no new set has resulted.
    assert_eq!(reloaded.handle.reload().await.applied(), 2);
}

#[tokio::test]
async fn what_is_rolled_back_never_was() {
    let database = Database::with_rules().await;
    let reloaded = Reloaded::start(database.listening()).await;
    database.run(&format!("BEGIN; {}; ROLLBACK", set_limit(20))).await;
    assert_eq!(reloaded.handle.reload().await.applied(), 1);
    assert_eq!(reloaded.limit(), Some(10));
}

#[tokio::test]
async fn settings_count_as_well() {
    let database = Database::with_rules().await;
    let reloaded = Reloaded::start(database.listening()).await;
    let version = database.version().await;
    database
        .run(r#"UPDATE ratekeeper_rule_set SET settings = '{"layer": {"charge-preflights": true}}'"#)
        .await;
    let status = reloaded.until("the settings", |status| status.applied() == 2).await;
    assert_eq!(status.needs_restart(), ["layer.charge-preflights"]);
    assert_eq!(database.version().await, version + 1);
}

#[tokio::test]
async fn after_a_lost_connection_the_table_is_read_again() {
    let database = Database::with_rules().await;
    let reloaded = Reloaded::start(database.listening()).await;
    for limit in [20, 30] {
        // Without a notification, as if there had been no listener.
        let silent = format!(
            "SET session_replication_role = replica; {}; RESET session_replication_role",
            set_limit(limit)
        );
        database.run(&silent).await;
        assert_eq!(database.cut_off().await, 1);
        reloaded.until_limit(limit).await;
    }
    // And notifications from then on are received.
    database.limit(40).await;
    reloaded.until_limit(40).await;
}

#[tokio::test]
async fn a_server_that_crashes_leaves_its_rules_in_force_until_it_is_back() {
    let server = PostgresServer::start().expect("it starts");
    let mut database = Database::on(&server).await;
    database.migrate().await;
    let reloaded = Reloaded::start(database.listening()).await;
    server.kill().unwrap();
    let status = reloaded.until_unread().await;
    let error = problem(&status);
    assert!(
        error.starts_with("the rules in the table ratekeeper_rules of PostgreSQL cannot be read: "),
        "{error}"
    );
    assert_eq!(reloaded.limit(), Some(10));

    server.restart().unwrap();
    database.client = connect(&database.connection).await;
    database.limit(20).await;
    reloaded.until_limit(20).await;
    reloaded.until_right().await;
    database.limit(30).await;
    reloaded.until_limit(30).await;
}

#[tokio::test]
async fn what_nobody_tells_is_found_by_looking() {
    let database = Database::with_rules().await;
    let reloaded = Reloaded::start(database.polling()).await;
    let version = database.version().await;
    database.run("ALTER TABLE ratekeeper_rules DISABLE TRIGGER ALL").await;
    database.limit(20).await;
    let status = reloaded.until_limit(20).await;
    assert_eq!(database.version().await, version, "nobody has counted");
    assert_eq!(status.applied(), 2);
}

#[tokio::test]
async fn a_bad_row_is_refused_with_all_others_and_a_mended_one_accepted() {
    let database = Database::with_rules().await;
    let reloaded = Reloaded::start(database.listening()).await;
    let bad = r#"INSERT INTO ratekeeper_rules (name, definition) VALUES ('login', '{"quota": "5/minuet"}')"#;
    database.run(&format!("BEGIN; {bad}; {}; COMMIT", set_limit(20))).await;
    let status = reloaded.until_refused().await;
    let error = problem(&status);
    assert!(error.starts_with("error: rule `login`, `quota`: "), "{error}");
    assert!(
        error.contains(" --> table ratekeeper_rules:3:") && error.contains("did you mean `minute`?"),
        "{error}"
    );
    assert_eq!((status.rules(), reloaded.limit()), (1, Some(10)));
    let refused = status.problem().unwrap().error().refused_version().unwrap();
    assert!(refused.starts_with(&format!("{}-", database.version().await)), "{refused}");

    database
        .run(r#"UPDATE ratekeeper_rules SET definition = '{"quota": "5/minute"}' WHERE name = 'login'"#)
        .await;
    let status = reloaded.until_limit(20).await;
    assert_eq!((status.rules(), status.refused()), (2, 1));
    reloaded.until_right().await;

    database.run("TRUNCATE ratekeeper_rules").await;
    let error = problem(&reloaded.until_refused().await);
    assert!(error.contains("there are no rules"), "{error}");
    assert_eq!(reloaded.limit(), Some(20));
}

#[tokio::test]
async fn the_table_itself_refuses_what_is_no_rule() {
    let database = Database::with_rules().await;
    for values in
        ["('', '{}')", "('x', '[]')", "('x', '{\"name\": \"y\"}')", "('api', '{}')", "('x', 'nonsense')"]
    {
        let sql = format!("INSERT INTO ratekeeper_rules (name, definition) VALUES {values}");
        assert!(database.client.batch_execute(&sql).await.is_err(), "{values}");
    }
    for settings in ["[]", r#"{"rules": []}"#] {
        let sql = format!("UPDATE ratekeeper_rule_set SET settings = '{settings}'");
        assert!(database.client.batch_execute(&sql).await.is_err(), "{settings}");
    }
    assert!(database.client.batch_execute("INSERT INTO ratekeeper_rule_set VALUES (true)").await.is_err());
    assert!(database.client.batch_execute("INSERT INTO ratekeeper_rule_set VALUES (false)").await.is_err());
}

#[tokio::test]
async fn the_migration_can_be_run_again_and_by_many_at_once() {
    let database = Database::empty().await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(connect(&database.connection).await);
    }
    let migrations = clients.iter().map(PostgresSource::migrate);
    for migrated in futures_util::future::join_all(migrations).await {
        migrated.expect("the tables are made");
    }
    database.migrate().await;
    let reloaded = Reloaded::start(database.listening()).await;
    let version = database.version().await;
    PostgresSource::migrate(&database.client).await.expect("the tables are there");
    assert_eq!(database.version().await, version);
    assert_eq!(reloaded.handle.reload().await.applied(), 1, "the rules are as they were");
    database.limit(20).await;
    reloaded.until_limit(20).await;
}

#[tokio::test]
async fn the_migration_is_a_file_that_psql_runs() {
    let server = PostgresServer::start().expect("it starts");
    let database = Database::on(&server).await;
    let name =
        database.client.query_one("SELECT current_database()::text", &[]).await.unwrap().get::<_, String>(0);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/source/postgres/migration.sql");
    assert_eq!(std::fs::read_to_string(path).unwrap(), PostgresSource::MIGRATION);
    for _ in 0..2 {
        server.execute_file(&name, path.as_ref()).expect("psql runs it");
    }
    database.migrate().await;
    assert_eq!(Reloaded::start(database.listening()).await.limit(), Some(10));
}

#[tokio::test]
async fn rules_can_be_in_a_schema_and_be_changed_by_who_looks_elsewhere() {
    let database = Database::empty().await;
    database.run("CREATE SCHEMA gateway; SET search_path = gateway").await;
    database.migrate().await;
    database.run("RESET search_path").await;
    let source = format!("{} options='-c search_path=gateway'", database.connection);
    let reloaded = Reloaded::start(PostgresSource::new(&source).unwrap().poll_every(NEVER)).await;
    database.run(&set_limit(20).replace("ratekeeper_rules", "gateway.ratekeeper_rules")).await;
    reloaded.until_limit(20).await;
}

#[tokio::test]
async fn who_may_only_read_can_and_who_may_not_is_told() {
    let database = Database::with_rules().await;
    // Roles belong to the whole server.
    database.run("DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN").await;
    let source = || {
        let connection = database.connection.replace("user=ratekeeper", "user=reader");
        PostgresSource::new(&connection).unwrap().poll_every(NEVER)
    };
    let error = load_error(source()).await;
    assert!(error.contains("permission denied for table ratekeeper_rule"), "{error}");
    database.run("GRANT SELECT ON ratekeeper_rules, ratekeeper_rule_set TO reader").await;
    let reloaded = Reloaded::start(source()).await;
    database.limit(20).await;
    reloaded.until_limit(20).await;
    database.run("REVOKE ALL ON ratekeeper_rules, ratekeeper_rule_set FROM reader").await;
    reloaded.handle.reload().await;
    reloaded.until_unread().await;
    assert_eq!(reloaded.limit(), Some(20));
}

#[tokio::test]
async fn tables_that_are_not_there_are_an_error_that_says_so() {
    let database = Database::empty().await;
    let error = load_error(database.listening()).await;
    assert!(error.contains("relation \"ratekeeper_rule_set\" does not exist"), "{error}");
    database.migrate().await;
    database.run("DELETE FROM ratekeeper_rule_set").await;
    let error = load_error(database.listening()).await;
    assert_eq!(error, "the table ratekeeper_rule_set has no row; the migration makes it");

    let error = PostgresSource::new("host=a password=secret port=nonsense").expect_err("it makes no sense");
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
}
