//! Against a gateway that takes a call and says nothing.

use tokio::net::TcpListener;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_gateway_that_hangs_says_nothing_of_the_sandbox() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let base = format!("http://{}", silent.local_addr().expect("an address"));
    let accepted = tokio::spawn(async move { silent.accept().await });
    let ring = KeyRing::parse(&format!("k:{}", "ab".repeat(32))).expect("a ring");
    let client = ExecClient::new(&base.parse().expect("a URL"), ring);
    let target = ExecTarget {
        workspace: "demo".parse().expect("an id"),
        session: SessionId::random(),
        generation: Generation(1),
        namespace: "demo-sandbox".to_owned(),
        pod: "pod".to_owned(),
        pod_uid: "uid".to_owned(),
        container: "sandbox".to_owned(),
    };
    let begun = tokio::time::Instant::now();
    let answer = client
        .read(&target, Reading::Status, TurnNo(1), 0, Room::Small)
        .await;
    assert_eq!(answer.end, Err(ExecFailure::Unreachable));
    assert!(begun.elapsed() >= limits::EXEC_READ_TIMEOUT + ANSWER_MARGIN);
    assert!(accepted.await.expect("the task").is_ok(), "it was called");
}
