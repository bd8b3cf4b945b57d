//! Replicas, promoted by hand and by sentinels.

use ratekeeper_servers::{RedisServer, Replication, Result, Sentinels, wait};
use redis::Value;

fn text(text: &str) -> Value {
    Value::BulkString(text.into())
}

#[test]
fn replicas_follow_until_they_are_promoted() -> Result<()> {
    let servers = Replication::start(2)?;
    servers.master().command(&["SET", "key", "before"])?;
    servers.wait_until_in_sync()?;
    for replica in servers.replicas() {
        assert_eq!(replica.command(&["GET", "key"])?, text("before"));
        let error = replica.command(&["SET", "key", "mine"]).expect_err("it is read only");
        assert_eq!(error.code(), Some("READONLY"), "{error}");
    }
    let promoted = servers.promote(1)?;
    promoted.command(&["SET", "key", "after"])?;
    assert_eq!(servers.master().command(&["GET", "key"])?, text("before"));
    assert_eq!(promoted.command(&["GET", "key"])?, text("after"));
    Ok(())
}

#[test]
fn a_replica_that_restarts_follows_again() -> Result<()> {
    let servers = Replication::start_with(RedisServer::builder().password("s3cret word"), 1)?;
    servers.replicas()[0].restart()?;
    servers.master().command(&["SET", "key", "value"])?;
    wait::until("the replica", wait::LIMIT, || servers.wait_until_in_sync())?;
    assert_eq!(servers.replicas()[0].command(&["GET", "key"])?, text("value"));
    Ok(())
}

#[test]
fn sentinels_make_a_replica_the_master() -> Result<()> {
    let servers = Sentinels::start(2)?;
    servers.master()?.command(&["SET", "key", "value"])?;
    servers.replication().wait_until_in_sync()?;

    let former = servers.kill_master()?;
    let master = servers.wait_for_failover(former)?;
    assert_ne!(master.port(), former.port());
    assert_eq!(master.command(&["GET", "key"])?, text("value"));

    // A master that comes back is a replica of the new one.
    former.restart()?;
    wait::until("the former master to follow", wait::LIMIT, || match former.command(&["GET", "key"]) {
        Ok(found) if found == text("value") => Ok(()),
        other => Err(format!("{other:?}")),
    })
}

#[test]
fn sentinels_say_the_password_of_those_they_watch() -> Result<()> {
    let servers = Sentinels::start_with(RedisServer::builder().password("s3cret"), 1)?;
    let former = servers.master()?;
    former.pause()?;
    let master = servers.wait_for_failover(former)?;
    assert_eq!(master.command(&["SET", "key", "value"])?, Value::Okay);
    Ok(())
}
