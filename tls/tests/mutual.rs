//! Both ends over a pipe in memory, with certificates made here.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use bex_testpg::certs::{Authority, Issued};
use bex_tls::{
    AcceptFault, ClientFiles, ClientTls, ConnectFault, LOOK_EVERY, ServerFiles, ServerTls,
    TlsError, peer_name,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::{client, server};

const GATEWAY: &str = "gateway.test";
const API: &str = "api.test";

/// A directory of one end: its identity, and whom it trusts.
struct End(TempDir);

impl End {
    fn new(identity: &Issued, trusted: &Authority) -> Self {
        let end = Self(TempDir::new().unwrap());
        end.identity(identity);
        end.trust(trusted);
        end
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn identity(&self, identity: &Issued) {
        std::fs::write(self.path("tls.crt"), &identity.certificate).unwrap();
        std::fs::write(self.path("tls.key"), &identity.key).unwrap();
    }

    fn trust(&self, authority: &Authority) {
        std::fs::write(self.path("ca.crt"), authority.pem()).unwrap();
    }

    fn server(&self) -> ServerTls {
        ServerTls::open(ServerFiles {
            certificate: self.path("tls.crt"),
            key: self.path("tls.key"),
            client_ca: self.path("ca.crt"),
            client_name: peer_name(API).unwrap(),
        })
        .unwrap()
    }

    fn client(&self) -> ClientTls {
        ClientTls::open(self.files()).unwrap()
    }

    fn files(&self) -> ClientFiles {
        ClientFiles {
            ca: self.path("ca.crt"),
            certificate: self.path("tls.crt"),
            key: self.path("tls.key"),
            server_name: peer_name(GATEWAY).unwrap(),
        }
    }
}

type Ends = (
    Result<server::TlsStream<DuplexStream>, AcceptFault>,
    Result<client::TlsStream<DuplexStream>, ConnectFault>,
);

async fn meet(server: &ServerTls, client: &ClientTls) -> Ends {
    let (near, far) = duplex(64 * 1024);
    tokio::join!(server.accept(near), client.connect(far))
}

async fn speak(server: &ServerTls, client: &ClientTls) -> Ends {
    let (mut near, mut far) = meet(server, client).await;
    say(near.as_mut().unwrap(), far.as_mut().unwrap()).await;
    (near, far)
}

async fn say(
    near: &mut server::TlsStream<DuplexStream>,
    far: &mut client::TlsStream<DuplexStream>,
) {
    far.write_all(b"ping").await.unwrap();
    far.flush().await.unwrap();
    let mut heard = [0; 4];
    near.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"ping");
}

fn refusal(ends: Ends) -> AcceptFault {
    match ends.0 {
        Err(fault) => fault,
        Ok(_) => panic!("the server takes it"),
    }
}

struct World {
    authority: Authority,
    gateway: End,
    api: End,
}

impl World {
    fn new() -> Self {
        let authority = Authority::new("ours").unwrap();
        Self {
            gateway: End::new(&authority.issue(&[GATEWAY]).unwrap(), &authority),
            api: End::new(&authority.issue(&[API]).unwrap(), &authority),
            authority,
        }
    }
}

#[tokio::test]
async fn the_right_client_meets_the_right_server() {
    let world = World::new();
    let (server, client) = (world.gateway.server(), world.api.client());
    let (near, far) = speak(&server, &client).await;
    let alpn = |protocol: Option<&[u8]>| protocol.map(<[u8]>::to_vec);
    assert_eq!(
        alpn(near.unwrap().get_ref().1.alpn_protocol()).unwrap(),
        b"http/1.1"
    );
    let version = far.unwrap().get_ref().1.protocol_version();
    assert_eq!(version, Some(rustls::ProtocolVersion::TLSv1_3));
    assert!(server.not_after() > 4_000_000_000 && client.not_after() > 4_000_000_000);
}

#[tokio::test]
async fn only_the_right_client_is_taken() {
    let world = World::new();
    let server = world.gateway.server();
    let client = |identity: &Issued| End::new(identity, &world.authority);
    let wrong_name = client(&world.authority.issue(&["other.test"]).unwrap());
    let ends = meet(&server, &wrong_name.client()).await;
    assert_eq!(refusal(ends), AcceptFault::WrongName);
    let expired = client(&world.authority.issue_expired(&[API]).unwrap());
    let ends = meet(&server, &expired.client()).await;
    assert_eq!(refusal(ends), AcceptFault::Expired);
    let stranger = Authority::new("stranger").unwrap();
    let untrusted = client(&stranger.issue(&[API]).unwrap());
    let ends = meet(&server, &untrusted.client()).await;
    assert_eq!(refusal(ends), AcceptFault::Untrusted);
}

#[tokio::test]
async fn a_client_without_a_certificate_or_without_tls_is_not_taken() {
    let world = World::new();
    let server = world.gateway.server();
    let mut roots = rustls::RootCertStore::empty();
    let pem = bex_tls::Pem::read(&world.gateway.path("ca.crt")).unwrap();
    roots.extend(pem.roots().unwrap().roots);
    let config = rustls::ClientConfig::builder_with_provider(bex_tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    let (near, far) = duplex(64 * 1024);
    let connect = connector.connect(peer_name(GATEWAY).unwrap(), far);
    let (near, _far) = tokio::join!(server.accept(near), connect);
    assert_eq!(near.err(), Some(AcceptFault::NoCertificate));

    let (near, mut far) = duplex(64 * 1024);
    far.write_all(b"POST /v1/exec HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(server.accept(near).await.err(), Some(AcceptFault::NotTls));
}

#[tokio::test]
async fn only_the_right_server_is_spoken_to() {
    let world = World::new();
    let client = world.api.client();
    let stranger = Authority::new("stranger").unwrap();
    for identity in [
        world.authority.issue(&["other.test"]).unwrap(),
        world.authority.issue_expired(&[GATEWAY]).unwrap(),
        stranger.issue(&[GATEWAY]).unwrap(),
    ] {
        let other = End::new(&identity, &world.authority);
        let (near, far) = meet(&other.server(), &client).await;
        assert!(matches!(far, Err(ConnectFault::Handshake(_))), "{far:?}");
        assert_eq!(near.err(), Some(AcceptFault::Refused));
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_is_not_waited_for() {
    let world = World::new();
    let (near, _far) = duplex(1024);
    assert_eq!(
        world.gateway.server().accept(near).await.err(),
        Some(AcceptFault::Timeout)
    );
}

#[tokio::test(start_paused = true)]
async fn everything_is_exchanged_while_a_connection_lives() {
    let world = World::new();
    let (server, client) = (world.gateway.server(), world.api.client());
    let (near, far) = speak(&server, &client).await;
    let (mut near, mut far) = (near.unwrap(), far.unwrap());

    // both ends get certificates of another authority
    let next = Authority::new("next").unwrap();
    for end in [&world.gateway, &world.api] {
        end.trust(&next);
    }
    world.gateway.identity(&next.issue(&[GATEWAY]).unwrap());
    let old = world.api.client();
    tokio::time::advance(LOOK_EVERY).await;
    let ends = meet(&server, &old).await;
    assert_eq!(refusal(ends), AcceptFault::Untrusted, "the old client's");
    world.api.identity(&next.issue(&[API]).unwrap());
    tokio::time::advance(LOOK_EVERY).await;
    let _ends = speak(&server, &client).await;
    // and what was open goes on
    say(&mut near, &mut far).await;
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_together_changes_nothing() {
    let world = World::new();
    let (server, client) = (world.gateway.server(), world.api.client());
    let next = world.authority.issue(&[GATEWAY]).unwrap();
    let write = |name: &str, text: &str| std::fs::write(world.gateway.path(name), text).unwrap();
    write("tls.crt", &next.certificate);
    for failures in 1..3 {
        tokio::time::advance(LOOK_EVERY).await;
        let _ends = speak(&server, &client).await;
        assert_eq!(server.reload_failures(), 1, "look {failures}");
    }
    std::fs::remove_file(world.gateway.path("tls.key")).unwrap();
    tokio::time::advance(LOOK_EVERY).await;
    let _ends = speak(&server, &client).await;
    assert_eq!(server.reload_failures(), 2);
    write("tls.key", &next.key);
    tokio::time::advance(LOOK_EVERY).await;
    let (_, far) = speak(&server, &client).await;
    assert_eq!(server.reload_failures(), 2);
    let far = far.unwrap();
    let shown = &far.get_ref().1.peer_certificates().unwrap()[0];
    let written = bex_tls::Pem::read(&world.gateway.path("tls.crt")).unwrap();
    let key = bex_tls::Pem::read(&world.gateway.path("tls.key")).unwrap();
    assert_eq!(*shown, written.identity(&key).unwrap().chain[0]);
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let world = World::new();
    let api = &world.api;
    let open = |files: ClientFiles| ClientTls::open(files).unwrap_err().to_string();
    let with = |change: fn(&mut ClientFiles, &Path)| {
        let mut files = api.files();
        change(&mut files, api.0.path());
        open(files)
    };
    let text = with(|files, dir| files.ca = dir.join("nothing"));
    assert!(text.contains("nothing cannot be read"), "{text}");
    let text = with(|files, dir| files.certificate = dir.join("tls.key"));
    assert!(
        text.contains("tls.key holds no usable certificate"),
        "{text}"
    );
    let text = with(|files, dir| files.key = dir.join("tls.crt"));
    assert!(
        text.contains("tls.crt holds no usable private key"),
        "{text}"
    );
    let other = world.authority.issue(&[API]).unwrap();
    std::fs::write(api.path("tls.key"), other.key).unwrap();
    assert_eq!(
        ClientTls::open(api.files()).unwrap_err(),
        TlsError::Mismatch
    );
    assert_eq!(peer_name("not a name"), Err(TlsError::Name));
}
