//! One server: what its options do, and what can be done to it.

use std::{
    env,
    io::{BufRead, BufReader},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use ratekeeper_servers::{RedisServer, Result, wait};
use redis::{Client, TlsCertificates, Value};

fn ping(client: &Client) -> Result<String> {
    let mut connection = client.get_connection_with_timeout(Duration::from_secs(5))?;
    Ok(redis::cmd("PING").query(&mut connection)?)
}

#[test]
fn answers_under_its_url() -> Result<()> {
    let server = RedisServer::start()?;
    assert_eq!(ping(&Client::open(server.url())?)?, "PONG");
    assert_eq!(server.command(&["SET", "key", "value"])?, Value::Okay);
    assert_eq!(server.command(&["GET", "key"])?, Value::BulkString(b"value".to_vec()));
    let error = server.command(&["GET"]).expect_err("there is no key");
    assert!(error.to_string().starts_with("GET: "), "{error}");
    Ok(())
}

#[test]
fn many_servers_run_at_the_same_time() -> Result<()> {
    let servers = thread::scope(|scope| {
        let starting: Vec<_> = (0..8).map(|_| scope.spawn(RedisServer::start)).collect();
        starting.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Result<Vec<_>>>()
    })?;
    for (i, server) in servers.iter().enumerate() {
        server.command(&["SET", "who", &i.to_string()])?;
    }
    for (i, server) in servers.iter().enumerate() {
        assert_eq!(server.command(&["GET", "who"])?, Value::BulkString(i.to_string().into_bytes()));
    }
    Ok(())
}

#[test]
fn ends_when_it_is_dropped_by_a_panic_too() {
    let (pid, directory) = thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::channel();
        let panicking = scope.spawn(move || {
            let server = RedisServer::start().expect("it starts");
            send.send((server.pid(), server.directory().to_owned())).expect("somebody listens");
            // Like a panic, but without its message in the test's output.
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        let seen = receive.recv().expect("it has started");
        panicking.join().expect_err("it panics");
        seen
    });
    assert!(!runs(pid), "the process still runs");
    assert!(!directory.exists(), "the directory is still there");
}

#[test]
fn says_what_it_is_and_what_it_used() -> Result<()> {
    let server = RedisServer::start()?;
    let version = server.version()?;
    assert!(version.as_redis >= (6, 2, 0), "{version} is too old");
    let (memory, commands, cpu) = (server.used_memory()?, server.commands_processed()?, server.cpu_used()?);
    server.command(&["SET", "key", &"x".repeat(1 << 20)])?;
    assert!(server.used_memory()? >= memory + (1 << 20));
    assert!(server.commands_processed()? > commands);
    server.command(&["EVAL", "local n = 0; for i = 1, 1e6 do n = n + i end; return n", "0"])?;
    assert!(server.cpu_used()? > cpu);
    Ok(())
}

#[test]
fn a_paused_server_answers_when_it_goes_on() -> Result<()> {
    let server = RedisServer::start()?;
    let mut connection = server.connect()?;
    server.pause()?;
    server.resume()?;
    server.pause()?;
    server.pause()?;
    connection.set_read_timeout(Some(Duration::from_millis(50)))?;
    let error = redis::cmd("INCR").arg("key").query::<i64>(&mut connection).expect_err("nobody answers");
    assert!(error.is_timeout(), "{error}");
    server.resume()?;
    // What was sent is in the queue, and is executed.
    wait::until("the increment", wait::LIMIT, || match server.command(&["GET", "key"]) {
        Ok(Value::BulkString(one)) if one == b"1" => Ok(()),
        other => Err(format!("{other:?}")),
    })
}

#[test]
fn a_paused_server_ends_with_its_value() -> Result<()> {
    let server = RedisServer::start()?;
    server.pause()?;
    let pid = server.pid();
    drop(server);
    assert!(!runs(pid));
    Ok(())
}

#[test]
fn a_killed_server_is_gone_until_it_restarts_empty() -> Result<()> {
    let server = RedisServer::start()?;
    let (pid, url) = (server.pid(), server.url());
    server.command(&["SET", "key", "value"])?;
    server.kill()?;
    let error = Client::open(url.as_str())?.get_connection().err().expect("nobody listens");
    assert!(error.is_connection_refusal(), "{error}");
    server.pause().expect_err("it has ended");
    server.restart()?;
    assert_eq!(server.url(), url);
    assert_ne!(server.pid(), pid);
    assert_eq!(server.command(&["DBSIZE"])?, Value::Int(0));
    Ok(())
}

#[test]
fn a_server_that_is_shut_down_can_restart() -> Result<()> {
    let server = RedisServer::builder().password("p@ss word").start()?;
    server.shutdown()?;
    assert!(!runs(server.pid()));
    server.restart()?;
    server.restart()?;
    assert_eq!(server.command(&["PING"])?, Value::SimpleString("PONG".to_owned()));
    Ok(())
}

#[test]
fn lines_of_configuration_are_heeded() -> Result<()> {
    let server = RedisServer::builder().config("hz 77").start()?;
    let expected = ["hz", "77"].map(|word| Value::BulkString(word.into())).to_vec();
    assert_eq!(server.command(&["CONFIG", "GET", "hz"])?, Value::Array(expected));
    let error = RedisServer::builder().config("no-such-option 1").start().expect_err("there is none");
    assert!(error.to_string().contains("no-such-option"), "{error}");
    Ok(())
}

#[test]
fn memory_has_an_end() -> Result<()> {
    let server = RedisServer::builder().max_memory(4 << 20).start()?;
    server.command(&["SET", "small", "1"])?;
    let error = server.command(&["SET", "big", &"x".repeat(8 << 20)]).expect_err("there is no memory for it");
    assert_eq!(error.code(), Some("OOM"), "{error}");
    Ok(())
}

#[test]
fn listens_on_a_unix_socket() -> Result<()> {
    let server = RedisServer::builder().unix_socket().password("p&ss?").start()?;
    let url = server.unix_url().expect("it has a socket");
    assert_eq!(ping(&Client::open(url)?)?, "PONG");
    Ok(())
}

#[test]
fn asks_for_passwords() -> Result<()> {
    let server = RedisServer::builder()
        .password("s3cret/:@ word")
        .user("ratekeeper", "an0ther #%", "~ratekeeper:* +get +set +ping")
        .start()?;
    assert_eq!(server.command(&["SET", "elsewhere", "1"])?, Value::Okay);

    let nobody = Client::open(format!("redis://127.0.0.1:{}/", server.port()))?;
    let error = ping(&nobody).expect_err("there was no password");
    assert_eq!(error.code(), Some("NOAUTH"), "{error}");

    let mut user = Client::open(server.url())?.get_connection()?;
    redis::cmd("SET").arg("ratekeeper:key").arg(1).query::<()>(&mut user)?;
    let error = redis::cmd("GET").arg("elsewhere").query::<()>(&mut user).expect_err("not theirs");
    assert_eq!(error.code(), Some("NOPERM"), "{error}");
    Ok(())
}

#[test]
fn speaks_tls_to_a_user_who_trusts_its_authority() -> Result<()> {
    let options = RedisServer::builder().tls().user("ratekeeper", "secret", "~* +@all");
    let Some(server) = with_tls(options.start())? else { return Ok(()) };
    let authority = server.certificates().map(|certificates| certificates.authority().into());
    let trusting = TlsCertificates { client_tls: None, root_cert: authority };
    let url = server.tls_url().expect("it has a port for TLS");
    let client = Client::build_with_tls(url.as_str(), trusting)?;
    assert_eq!(ping(&client)?, "PONG");
    let mut connection = client.get_connection()?;
    assert_eq!(redis::cmd("ACL").arg("WHOAMI").query::<String>(&mut connection)?, "ratekeeper");
    ping(&Client::open(url)?).expect_err("the authority is not known to the system");
    Ok(())
}

#[test]
fn asks_for_a_certificate_of_the_client() -> Result<()> {
    let Some(server) = with_tls(RedisServer::builder().mutual_tls().start())? else { return Ok(()) };
    let certificates = server.certificates().expect("it has certificates");
    let url = server.tls_url().expect("it has a port for TLS");
    let with = |client_tls| TlsCertificates { client_tls, root_cert: Some(certificates.authority().into()) };
    let ours = redis::ClientTlsConfig {
        client_cert: certificates.client().into(),
        client_key: certificates.client_key().into(),
    };
    assert_eq!(ping(&Client::build_with_tls(url.as_str(), with(Some(ours)))?)?, "PONG");
    ping(&Client::build_with_tls(url.as_str(), with(None))?).expect_err("there is no certificate");
    Ok(())
}

#[test]
fn what_a_killed_test_leaves_is_cleaned_up() -> Result<()> {
    // This test, in its own process that waits to be killed.
    if env::var_os("RATEKEEPER_VICTIM").is_some() {
        let server = RedisServer::start()?;
        println!("started {} {}", server.port(), server.directory().display());
        thread::park_timeout(wait::LIMIT);
        return Ok(());
    }
    let mut victim = Command::new(env::current_exe()?)
        .args(["--exact", "what_a_killed_test_leaves_is_cleaned_up", "--nocapture"])
        .env("RATEKEEPER_VICTIM", "1")
        .stdout(Stdio::piped())
        .spawn()?;
    let output = victim.stdout.take().expect("it is piped");
    let started = BufReader::new(output)
        .lines()
        .find_map(|line| Some(line.ok()?.split_once("started ")?.1.to_owned()))
        .expect("it has started");
    let (port, directory) = started.split_once(' ').expect("a port and a directory");
    let address = format!("127.0.0.1:{port}");
    TcpStream::connect(&address)?;
    victim.kill()?;
    victim.wait()?;
    wait::until("the server's end", wait::LIMIT, || {
        match (TcpStream::connect(&address), Path::new(directory).exists()) {
            (Err(_), false) => Ok(()),
            (Ok(_), _) => Err("it listens"),
            (_, true) => Err("its directory is there"),
        }
    })
}

#[test]
fn says_what_to_install_where_there_is_no_server() -> Result<()> {
    let output = Command::new(env::current_exe()?)
        .args(["--exact", "answers_under_its_url", "--nocapture"])
        .env("REDIS_SERVER", "no-such-server")
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot run `no-such-server`"), "{said}");
    assert!(said.contains("install the package redis-server"), "{said}");
    Ok(())
}

/// The server, unless it was built without TLS: then there is nothing to test.
fn with_tls(started: Result<RedisServer>) -> Result<Option<RedisServer>> {
    match started {
        Err(error) if error.lacks_tls() => {
            eprintln!("not tested: {error}");
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// Whether there is a process with this id.
fn runs(pid: u32) -> bool {
    Command::new("kill")
        .args(["-0", &pid.to_string()])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
