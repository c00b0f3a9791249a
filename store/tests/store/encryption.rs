//! TLS towards the database: nothing is said to a server that is not proved, by the pool or by the listener.

use std::path::PathBuf;

use bex_proto::{Chain, SessionId};
use bex_store::listen::{Event, Listener, Source};
use bex_store::wake::Channel;
use bex_store::{Db, DbConfig, StoreError};
use bex_testpg::certs::Authority;
use bex_testpg::{Options, TestPg};
use tempfile::TempDir;

use crate::support::*;

/// The name in the server's certificate. It is dialled by address, so that nobody need resolve it.
const NAME: &str = "db.test";

/// A server with a certificate, and a client's file of authorities.
struct Encrypted {
    pg: TestPg,
    authority: Authority,
    dir: TempDir,
}

impl Encrypted {
    fn start() -> Self {
        let authority = Authority::new("first").unwrap();
        let certificate = authority.issue(&[NAME]).unwrap();
        let encrypted = Self {
            pg: TestPg::start_tls(Options::default(), &certificate).unwrap(),
            authority,
            dir: TempDir::new().unwrap(),
        };
        encrypted.trust(&[&encrypted.authority]);
        encrypted
    }

    fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    fn trust(&self, authorities: &[&Authority]) {
        let bundle: String = authorities.iter().map(|a| a.pem()).collect();
        std::fs::write(self.ca(), bundle).unwrap();
    }

    fn config(&self, name: &str, application: &str) -> DbConfig {
        config(&self.pg, name, application).with_ca(Some(self.ca()))
    }

    fn db(&self, name: &str) -> Db {
        Db::connect(&self.config(name, "test")).unwrap()
    }

    /// Ends every connection of clients, as a failover would.
    fn disconnect(&self) {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name <> 'psql' AND datname IS NOT NULL";
        self.pg.sql("postgres", sql).unwrap();
    }

    fn encrypted(&self, application: &str) -> String {
        let sql = format!(
            "SELECT bool_and(ssl), count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = '{application}'"
        );
        self.pg.sql("postgres", &sql).unwrap().trim().to_owned()
    }
}

fn config(pg: &TestPg, name: &str, application: &str) -> DbConfig {
    let port = pg.port();
    let url = format!(
        "postgres://postgres@{name}:{port}/postgres?hostaddr=127.0.0.1&sslmode=verify-full"
    );
    DbConfig::new(url, application)
}

fn why(answer: Result<(), StoreError>) -> String {
    Chain(&answer.unwrap_err()).to_string()
}

/// Pings until the answer is as wanted: a connection that was cut is still in the pool, and files are looked at once a second.
async fn pings(db: &Db, wanted: impl Fn(&Result<(), StoreError>) -> bool) {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let answer = db.ping().await;
        if wanted(&answer) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{answer:?}");
        pause().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn only_a_server_of_the_name_and_the_authority_is_spoken_to() {
    let server = Encrypted::start();
    let db = server.db(NAME);
    db.ping().await.unwrap();
    assert_eq!(server.encrypted("test"), "t|1");

    let text = why(server.db("other.test").ping().await);
    assert!(text.contains("not valid for name"), "{text}");

    let stranger = Authority::new("stranger").unwrap();
    server.trust(&[&stranger]);
    let text = why(server.db(NAME).ping().await);
    assert!(text.contains("UnknownIssuer"), "{text}");

    server.trust(&[&server.authority]);
    let expired = server.authority.issue_expired(&[NAME]).unwrap();
    server.pg.replace_certificate(&expired).unwrap();
    server.disconnect();
    pings(&db, |answer| {
        answer
            .as_ref()
            .is_err_and(|e| Chain(e).to_string().contains("expired"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_without_tls_is_not_spoken_to() {
    let plain = TestPg::start_new(Options::default()).unwrap();
    let authority = Authority::new("first").unwrap();
    let dir = TempDir::new().unwrap();
    let ca = dir.path().join("ca.pem");
    std::fs::write(&ca, authority.pem()).unwrap();
    let db = Db::connect(&config(&plain, NAME, "plain").with_ca(Some(ca))).unwrap();
    let text = why(db.ping().await);
    assert!(text.contains("server does not support TLS"), "{text}");
    let seen = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'plain'";
    assert_eq!(plain.sql("postgres", seen).unwrap().trim(), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn certificates_and_authorities_are_exchanged_under_a_running_pool() {
    let server = Encrypted::start();
    let db = server.db(NAME);
    db.ping().await.unwrap();
    // the same authority's next certificate needs nothing
    let next = server.authority.issue(&[NAME]).unwrap();
    server.pg.replace_certificate(&next).unwrap();
    server.disconnect();
    pings(&db, Result::is_ok).await;
    // another authority's is refused until the file names it
    let successor = Authority::new("second").unwrap();
    let certificate = successor.issue(&[NAME]).unwrap();
    server.pg.replace_certificate(&certificate).unwrap();
    server.disconnect();
    pings(&db, |answer| {
        answer
            .as_ref()
            .is_err_and(|e| Chain(e).to_string().contains("UnknownIssuer"))
    })
    .await;
    server.trust(&[&server.authority, &successor]);
    pings(&db, Result::is_ok).await;
    // a file that is being written changes nothing
    std::fs::write(server.ca(), "-----BEGIN CERT").unwrap();
    server.disconnect();
    pings(&db, Result::is_ok).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_listener_is_encrypted_and_proves_its_server() {
    let server = Encrypted::start();
    let migrated = server.config(NAME, "migrate");
    bex_store::migrate(&migrated).await.unwrap();
    let mut listener = Listener::start(Source::Listen(server.config(NAME, "listener"))).unwrap();
    assert_eq!(listener.next().await, Some(Event::Resumed));
    assert_eq!(server.encrypted("listener"), "t|1");
    let session = SessionId::random();
    server
        .db(NAME)
        .notify(Channel::Wake, &session)
        .await
        .unwrap();
    let heard = Event::Notified {
        channel: Channel::Wake,
        payload: session.to_string(),
    };
    assert_eq!(listener.next().await, Some(heard));

    let source = Source::Listen(server.config("other.test", "misled"));
    let mut misled = Listener::start(source).unwrap();
    let heard = tokio::time::timeout(std::time::Duration::from_secs(1), misled.next()).await;
    assert!(heard.is_err(), "{heard:?}");
    assert_eq!(server.encrypted("misled"), "|0");
}
