//! Clusters that lose nodes, gain some, and move slots.

use ratekeeper_servers::{Cluster, RedisServer, Result};
use redis::Value;

fn text(text: &str) -> Value {
    Value::BulkString(text.into())
}

#[test]
fn slots_are_shared_among_masters() -> Result<()> {
    let cluster = Cluster::start(3, 0)?;
    assert_eq!(cluster.urls().len(), 3);
    for (slot, owner) in [(0, 0), (5_461, 1), (10_922, 2), (16_383, 2)] {
        assert_eq!(cluster.owner(slot)?, owner, "slot {slot}");
    }
    let slot = cluster.slot("key")?;
    let owner = cluster.owner(slot)?;
    assert_eq!(cluster.node(owner).command(&["SET", "key", "value"])?, Value::Okay);
    let other = cluster.node((owner + 1) % 3);
    let error = other.command(&["GET", "key"]).expect_err("it is elsewhere");
    assert_eq!(error.code(), Some("MOVED"), "{error}");
    Ok(())
}

#[test]
fn a_replica_takes_over_from_a_master_that_is_gone() -> Result<()> {
    let cluster = Cluster::start(3, 1)?;
    let slot = cluster.slot("key")?;
    let master = cluster.owner(slot)?;
    cluster.node(master).command(&["SET", "key", "value"])?;
    cluster.wait_until_in_sync()?;

    cluster.kill(master)?;
    let successor = cluster.wait_for_failover(master)?;
    assert_eq!(successor, 3 + master);
    assert_eq!(cluster.owner(slot)?, successor);
    assert_eq!(cluster.node(successor).command(&["GET", "key"])?, text("value"));

    // A node that comes back is a replica of its successor.
    cluster.node(master).restart()?;
    cluster.wait_until_well()?;
    let error = cluster.node(master).command(&["GET", "key"]).expect_err("its successor has it");
    assert_eq!(error.code(), Some("MOVED"), "{error}");
    Ok(())
}

#[test]
fn slots_move_with_their_keys() -> Result<()> {
    let mut cluster = Cluster::start_with(RedisServer::builder().password("s3cret word"), 1, 0)?;
    let added = cluster.add_master()?;
    assert_eq!(added, 1);
    // More than one batch, and all in one slot.
    let keys: Vec<_> = (0..250).map(|i| format!("{{tag}}{i}")).collect();
    for key in &keys {
        cluster.node(0).command(&["SET", key, "value"])?;
    }
    let slot = cluster.slot("tag")?;
    cluster.reshard(slot - 20..=slot + 20, 0, added)?;
    for slot in [slot - 20, slot, slot + 20] {
        assert_eq!(cluster.owner(slot)?, added);
    }
    assert_eq!(cluster.owner(slot + 21)?, 0);
    assert_eq!(cluster.node(0).command(&["DBSIZE"])?, Value::Int(0));
    for key in &keys {
        assert_eq!(cluster.node(added).command(&["GET", key])?, text("value"));
    }
    Ok(())
}

#[test]
fn a_slot_can_stop_half_way() -> Result<()> {
    let cluster = Cluster::start(2, 0)?;
    let slot = cluster.slot("key")?;
    let from = cluster.owner(slot)?;
    let to = 1 - from;
    cluster.node(from).command(&["SET", "key", "value"])?;
    cluster.begin_move(slot, from, to)?;
    assert_eq!(cluster.node(from).command(&["GET", "key"])?, text("value"));
    cluster.move_keys(slot, from, to)?;
    let error = cluster.node(from).command(&["GET", "key"]).expect_err("it has moved");
    assert_eq!(error.code(), Some("ASK"), "{error}");
    cluster.end_move(slot, to)?;
    assert_eq!(cluster.node(to).command(&["GET", "key"])?, text("value"));
    Ok(())
}
