//! The exec listener over mutual TLS: who reaches it, and certificates that are exchanged under it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bex_testpg::certs::{Authority, Issued};
use bex_tls::{ClientFiles, ClientTls, Pem, peer_name, provider};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use nix::sys::signal::Signal;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::house::{Gateway, Login, PATIENCE, database, gateway, get};

const GATEWAY: &str = "gateway.test";
const API: &str = "api.test";
/// Twice what the listener lets prove themselves at once.
const SILENT: usize = 2 * bex_listener::UNPROVED;

/// The gateway's files, and apis with files of their own.
struct World {
    dir: TempDir,
    authority: Authority,
}

impl World {
    fn new() -> Self {
        let world = Self {
            dir: tempfile::tempdir().expect("a directory"),
            authority: authority("ours"),
        };
        world.serve(&world.authority, &[&world.authority]);
        world
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    }

    /// The gateway's certificate is of `authority`; it trusts clients of these.
    fn serve(&self, authority: &Authority, trusted: &[&Authority]) {
        let issued = issue(authority, GATEWAY);
        self.write("gateway.crt", &issued.certificate);
        self.write("gateway.key", &issued.key);
        let bundle: String = trusted.iter().map(|a| a.pem()).collect();
        self.write("clients.crt", &bundle);
    }

    fn command(&self, url: &str) -> Command {
        let path = |name: &str| self.dir.path().join(name);
        let mut command = gateway(url);
        command
            .env("BEX_EXEC_TLS_CERT", path("gateway.crt"))
            .env("BEX_EXEC_TLS_KEY", path("gateway.key"))
            .env("BEX_EXEC_TLS_CLIENT_CA", path("clients.crt"))
            .env("BEX_EXEC_TLS_CLIENT_NAME", API);
        command
    }

    /// A client with this certificate, that knows every authority of the gateway's.
    fn client(&self, name: &str, issued: &Issued, known: &[&Authority]) -> ClientTls {
        let bundle: String = known.iter().map(|a| a.pem()).collect();
        ClientTls::open(ClientFiles {
            ca: self.write(&format!("{name}.ca"), &bundle),
            certificate: self.write(&format!("{name}.crt"), &issued.certificate),
            key: self.write(&format!("{name}.key"), &issued.key),
            server_name: peer_name(GATEWAY).expect("a name"),
        })
        .expect("usable files")
    }
}

fn authority(name: &str) -> Authority {
    Authority::new(name).expect("an authority")
}

fn issue(authority: &Authority, name: &str) -> Issued {
    authority.issue(&[name]).expect("a certificate")
}

type Sender = SendRequest<Full<Bytes>>;

async fn converse(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Option<Sender> {
    let (sender, connection) = http1::handshake(TokioIo::new(io)).await.ok()?;
    tokio::spawn(connection);
    Some(sender)
}

async fn connect(to: SocketAddr, tls: &ClientTls) -> Option<Sender> {
    let socket = TcpStream::connect(to).await.expect("a connection");
    converse(tls.connect(socket).await.ok()?).await
}

/// What the listener says to a call without a ticket; `None` when it says nothing.
async fn call(sender: &mut Sender) -> Option<StatusCode> {
    let request = Request::post("/v1/exec")
        .header("host", GATEWAY)
        .body(Full::default())
        .expect("a request");
    let answer = tokio::time::timeout(PATIENCE, sender.send_request(request))
        .await
        .expect("an end")
        .ok()?;
    let status = answer.status();
    answer.into_body().collect().await.expect("a whole answer");
    Some(status)
}

async fn reach(to: SocketAddr, tls: &ClientTls) -> Option<StatusCode> {
    call(&mut connect(to, tls).await?).await
}

async fn eventually(what: &str, mut reached: impl AsyncFnMut() -> bool) {
    let until = std::time::Instant::now() + PATIENCE;
    while !reached().await {
        assert!(std::time::Instant::now() < until, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn counted(admin: SocketAddr, result: &str) -> bool {
    let line = format!("bex_gateway_exec_handshakes_total{{result=\"{result}\"}}");
    get(admin, "/metrics").1.contains(&line)
}

#[tokio::test]
async fn only_the_api_reaches_the_exec_listener() {
    let (world, database) = (World::new(), database().await);
    let login = Login::new(&database);
    let mut gateway = Gateway::start(world.command(&login.url()));
    let at = gateway.ready();
    let ours = [&world.authority];

    let api = world.client("api", &issue(&world.authority, API), &ours);
    assert_eq!(reach(at.exec, &api).await, Some(StatusCode::UNAUTHORIZED));
    let stranger = authority("stranger");
    for (name, issued, result) in [
        ("other", issue(&world.authority, "other.test"), "wrong_name"),
        ("untrusted", issue(&stranger, API), "untrusted"),
        (
            "expired",
            world
                .authority
                .issue_expired(&[API])
                .expect("a certificate"),
            "expired",
        ),
    ] {
        let client = world.client(name, &issued, &ours);
        assert_eq!(reach(at.exec, &client).await, None, "{name}");
        assert!(counted(at.admin, result), "{name}");
    }

    // nobody: no certificate, and no TLS at all
    let roots = Pem::read(&world.dir.path().join("api.ca")).and_then(|pem| pem.roots());
    let config = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots.expect("roots"))
        .with_no_client_auth();
    let socket = TcpStream::connect(at.exec).await.expect("a connection");
    let nobody = TlsConnector::from(Arc::new(config))
        .connect(peer_name(GATEWAY).expect("a name"), socket)
        .await
        .expect("in TLS 1.3 the client hears of it later");
    let mut sender = converse(nobody).await.expect("a sender");
    assert_eq!(call(&mut sender).await, None);
    assert!(counted(at.admin, "no_certificate"));
    let mut plain = TcpStream::connect(at.exec).await.expect("a connection");
    plain
        .write_all(b"POST /v1/exec HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .expect("sent");
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said).await;
    assert!(!said.starts_with(b"HTTP"), "{said:?}");
    assert!(counted(at.admin, "not_tls"));

    // and who speaks to another gateway than it means says nothing
    let misled = world.client("misled", &issue(&world.authority, API), &[&stranger]);
    assert!(connect(at.exec, &misled).await.is_none());

    let metrics = get(at.admin, "/metrics").1;
    let not_after = "bex_gateway_exec_tls_not_after_seconds ";
    assert!(metrics.contains(not_after), "{metrics}");
    assert!(!metrics.contains(&format!("{not_after}0\n")), "{metrics}");
    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.end().0, Some(0));
}

#[tokio::test]
async fn strangers_who_say_nothing_keep_no_place_from_the_api() {
    let (world, database) = (World::new(), database().await);
    let login = Login::new(&database);
    let mut gateway = Gateway::start(world.command(&login.url()));
    let at = gateway.ready();
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        silent.push(TcpStream::connect(at.exec).await.expect("a connection"));
    }
    let api = world.client("api", &issue(&world.authority, API), &[&world.authority]);
    // sooner than any of them is given up
    let reached = tokio::time::timeout(bex_tls::HANDSHAKE_TIMEOUT / 2, reach(at.exec, &api)).await;
    assert_eq!(reached, Ok(Some(StatusCode::UNAUTHORIZED)));
    eventually("the oldest are sent away", async || {
        counted(at.admin, "crowded")
    })
    .await;
    drop(silent);
    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.end().0, Some(0));
}

#[tokio::test]
async fn certificates_are_exchanged_and_open_connections_live_on() {
    let (world, database) = (World::new(), database().await);
    let login = Login::new(&database);
    let mut gateway = Gateway::start(world.command(&login.url()));
    let at = gateway.ready();
    let next = authority("next");
    let both = [&world.authority, &next];
    let old = world.client("old", &issue(&world.authority, API), &both);
    let new = world.client("new", &issue(&next, API), &both);
    let mut kept = connect(at.exec, &old).await.expect("a connection");
    assert_eq!(call(&mut kept).await, Some(StatusCode::UNAUTHORIZED));
    assert_eq!(reach(at.exec, &new).await, None, "not yet");

    // first both are trusted, then only the next
    world.serve(&next, &both);
    eventually("the new client is taken", async || {
        reach(at.exec, &new).await.is_some()
    })
    .await;
    assert_eq!(reach(at.exec, &old).await, Some(StatusCode::UNAUTHORIZED));
    world.serve(&next, &[&next]);
    eventually("the old client is refused", async || {
        reach(at.exec, &old).await.is_none()
    })
    .await;
    assert_eq!(
        call(&mut kept).await,
        Some(StatusCode::UNAUTHORIZED),
        "what was open goes on"
    );

    // files that do not fit together change nothing, and are told
    world.write("gateway.key", "-----BEGIN");
    eventually("the fault is counted", async || {
        let metrics = get(at.admin, "/metrics").1;
        metrics.contains("bex_gateway_exec_tls_reload_failures 1")
    })
    .await;
    assert_eq!(reach(at.exec, &new).await, Some(StatusCode::UNAUTHORIZED));
}
