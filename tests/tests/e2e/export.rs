//! A session leaves one system as a file and lives on in another.

use std::path::Path;

use bex_proto::SessionId;
use bex_tests::client::{Answer, Ending, NewSession};
use bex_tests::scenario::{STEP, settled};
use bex_tests::stack::WORKSPACE;
use bex_tests::{Stack, StackOptions, eventually};
use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::Value;

async fn get(stack: &Stack, session: &SessionId, rest: &str) -> Answer {
    let path = format!("/v1/agent-sessions/{session}/{rest}");
    stack.viewer().call(Method::GET, &path, None).await.unwrap()
}

/// Waits until every settled turn has its statement, and gives the chain.
async fn proof(stack: &Stack, session: &SessionId) -> Value {
    eventually("every turn is stated", STEP, async || {
        let proof = get(stack, session, "proof").await.json();
        (proof["pending"] == 0).then_some(proof)
    })
    .await
    .unwrap()
}

/// The events of a replay as they stand on the wire, comments aside.
async fn replayed(
    stack: &Stack,
    session: &SessionId,
) -> Vec<(Option<bex_proto::PartId>, Option<Bytes>)> {
    let mut viewer = stack.watch(session).await.unwrap();
    assert_eq!(viewer.to_end().await.unwrap(), Ending::Done);
    viewer.events.into_iter().map(|e| (e.id, e.data)).collect()
}

fn command(stack: &Stack, words: &[&str], file: &Path) -> bex_tests::stack::Ended {
    let file = file.display().to_string();
    let args: Vec<&str> = words.iter().copied().chain([file.as_str()]).collect();
    stack.api_command(&args).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_exported_is_replayed_byte_for_byte_by_another_system() {
    let first = Stack::start(StackOptions::default()).await.unwrap();
    let api = first.operator();
    let new = NewSession::new(WORKSPACE, "demo", "first parts=20");
    let session = api.create(&new).await.unwrap();
    settled(&api, &session, 1).await.unwrap();
    let begun = api.begin_turn(&session, "second parts=5").await.unwrap();
    assert_eq!(begun.status, 201, "{}", begun.json());
    settled(&api, &session, 2).await.unwrap();
    let chain = proof(&first, &session).await;
    assert_eq!(chain["statements"].as_array().unwrap().len(), 2);

    let export = get(&first, &session, "export?format=jsonl").await;
    assert_eq!(export.status, StatusCode::OK);
    assert_eq!(export.headers["content-type"], "application/x-ndjson");
    let file = first.dir().join("export.jsonl");
    std::fs::write(&file, &export.body).unwrap();
    let keys = first.dir().join("keys.json");
    let published = api
        .call(Method::GET, "/.well-known/bex-proof-keys.json", None)
        .await
        .unwrap();
    std::fs::write(&keys, &published.body).unwrap();
    let keys = keys.display().to_string();
    let verified = command(&first, &["verify", "--keys", &keys], &file);
    assert_eq!(verified.code, 0, "{verified:?}");
    assert!(
        verified.out.contains("2 turns, 2 of them stated"),
        "{verified:?}"
    );

    // one flipped bit in a part, and its name is told
    let mut damaged = export.body.to_vec();
    let at = memchr::memmem::find(&damaged, br#""index":7,"#).unwrap();
    let quote = at + memchr::memmem::find(&damaged[at..], br#""part":{"#).unwrap() + 10;
    damaged[quote] ^= 1;
    let bad = first.dir().join("damaged.jsonl");
    std::fs::write(&bad, &damaged).unwrap();
    let refused = command(&first, &["verify"], &bad);
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("part 1.7"), "{refused:?}");

    let markdown = get(&first, &session, "export?format=markdown").await;
    let text = String::from_utf8(markdown.body.to_vec()).unwrap();
    assert!(text.contains("## Turn 2\n\n> second parts=5\n"), "{text}");
    assert!(text.contains("Line 1 of 20"), "{text}");
    let messages: Value = get(&first, &session, "export?format=ui-messages")
        .await
        .expect(StatusCode::OK)
        .unwrap();
    let roles: Vec<_> = messages
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
    let path = format!("/v1/agent-sessions/{session}/export");
    let strange = first
        .stranger()
        .call(Method::GET, &path, None)
        .await
        .unwrap();
    assert_eq!(strange.status, StatusCode::NOT_FOUND);

    let here = replayed(&first, &session).await;
    let second = Stack::start(StackOptions::default()).await.unwrap();
    let refused = command(&second, &["import"], &bad);
    assert_eq!(refused.code, 1, "{refused:?}");
    let imported = command(&second, &["import", "--keys", &keys], &file);
    assert_eq!(imported.code, 0, "{imported:?}");
    assert_eq!(replayed(&second, &session).await, here);
    let again = command(&second, &["import"], &file);
    assert_eq!(again.code, 1, "{again:?}");

    // and lives on there
    let api = second.operator();
    let begun = api
        .begin_turn(&session, "third recall=1 parts=2")
        .await
        .unwrap();
    assert_eq!(begun.status, 201, "{}", begun.json());
    let third = settled(&api, &session, 3).await.unwrap();
    assert_eq!(third.verdict, "complete");
    let chain = proof(&second, &session).await;
    assert_eq!(chain["statements"].as_array().unwrap().len(), 3);
    second.stop().await.unwrap();
    first.stop().await.unwrap();
}
