//! Rules in a key of a real Redis, which is killed, cut off and filled with invalid rules.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use ratekeeper_rules::{Format, RedisSource, Reloader};
use ratekeeper_servers::{Cluster, RedisServer, Replication};

use crate::support::{NEVER, Reloaded, problem, rules, wrong_rules};

const KEY: &str = "ratekeeper:rules";

/// A source that is notified of changes, and does not poll.
fn listening(server: &RedisServer) -> RedisSource {
    RedisSource::new(server.url()).expect("a good address").poll_every(NEVER)
}

/// A server with rules that admit ten an hour.
async fn server() -> RedisServer {
    let server = RedisServer::start().expect("it starts");
    publish(&server, &rules(10)).await;
    server
}

async fn publish(server: &RedisServer, text: &str) -> u64 {
    listening(server).publish(Format::Toml, text).await.expect("it is published")
}

/// Changes the text without a notification.
fn replace(server: &RedisServer, text: &str) {
    server.command(&["HSET", KEY, "body", text]).expect("it is written");
}

async fn load_error(source: RedisSource) -> String {
    Reloader::new(source).load().await.expect_err("there are no good rules").to_string()
}

#[tokio::test]
async fn what_is_published_is_in_force() {
    let server = server().await;
    let reloaded = Reloaded::start(listening(&server)).await;
    assert!(reloaded.handle.status().version().starts_with("1-"));
    for (number, limit) in [(2, 20), (3, 30)] {
        assert_eq!(publish(&server, &rules(limit)).await, number);
        let status = reloaded.until_limit(limit).await;
        assert!(status.version().starts_with(&format!("{number}-")), "{}", status.version());
    }
    let json = r#"{"rules": [{"name": "api", "quota": "40/hour"}]}"#;
    listening(&server).publish(Format::Json, json).await.unwrap();
    reloaded.until_limit(40).await;
}

#[tokio::test]
async fn all_nodes_hear_of_it() {
    let server = server().await;
    let nodes = [Reloaded::start(listening(&server)).await, Reloaded::start(listening(&server)).await];
    publish(&server, &rules(20)).await;
    let [one, other] = &nodes;
    assert_eq!(one.until_limit(20).await.version(), other.until_limit(20).await.version());
}

/// As documented for `RedisSource`.
#[tokio::test]
async fn what_operators_are_told_to_run_works() {
    const SCRIPT: &str = "local v = redis.call('HINCRBY', KEYS[1], 'version', 1) \
        redis.call('HSET', KEYS[1], 'format', ARGV[1], 'body', ARGV[2]) \
        redis.call('PUBLISH', KEYS[1], v) return v";
    let server = server().await;
    let reloaded = Reloaded::start(listening(&server)).await;
    let binary = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let (before, after) = binary.rsplit_once("-server").expect("a server is called so");
    let mut client = Command::new(format!("{before}-cli{after}"))
        .args(["-p", &server.port().to_string(), "-x", "EVAL", SCRIPT, "1", KEY, "toml"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the client that comes with the server runs");
    client.stdin.take().expect("it is piped").write_all(rules(20).as_bytes()).unwrap();
    let output = client.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "2");
    reloaded.until_limit(20).await;
}

#[tokio::test]
async fn after_a_lost_connection_the_key_is_read_again() {
    let server = server().await;
    let reloaded = Reloaded::start(listening(&server)).await;
    for limit in [20, 30] {
        // As if it had been published while there was no listener.
        replace(&server, &rules(limit));
        server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
        reloaded.until_limit(limit).await;
    }
    // And what is published from then on is received.
    publish(&server, &rules(40)).await;
    reloaded.until_limit(40).await;
}

#[tokio::test]
async fn a_server_that_is_killed_leaves_its_rules_in_force_until_it_is_back() {
    let server = server().await;
    let reloaded = Reloaded::start(listening(&server)).await;
    server.kill().unwrap();
    let status = reloaded.until_unread().await;
    assert!(
        problem(&status).starts_with("the rules in the key `ratekeeper:rules` of Redis cannot be read: ")
    );
    assert_eq!(reloaded.limit(), Some(10));

    // It comes back without data.
    server.restart().unwrap();
    let gone = "the key `ratekeeper:rules` of Redis is not there, or has no rules";
    reloaded
        .until("the key to be missed", |status| {
            status.problem().is_some_and(|problem| problem.error().to_string() == gone)
        })
        .await;
    assert_eq!(reloaded.limit(), Some(10));
    publish(&server, &rules(20)).await;
    reloaded.until_limit(20).await;
    reloaded.until_right().await;
}

#[tokio::test]
async fn a_server_that_stands_still_is_not_waited_for_without_end() {
    let server = server().await;
    let source = listening(&server).poll_every(Duration::from_millis(50)).timeout(Duration::from_millis(200));
    let reloaded = Reloaded::start(source).await;
    server.pause().unwrap();
    reloaded.until_unread().await;
    server.resume().unwrap();
    reloaded.until_right().await;
    publish(&server, &rules(20)).await;
    reloaded.until_limit(20).await;
}

#[tokio::test]
async fn a_key_that_is_replaced_in_silence_is_found_by_looking() {
    let server = server().await;
    let reloaded = Reloaded::start(listening(&server).poll_every(Duration::from_millis(50))).await;
    replace(&server, &rules(20));
    let status = reloaded.until_limit(20).await;
    assert!(status.version().starts_with("1-"), "nobody has counted");
    assert_eq!(status.applied(), 2);
}

#[tokio::test]
async fn bad_rules_are_refused_whole_and_mended_ones_accepted() {
    let server = server().await;
    let reloaded = Reloaded::start(listening(&server)).await;
    publish(&server, &wrong_rules()).await;
    let status = reloaded.until_refused().await;
    let error = problem(&status);
    assert!(
        error.contains("rule `login`, `quota`") && error.contains("key ratekeeper:rules of Redis:8:9"),
        "{error}"
    );
    assert_eq!((status.rules(), reloaded.limit()), (1, Some(10)));
    assert!(status.problem().unwrap().error().refused_version().unwrap().starts_with("2-"));

    listening(&server).publish(Format::Toml, b"\xff\x00garbage").await.unwrap();
    let refused = reloaded.until("more to be refused", |status| status.refused() == 2).await;
    assert!(problem(&refused).contains("this is not UTF-8"), "{}", problem(&refused));

    publish(&server, &rules(20)).await;
    reloaded.until_limit(20).await;
    reloaded.until_right().await;
}

#[tokio::test]
async fn a_key_that_holds_something_else_is_an_error_that_says_so() {
    let server = RedisServer::start().unwrap();
    let error = load_error(listening(&server)).await;
    assert_eq!(error, "the key `ratekeeper:rules` of Redis is not there, or has no rules");

    server.command(&["SET", KEY, "rules"]).unwrap();
    let error = load_error(listening(&server)).await;
    assert!(error.contains("`ratekeeper:rules`") && error.contains("WRONGTYPE"), "{error}");
    let error = listening(&server).publish(Format::Toml, rules(1)).await.expect_err("it is no hash");
    assert!(error.to_string().contains("`ratekeeper:rules`"), "{error}");
    server.command(&["DEL", KEY]).unwrap();

    for (fields, expected) in [
        (&["body", "x"][..], "the key `ratekeeper:rules` of Redis has no field `format`"),
        (&["format", "toml"], "the key `ratekeeper:rules` of Redis has no field `body`"),
        (
            &["body", "x", "format", "ini"],
            "the key `ratekeeper:rules` of Redis has a field `format` that makes no sense",
        ),
        (&["body", "x", "format", "toml", "version", "two"], "has a field `version` that is no number"),
    ] {
        server.command(&[&["HSET", KEY], fields].concat()).unwrap();
        let error = load_error(listening(&server)).await;
        assert!(error.contains(expected), "{error}");
        server.command(&["DEL", KEY]).unwrap();
    }

    // Written by hand and without a number: the digest serves as the version.
    server.command(&["HSET", KEY, "format", "toml", "body", &rules(10)]).unwrap();
    assert_eq!(Reloaded::start(listening(&server)).await.limit(), Some(10));
}

#[tokio::test]
async fn what_a_user_may_not_do_is_an_error_that_says_so() {
    let server = server().await;
    let user = |rights: &[&str]| {
        let words = [&["ACL", "SETUSER", "gateway", "reset", "on", ">secret"], rights].concat();
        server.command(&words).unwrap();
        let url = format!("redis://gateway:secret@127.0.0.1:{}", server.port());
        RedisSource::new(url).unwrap().poll_every(NEVER)
    };
    let error = load_error(user(&["~ratekeeper:rules", "&ratekeeper:rules", "+subscribe"])).await;
    assert!(error.contains("NoPerm") && error.contains("hmget"), "{error}");
    let error = load_error(user(&["~ratekeeper:rules", "resetchannels", "+subscribe", "+hmget"])).await;
    assert!(error.contains("NoPerm") && error.contains("channel"), "{error}");
    assert!(!error.contains("secret"), "{error}");

    // Exactly the permissions that the documentation lists.
    let reloaded = Reloaded::start(user(&[
        "~ratekeeper:rules",
        "resetchannels",
        "&ratekeeper:rules",
        "+hmget",
        "+subscribe",
    ]))
    .await;
    publish(&server, &rules(20)).await;
    reloaded.until_limit(20).await;
}

#[tokio::test]
async fn in_a_cluster_any_node_will_do() {
    let cluster = Cluster::start(3, 0).expect("it starts");
    let source = |url: &String| RedisSource::new(url.as_str()).unwrap().poll_every(NEVER);
    let urls = cluster.urls();
    source(&urls[0]).publish(Format::Toml, rules(10)).await.expect("it finds the node");
    let mut nodes = Vec::new();
    for url in &urls {
        nodes.push(Reloaded::start(source(url)).await);
    }
    source(&urls[1]).publish(Format::Toml, rules(20)).await.expect("it finds the node");
    for node in &nodes {
        node.until_limit(20).await;
    }
}

#[tokio::test]
async fn a_replica_has_the_key_and_hears_of_it() {
    let servers = Replication::start(1).expect("they start");
    publish(servers.master(), &rules(10)).await;
    servers.wait_until_in_sync().unwrap();
    let reloaded = Reloaded::start(listening(&servers.replicas()[0])).await;
    publish(servers.master(), &rules(20)).await;
    reloaded.until_limit(20).await;
}

#[tokio::test]
async fn an_address_that_makes_no_sense_is_refused() {
    let error = RedisSource::new("gopher://user:secret@host").expect_err("that is no Redis");
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
}
