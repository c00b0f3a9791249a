//! The whole system with the exec listener over mutual TLS. Who else is refused there is told by the gateway's own tests.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bex_testpg::certs::Authority;
use bex_tests::client::NewSession;
use bex_tests::scenario::{STEP, saw_everything, settled, stored};
use bex_tests::stack::WORKSPACE;
use bex_tests::{Stack, StackOptions, eventually};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;

const API: &str = "api.test";
const GATEWAY: &str = "gateway.test";

/// Both ends' files, in one directory.
struct Files(tempfile::TempDir);

impl Files {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn identities(&self, authority: &Authority) {
        for name in [API, GATEWAY] {
            let issued = authority.issue(&[name]).unwrap();
            std::fs::write(self.path(&format!("{name}.crt")), issued.certificate).unwrap();
            std::fs::write(self.path(&format!("{name}.key")), issued.key).unwrap();
        }
    }

    fn trust(&self, authorities: &[&Authority]) {
        let bundle: String = authorities.iter().map(|a| a.pem()).collect();
        std::fs::write(self.path("ca.crt"), bundle).unwrap();
    }

    fn options(&self, exec: SocketAddr) -> StackOptions {
        let pair = |name: &str, value: String| (name.to_owned(), value);
        let file = |name: &str, file: &Path| pair(name, file.display().to_string());
        let of = |end: &str, kind: &str| self.path(&format!("{end}.{kind}"));
        StackOptions {
            gateway_env: vec![
                pair("BEX_EXEC_LISTEN", exec.to_string()),
                file("BEX_EXEC_TLS_CERT", &of(GATEWAY, "crt")),
                file("BEX_EXEC_TLS_KEY", &of(GATEWAY, "key")),
                file("BEX_EXEC_TLS_CLIENT_CA", &self.path("ca.crt")),
                pair("BEX_EXEC_TLS_CLIENT_NAME", API.to_owned()),
            ],
            api_env: vec![
                pair("BEX_EXEC_URL", format!("https://{exec}")),
                pair("BEX_EXEC_TLS_NAME", GATEWAY.to_owned()),
                file("BEX_EXEC_TLS_CA", &self.path("ca.crt")),
                file("BEX_EXEC_TLS_CERT", &of(API, "crt")),
                file("BEX_EXEC_TLS_KEY", &of(API, "key")),
            ],
            ..StackOptions::default()
        }
    }
}

async fn metric(admin: SocketAddr, name: &str) -> u64 {
    let request = Request::get("/metrics").body(Full::<Bytes>::default());
    let answer = bex_tests::client::http::fetch(admin, request.unwrap())
        .await
        .unwrap();
    let text = String::from_utf8_lossy(answer.body()).into_owned();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or_default()
}

/// A session that needs every operation: delivered, observed, harvested, settled.
async fn lives(stack: &Stack) {
    let api = stack.operator();
    let new = NewSession::new(WORKSPACE, "demo", "over mutual tls parts=40");
    let session = api.create(&new).await.unwrap();
    let mut viewer = stack.watch(&session).await.unwrap();
    viewer.to_end().await.unwrap();
    let turn = settled(&api, &session, 1).await.unwrap();
    assert_eq!(turn.verdict, "complete", "{turn:?}");
    saw_everything(&stored(&api, &session).await.unwrap(), &viewer.parts()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_lives_over_mutual_tls_and_certificates_are_exchanged_under_it() {
    let files = Files(tempfile::tempdir().unwrap());
    let (first, next) = (
        Authority::new("first").unwrap(),
        Authority::new("next").unwrap(),
    );
    files.identities(&first);
    files.trust(&[&first]);
    let exec = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let mut stack = Stack::start(files.options(exec.unwrap())).await.unwrap();
    lives(&stack).await;
    let (api, gateway) = (stack.addresses.api_admin, stack.addresses.gateway_admin);
    let proved = "bex_gateway_exec_handshakes_total{result=\"ok\"}";
    assert!(metric(gateway, proved).await >= 1);
    super::metrics::as_listed(gateway, super::metrics::WITH_EXEC_TLS).await;
    for (admin, name) in [
        (api, "bex_api_exec_tls_not_after_seconds"),
        (gateway, "bex_gateway_exec_tls_not_after_seconds"),
    ] {
        assert!(metric(admin, name).await > 0, "{name}");
    }

    // both are trusted, then everything is the next one's
    files.trust(&[&first, &next]);
    files.identities(&next);
    lives(&stack).await;
    files.trust(&[&next]);
    // a gateway that starts now knows only the next authority, and the api has not been started again
    stack.restart_gateway().await.unwrap();
    eventually("the api meets the new gateway", STEP, async || {
        lives(&stack).await;
        (metric(gateway, proved).await >= 1).then_some(())
    })
    .await
    .unwrap();
    for reloads in [
        metric(api, "bex_api_exec_tls_reload_failures").await,
        metric(gateway, "bex_gateway_exec_tls_reload_failures").await,
    ] {
        // a look may fall between the writing of a certificate and its key
        assert!(reloads <= 1, "{reloads}");
    }
    stack.stop().await.unwrap();
}
