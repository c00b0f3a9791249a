//! A conversation becomes a package, with the real programs: in a directory and in a bucket. Its URL is in no log, however talkative.

use bex_tests::client::NewSession;
use bex_tests::scenario::settled;
use bex_tests::stack::WORKSPACE;
use bex_tests::{Stack, StackOptions};
use bex_tests3::{BUCKET, KEY_ID, REGION, S3, SECRET};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// What a tool printed: the driver takes it out where it is said, the package where it is handed over.
const TOKEN: &str = "ghp_canary0123456789abcdefghijklmnopqrst";

async fn started(more: &[(&str, &str)]) -> Stack {
    let pairs = [("RUST_LOG", "trace")].iter().chain(more);
    let options = StackOptions {
        api_env: pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..StackOptions::default()
    };
    Stack::start(options).await.unwrap()
}

/// Status and body of a method on a URL, without a token.
async fn ask(method: Method, url: &str) -> (u16, Bytes) {
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let request = Request::builder().method(method).uri(url);
    let response = client
        .request(request.body(Full::default()).unwrap())
        .await
        .unwrap();
    let status = response.status().as_u16();
    (
        status,
        response.into_body().collect().await.unwrap().to_bytes(),
    )
}

/// Makes a session, asks twice for its package, fetches it and has the program check it; the answer.
async fn packaged(stack: &Stack) -> Value {
    let api = stack.operator();
    let new = NewSession::new(WORKSPACE, "demo", &format!("say {TOKEN} parts=5"));
    let session = api.create(&new).await.unwrap();
    settled(&api, &session, 1).await.unwrap();
    let path = format!("/replay/by-conversation/{session}");
    let first = stack.viewer().call(Method::GET, &path, None).await.unwrap();
    assert_eq!(first.status, 200, "{}", first.json());
    let again = stack.viewer().call(Method::GET, &path, None).await.unwrap();
    let (first, again) = (first.json(), again.json());
    assert_eq!(
        (&first["packageId"], &first["sha256"]),
        (&again["packageId"], &again["sha256"])
    );
    let strange = stack
        .stranger()
        .call(Method::GET, &path, None)
        .await
        .unwrap();
    assert_eq!(strange.status, 404);
    let url = first["url"].as_str().unwrap();
    let (status, bytes) = ask(Method::GET, url).await;
    assert_eq!(status, 200);
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert!(
        !text.contains(TOKEN) && text.contains("[redacted:github-token:"),
        "{text}"
    );
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["sections"]["toolResults"]["partial"], false);
    let file = stack.dir().join("package.json");
    std::fs::write(&file, &bytes).unwrap();
    let sum = first["sha256"].as_str().unwrap();
    let file = file.display().to_string();
    let verified = stack
        .api_command(&["package", "verify", &file, "--sha256", sum])
        .unwrap();
    assert_eq!(verified.code, 0, "{verified:?}");
    // what was changed, for another method, or of another object
    let tampered = format!("{}0", &url[..url.len() - 1]);
    let tampered = if tampered == url {
        url.replace("ignature=", "ignature=0")
    } else {
        tampered
    };
    for (method, url) in [
        (Method::GET, tampered.as_str()),
        (Method::DELETE, url),
        (Method::GET, &url.replace("/pkg-", "/pkg-a")),
    ] {
        let (status, _) = ask(method.clone(), url).await;
        assert!((400..500).contains(&status), "{method} {url}: {status}");
    }
    assert_eq!(ask(Method::GET, url).await.0, 200);
    first
}

/// No log holds what makes a URL good, or what was taken out.
async fn stopped(stack: Stack, answer: &Value) {
    let url = answer["url"].as_str().unwrap();
    let signature = url.rsplit("ignature=").next().unwrap();
    let signature = signature.split('&').next().unwrap();
    assert!(signature.len() >= 64, "{signature}");
    let mut logs = 0;
    for entry in std::fs::read_dir(stack.log_dir()).unwrap() {
        let path = entry.unwrap().path();
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
        assert!(!text.contains(signature), "{}", path.display());
        assert!(!text.contains(SECRET), "{}", path.display());
        logs += usize::from(text.contains("\"TRACE\""));
    }
    assert!(logs > 0, "nothing was logged at trace");
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_directory() {
    let stack = started(&[]).await;
    let answer = packaged(&stack).await;
    let key = stack
        .sql("SELECT detail FROM audit_events WHERE action = 'package.fetch' LIMIT 1")
        .unwrap();
    let name = answer["packageId"].as_str().unwrap();
    assert!(key.trim().ends_with(&format!("{name}.json")), "{key}");
    stopped(stack, &answer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_bucket() {
    let s3 = S3::start().await.unwrap();
    let endpoint = s3.endpoint();
    let stack = started(&[
        ("BEX_PACKAGES_STORE", "s3"),
        ("BEX_PACKAGES_S3_BUCKET", BUCKET),
        ("BEX_PACKAGES_S3_REGION", REGION),
        ("BEX_PACKAGES_S3_ENDPOINT", &endpoint),
        ("AWS_ACCESS_KEY_ID", KEY_ID),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
    ])
    .await;
    let answer = packaged(&stack).await;
    let id = answer["query"]["id"].as_str().unwrap();
    let name = answer["packageId"].as_str().unwrap();
    assert_eq!(
        s3.keys(),
        [format!("ORG#{WORKSPACE}/conversation-{id}/{name}.json")]
    );
    stopped(stack, &answer).await;
}
