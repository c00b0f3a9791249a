//! What it refuses to start with, how it says that it is ready, how it ends.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::house::{Gateway, Login, PATIENCE, database, gateway, get};

#[test]
fn a_bad_configuration_exits_64_naming_every_variable_and_no_secret() {
    let mut command = gateway("postgres://u:hunter2@elsewhere/d");
    command
        .env("BEX_EXEC_KEYS", "e:feedface")
        .env_remove("BEX_LOCAL");
    let (code, log) = Gateway::start(command).end();
    assert_eq!(code, Some(64), "{log}");
    for name in ["BEX_DATABASE_URL", "BEX_EXEC_KEYS", "BEX_LOCAL"] {
        assert!(log.contains(name), "{log}");
    }
    assert!(
        !log.contains("hunter2") && !log.contains("feedface"),
        "{log}"
    );
}

#[tokio::test]
async fn missing_grants_stop_the_start_and_are_named() {
    let database = database().await;
    let login = Login::new(&database);
    database
        .sql("REVOKE SELECT ON turns FROM bex_gateway; REVOKE EXECUTE ON FUNCTION bex_append FROM bex_gateway")
        .expect("revoked");
    let (code, log) = Gateway::start(gateway(&login.url())).end();
    assert_eq!(code, Some(1), "{log}");
    assert!(
        log.contains("turns:SELECT") && log.contains("bex_append:EXECUTE"),
        "{log}"
    );
    assert!(
        !log.contains("sessions:SELECT"),
        "only what is missing is named: {log}"
    );

    // also the one that the schema check itself needs
    database
        .sql("REVOKE SELECT ON schema_migrations FROM bex_gateway")
        .expect("revoked");
    let (code, log) = Gateway::start(gateway(&login.url())).end();
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("schema_migrations:SELECT"), "{log}");
}

#[tokio::test]
async fn an_empty_database_stops_the_start() {
    let database = bex_testpg::server()
        .expect("a server")
        .empty_database()
        .expect("a database");
    let (code, log) = Gateway::start(gateway(&database.url)).end();
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("bex-api migrate"), "{log}");
}

#[tokio::test]
async fn a_log_that_takes_nothing_stops_nothing() {
    let database = database().await;
    let login = Login::new(&database);
    let admin = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|free| free.local_addr())
        .expect("a port");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let mut child = gateway(&login.url())
        .env("BEX_ADMIN_LISTEN", admin.to_string())
        .stderr(full.expect("a full disk"))
        .spawn()
        .expect("started");
    let until = std::time::Instant::now() + PATIENCE;
    while TcpStream::connect(admin).is_err() {
        assert_eq!(child.try_wait().expect("a child"), None, "it ended");
        assert!(std::time::Instant::now() < until, "it never listens");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(get(admin, "/readyz").0, 200);
    let pid = i32::try_from(child.id()).expect("a pid");
    kill(Pid::from_raw(pid), Signal::SIGTERM).expect("it lives");
    assert_eq!(child.wait().expect("its end").code(), Some(0));
}

#[tokio::test]
async fn it_serves_says_so_and_ends_with_0() {
    let database = database().await;
    let login = Login::new(&database);
    let mut gateway = Gateway::start(gateway(&login.url()));
    let admin = gateway.ready().admin;
    assert_eq!(get(admin, "/healthz").0, 200);
    assert_eq!(get(admin, "/readyz").0, 200);
    let (status, metrics) = get(admin, "/metrics");
    assert_eq!(status, 200);
    assert!(metrics.contains("bex_gateway_streams 0"), "{metrics}");
    assert_eq!(get(admin, "/nothing").0, 404);

    // an open connection in the middle of a request does not hold the process
    let mut slow = TcpStream::connect(admin).expect("a connection");
    slow.write_all(b"GET /healthz HTTP/1.1\r\nhost:")
        .expect("sent");

    // a schema that is too old makes it unready, not dead
    database
        .sql("DELETE FROM schema_migrations WHERE version > 1")
        .expect("deleted");
    let answer = readiness(admin, 503).await;
    assert!(answer.contains("\"unavailable\""), "{answer}");
    assert!(answer.contains("schema: version 1, "), "{answer}");
    assert_eq!(get(admin, "/healthz").0, 200);

    gateway.signal(Signal::SIGTERM);
    let (code, log) = gateway.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("\"ended\""), "{log}");
}

#[tokio::test]
async fn a_grant_lost_after_the_start_is_named_until_it_is_back() {
    let database = database().await;
    let login = Login::new(&database);
    let mut gateway = Gateway::start(gateway(&login.url()));
    let admin = gateway.ready().admin;
    assert_eq!(get(admin, "/readyz").0, 200);
    database
        .sql("REVOKE SELECT ON turns FROM bex_gateway")
        .expect("revoked");
    let answer = readiness(admin, 503).await;
    assert!(answer.contains("grants: turns:SELECT missing"), "{answer}");
    database
        .sql("GRANT SELECT ON turns TO bex_gateway")
        .expect("granted");
    readiness(admin, 200).await;
    gateway.signal(Signal::SIGTERM);
    let (_, log) = gateway.end();
    assert!(log.contains("turns:SELECT"), "{log}");
}

/// The first answer of this status: what was seen stands for some seconds.
async fn readiness(admin: std::net::SocketAddr, wanted: u16) -> String {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        let (status, answer) = get(admin, "/readyz");
        if status == wanted {
            return answer;
        }
        assert!(
            std::time::Instant::now() < until,
            "never {wanted}: {answer}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
