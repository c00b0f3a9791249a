use std::io::Write as _;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

const SET: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"a","x":"AQAB","y":"AQAB"}]}"#;

/// Answers one connection with these bytes, or never when there are none; gives what was asked.
async fn once(answer: Vec<u8>) -> (SocketAddr, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let asked = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("a connection");
        let mut asked = vec![0; 4096];
        let n = socket.read(&mut asked).await.expect("a request");
        asked.truncate(n);
        if answer.is_empty() {
            std::future::pending::<()>().await;
        }
        // a reader that has enough may be gone
        let _ = socket.write_all(&answer).await;
        String::from_utf8(asked).expect("a head")
    });
    (address, asked)
}

fn said(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

async fn fetched(answer: Vec<u8>) -> Result<KeySet, FetchFault> {
    let (address, _server) = once(answer).await;
    let endpoint = Endpoint::parse(&format!("http://{address}/keys?v=1"), None);
    endpoint.expect("loopback").fetch().await
}

#[tokio::test]
async fn a_set_is_read_and_everything_else_is_a_fault() {
    let (address, server) = once(said("200 OK", SET)).await;
    let endpoint = Endpoint::parse(&format!("http://{address}/keys?v=1"), None).expect("loopback");
    assert_eq!(endpoint.fetch().await.expect("a set").len(), 1);
    let asked = server.await.expect("no panic");
    assert!(asked.starts_with("GET /keys?v=1 HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains(&format!("host: {address}\r\n")), "{asked}");

    let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", " ".repeat(SET_BYTES + 1));
    for (answer, fault) in [
        (said("302 Found", SET), "it answered 302 Found"),
        (said("503 Service Unavailable", SET), "it answered 503"),
        (said("200 OK", "<html>"), "it is no key set"),
        (endless.into_bytes(), "larger than"),
        (b"220 mail\r\n".to_vec(), "no answer"),
    ] {
        let error = fetched(answer).await.expect_err("refused").to_string();
        assert!(error.contains(fault), "{error}");
    }
    let nobody = Endpoint::parse(&format!("http://{address}/"), None).expect("loopback");
    assert!(matches!(nobody.fetch().await, Err(FetchFault::Connect(_))));
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_says_nothing_is_given_up() {
    assert!(matches!(fetched(vec![]).await, Err(FetchFault::Timeout)));
}

#[tokio::test]
async fn tls_is_verified_by_authority_and_by_name() {
    let signer =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let certificate = signer.cert.der().clone();
    let key = rustls::pki_types::PrivateKeyDer::try_from(signer.signing_key.serialize_der())
        .expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a pair");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            // a client that does not trust us breaks off here
            let Ok(mut socket) = acceptor.accept(socket).await else {
                continue;
            };
            let _ = socket.read(&mut [0; 4096]).await;
            let _ = socket.write_all(&said("200 OK", SET)).await;
            let _ = socket.shutdown().await;
        }
    });
    let mut ca = tempfile::NamedTempFile::new().expect("a file");
    ca.write_all(signer.cert.pem().as_bytes()).expect("written");
    let fetch = async |host: &str, ca: Option<&Path>| {
        let endpoint = Endpoint::parse(&format!("https://{host}:{port}/"), ca);
        endpoint?.fetch().await.map_err(|error| {
            assert!(matches!(error, FetchFault::Connect(_)), "{error}");
            EndpointFault::Roots
        })
    };
    assert_eq!(
        fetch("localhost", Some(ca.path()))
            .await
            .map(|set| set.len()),
        Ok(1)
    );
    assert!(
        fetch("127.0.0.1", Some(ca.path())).await.is_err(),
        "another name"
    );
    assert!(fetch("localhost", None).await.is_err(), "nobody vouches");
}

#[test]
fn addresses_that_anybody_could_answer_for_are_refused() {
    let fault = |url: &str| Endpoint::parse(url, None).err();
    for good in [
        "http://localhost/k",
        "http://[::1]:8080",
        "http://127.8.8.8:1/?a=b",
    ] {
        assert_eq!(fault(good), None, "{good}");
    }
    for (url, why) in [
        ("http://issuer.example/keys", EndpointFault::PlainText),
        ("http://127.0.0.1.example/", EndpointFault::PlainText),
        ("ftp://127.0.0.1/", EndpointFault::Url),
        ("/keys", EndpointFault::Url),
        ("http://u:p@127.0.0.1/", EndpointFault::Url),
        ("http://127.0.0.1/#f", EndpointFault::Url),
    ] {
        assert_eq!(fault(url), Some(why), "{url}");
    }
    let empty = tempfile::NamedTempFile::new().expect("a file");
    let url = "https://issuer.example/keys";
    assert_eq!(
        Endpoint::parse(url, Some(empty.path())).err(),
        Some(EndpointFault::Roots)
    );
}
