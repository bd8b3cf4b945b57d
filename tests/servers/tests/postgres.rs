//! One PostgreSQL: what can be done to it.

use ratekeeper_servers::{PostgresServer, Result};

#[test]
fn keeps_its_data_when_it_is_started_again_and_nothing_when_it_is_dropped() -> Result<()> {
    let server = PostgresServer::start()?;
    let (one, other) = (server.create_database()?, server.create_database()?);
    assert_ne!(one, other);
    server.execute("test_0", "CREATE TABLE kept AS SELECT 42 AS number")?;
    let error = server.execute("test_1", "SELECT * FROM kept").expect_err("it is in the other database");
    assert!(error.to_string().contains("\"kept\" does not exist"), "{error}");

    server.restart()?;
    assert_eq!(server.execute("test_0", "SELECT number FROM kept")?, "42");
    server.kill()?;
    server.execute("test_0", "SELECT 1").expect_err("it has ended");
    server.restart()?;
    assert_eq!(server.execute("test_0", "SELECT number FROM kept")?, "42");

    let directory = server.directory().to_owned();
    drop(server);
    assert!(!directory.exists());
    Ok(())
}
