//! A proxy, in each of its modes.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use ratekeeper_servers::{Mode, Proxy, RedisServer, Result, wait};
use redis::{Client, Connection, RedisError, Value};

/// Long enough for an answer to come, if one comes.
const PATIENCE: Duration = Duration::from_millis(100);

struct Setup {
    server: RedisServer,
    proxy: Proxy,
}

fn setup() -> Result<Setup> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.port())?;
    Ok(Setup { server, proxy })
}

impl Setup {
    fn connect(&self) -> redis::RedisResult<Connection> {
        let client = Client::open(self.server.url_with_port(self.proxy.port()))?;
        client.get_connection_with_timeout(Duration::from_secs(5))
    }
}

fn increment(connection: &mut Connection) -> redis::RedisResult<i64> {
    redis::cmd("INCR").arg("key").query(connection)
}

fn no_answer(connection: &mut Connection) -> RedisError {
    connection.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let error = increment(connection).expect_err("there is no answer");
    assert!(error.is_timeout(), "{error}");
    error
}

#[test]
fn passes_everything_on_and_counts_it() -> Result<()> {
    let setup = setup()?;
    let mut connection = setup.connect()?;
    let before = setup.proxy.counts();
    let big = "x".repeat(1 << 20);
    redis::cmd("SET").arg("big").arg(&big).query::<()>(&mut connection)?;
    assert_eq!(redis::cmd("GET").arg("big").query::<String>(&mut connection)?, big);
    let after = setup.proxy.counts();
    assert!(after.request_bytes - before.request_bytes >= 1 << 20);
    assert!(after.reply_bytes - before.reply_bytes >= 1 << 20);
    assert_eq!((after.connections, after.open), (1, 1));
    drop(connection);
    wait::until("the connection's end", wait::LIMIT, || match setup.proxy.counts().open {
        0 => Ok(()),
        open => Err(format!("{open} are open")),
    })
}

#[test]
fn refuses_new_connections_only() -> Result<()> {
    let setup = setup()?;
    let mut connection = setup.connect()?;
    setup.proxy.set(Mode::Refuse)?;
    let error = setup.connect().err().expect("nobody listens");
    assert!(error.is_connection_refusal(), "{error}");
    assert_eq!(increment(&mut connection)?, 1);
    setup.proxy.set(Mode::Pass)?;
    assert_eq!(increment(&mut setup.connect()?)?, 2);
    assert_eq!(increment(&mut connection)?, 3);
    Ok(())
}

#[test]
fn drops_the_connections_there_are() -> Result<()> {
    let setup = setup()?;
    let mut connections = [setup.connect()?, setup.connect()?];
    setup.proxy.drop_connections()?;
    assert_eq!(setup.proxy.counts().open, 0);
    for connection in &mut connections {
        let error = increment(connection).expect_err("it is closed");
        assert!(error.is_connection_dropped(), "{error}");
    }
    assert_eq!(increment(&mut setup.connect()?)?, 1);
    Ok(())
}

#[test]
fn a_black_hole_swallows_what_was_there_and_what_comes() -> Result<()> {
    let setup = setup()?;
    let (mut used, mut idle) = (setup.connect()?, setup.connect()?);
    setup.proxy.set(Mode::BlackHole)?;
    no_answer(&mut used);
    // It is accepted, but not answered.
    let mut new = TcpStream::connect(("127.0.0.1", setup.proxy.port()))?;
    new.set_read_timeout(Some(PATIENCE))?;
    new.write_all(b"INCR key\r\n")?;
    let error = new.read(&mut [0]).expect_err("there is no answer");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");

    setup.proxy.set(Mode::Pass)?;
    assert_eq!(increment(&mut idle)?, 1, "the server has seen nothing of what was swallowed");
    no_answer(&mut used);
    Ok(())
}

#[test]
fn a_black_hole_needs_no_server() -> Result<()> {
    let setup = setup()?;
    setup.proxy.set(Mode::BlackHole)?;
    setup.server.kill()?;
    let mut stream = TcpStream::connect(("127.0.0.1", setup.proxy.port()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let error = stream.read(&mut [0]).expect_err("it is neither closed nor answered");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
    Ok(())
}

#[test]
fn lost_replies_are_to_requests_that_were_carried_out() -> Result<()> {
    let setup = setup()?;
    let mut connection = setup.connect()?;
    setup.proxy.set(Mode::LoseReplies)?;
    no_answer(&mut connection);
    wait::until("the increment", wait::LIMIT, || match setup.server.command(&["GET", "key"]) {
        Ok(Value::BulkString(one)) if one == b"1" => Ok(()),
        other => Err(format!("{other:?}")),
    })
}

#[test]
fn requests_and_replies_are_late() -> Result<()> {
    let setup = setup()?;
    let mut connections = (0..20).map(|_| setup.connect()).collect::<redis::RedisResult<Vec<_>>>()?;
    setup.proxy.set(Mode::delay(Duration::from_millis(40)))?;
    let started = Instant::now();
    thread::scope(|scope| {
        for connection in &mut connections {
            scope.spawn(|| increment(connection).expect("it comes late"));
        }
    });
    // They do not wait for each other.
    let elapsed = started.elapsed();
    assert!((Duration::from_millis(80)..Duration::from_millis(1_600)).contains(&elapsed), "{elapsed:?}");
    Ok(())
}

#[test]
fn a_reply_is_cut_short() -> Result<()> {
    let setup = setup()?;
    for bytes in 0..4 {
        setup.proxy.set(Mode::Pass)?;
        let mut connection = setup.connect()?;
        setup.proxy.set(Mode::Truncate(bytes))?;
        let error = increment(&mut connection).expect_err("`:1\\r\\n` has four bytes");
        assert!(error.is_connection_dropped(), "{error}");
    }
    Ok(())
}

#[test]
fn bytes_of_replies_are_wrong() -> Result<()> {
    let setup = setup()?;
    let mut connection = setup.connect()?;
    setup.server.command(&["SET", "text", "value"])?;
    setup.proxy.set(Mode::Corrupt(vec![4, 8]))?;
    let found: Vec<u8> = redis::cmd("GET").arg("text").query(&mut connection)?;
    assert_eq!(found, [!b'v', b'a', b'l', b'u', !b'e']);
    let found: Vec<u8> = redis::cmd("GET").arg("text").query(&mut connection)?;
    assert_eq!(found, b"value");
    Ok(())
}

#[test]
fn one_reply_is_replaced() -> Result<()> {
    let setup = setup()?;
    let mut connection = setup.connect()?;
    setup.proxy.set(Mode::Replace(b"-LOADING for ever\r\n".to_vec()))?;
    let error = increment(&mut connection).expect_err("that is an error");
    assert_eq!(error.code(), Some("LOADING"), "{error}");
    assert_eq!(increment(&mut connection)?, 2);
    Ok(())
}

#[test]
fn a_server_that_is_gone_is_gone_behind_a_proxy_too() -> Result<()> {
    let setup = setup()?;
    let mut connection = setup.connect()?;
    setup.server.kill()?;
    increment(&mut connection).expect_err("it is closed");
    assert!(setup.connect().is_err());
    setup.server.restart()?;
    assert_eq!(increment(&mut setup.connect()?)?, 1);
    Ok(())
}

#[tokio::test]
async fn works_within_somebody_elses_runtime() -> Result<()> {
    let setup = setup()?;
    assert_eq!(increment(&mut setup.connect()?)?, 1);
    setup.proxy.set(Mode::Refuse)?;
    assert!(setup.connect().is_err());
    Ok(())
}
