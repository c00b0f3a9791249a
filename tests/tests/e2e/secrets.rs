//! Credentials given to an agent are in no part, whatever the agent prints.

use bex_proto::SessionId;
use bex_tests::client::NewSession;
use bex_tests::scenario::{settled, stored};
use bex_tests::stack::WORKSPACE;
use bex_tests::{Stack, StackOptions};
use serde_json::json;

const SECRET: &str = "correct-horse-battery-staple-0123456789";
const BASE64: &str = "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5LXN0YXBsZS0wMTIzNDU2Nzg5";

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_is_redacted_in_every_encoding() {
    let options = StackOptions {
        secrets: [("sample-token".to_owned(), SECRET.to_owned())].into(),
        ..StackOptions::default()
    };
    let stack = Stack::start(options).await.unwrap();
    // split over two writes, so that no single piece holds it
    let script = r#"test -n "$TOKEN" || exit 9; printf '%s' "$TOKEN" | cut -c1-12 | tr -d '\n'; printf '%s' "$TOKEN" | cut -c13-;
        printf '%s' "$TOKEN" | base64; printf 'safe\n'"#;
    let (_, text) = printed(&stack, "sample-token", script).await;
    for leak in [SECRET, BASE64, &SECRET[..12], &SECRET[12..]] {
        assert!(!text.contains(leak), "a credential is in the transcript");
    }
    stack.stop().await.unwrap();
}

/// A session whose command has the stack's `secret` as `$TOKEN`, and all that it said once it has ended. The command says `safe`.
pub(crate) async fn printed(stack: &Stack, secret: &str, script: &str) -> (SessionId, String) {
    let api = stack.operator();
    let mut new =
        NewSession::new(WORKSPACE, "command", "print it").args(&["/bin/sh", "-c", script]);
    new.body["agent"]["env"] = json!([{"name": "TOKEN", "secretRef": stack.secret_ref(secret)}]);
    let session = api.create(&new).await.unwrap();
    let turn = settled(&api, &session, 1).await.unwrap();
    assert_eq!(
        (turn.verdict.as_str(), turn.ended_by.as_deref()),
        ("complete", Some("agent")),
        "{turn:?}"
    );
    let parts = stored(&api, &session).await.unwrap();
    let text = parts.iter().map(|(_, part)| String::from_utf8_lossy(part));
    let text: String = text.collect();
    assert!(text.contains("safe"), "the command ran: {text}");
    (session, text)
}
