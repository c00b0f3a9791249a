//! What a hostile machine says, and what becomes of two processes that read it.

use bex_api::remote::Builders;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::*;

fn user(text: &str) -> String {
    format!(
        "{}\n",
        json!({"type": "user", "message": {"role": "user", "content": text}})
    )
}

impl World {
    async fn import(&self, machine: &Machine, session: &str, lines: String) {
        let path = format!("/v1/remote-sessions/{session}/import");
        let request = self.request(&machine.token, "POST", &path);
        let request = request.body(Full::new(lines.into())).unwrap();
        self.send(request).await.ok(200);
    }
}

#[tokio::test]
async fn a_record_of_a_great_many_prompts_is_read_soon() {
    let world = World::new().await;
    let machine = world.machine().await;
    let session = world.remote(&machine, "interactive").await;
    let record: String = (0..20_000)
        .map(|n| user(&format!("asked {}", n % 9000)))
        .collect();
    let begun = std::time::Instant::now();
    world.import(&machine, &session, record.clone()).await;
    world.read(&session).await;
    // most of it is known
    world
        .import(&machine, &session, record + &user("asked 0"))
        .await;
    world.read(&session).await;
    assert!(begun.elapsed() < Duration::from_secs(20));
    let rows = world.remote_session(&session).await;
    assert_eq!(rows["counters"]["messages"], 20_001);
    let said = world.sql("SELECT count(*) FROM messages");
    assert_eq!(said, "20001");
}

#[tokio::test]
async fn a_time_that_the_store_does_not_know_stops_nobody() {
    let world = World::new().await;
    let machine = world.machine().await;
    let session = world.remote(&machine, "interactive").await;
    let event =
        json!({"eventIndex": 0, "stream": "stdout", "data": "", "at": "-009999-01-02T01:59:59Z"});
    let refused = world.report(&machine, &session, event.to_string()).await;
    let refused = refused.refused("invalid_request");
    assert_eq!(refused["line"], 1);
    let old = json!({"type": "user", "timestamp": "-009999-01-02T01:59:59Z",
                     "message": {"role": "user", "content": "old"}});
    world.import(&machine, &session, format!("{old}\n")).await;
    world.read(&session).await;
    assert_eq!(world.messages(&session).await[0]["content"], "old");
}

#[tokio::test]
async fn lines_of_every_odd_kind_stop_nobody() {
    let world = World::new().await;
    let machine = world.machine().await;
    let session = world.remote(&machine, "interactive").await;
    let escapes = "\\u0000\\ud800".repeat(40_000);
    let odd = [
        format!("{}{}", "{\"type\":".repeat(100_000), "\n"),
        format!("{{\"type\":\"assistant\",\"message\":{}}}\n", "[".repeat(200_000)),
        format!("{{\"type\":\"assistant\",\"message\":{{\"id\":7,\"content\":[{{\"type\":\"text\",\"text\":\"{escapes}\"}}]}}}}\n"),
        "{\"type\":[],\"message\":{\"content\":{}}}\n".to_owned(),
        "{\"type\":\"result\",\"subtype\":9,\"is_error\":\"x\"}\n".to_owned(),
        "{\"type\":\"stream_event\",\"event\":{\"type\":\"content_block_delta\",\"index\":1e400}}\n".to_owned(),
        "\n".repeat(200_000),
        "\u{2028}{\"type\":\"item.completed\",\"item\":null}\n".to_owned(),
        "x".repeat(1 << 20),
        "y".repeat(1 << 20),
        "\n".to_owned(),
    ];
    let mut all: Vec<Value> = odd
        .iter()
        .enumerate()
        .map(|(n, data)| json!({"eventIndex": n, "stream": "stdout", "data": data}))
        .collect();
    let next = all.len();
    all.push(line(next, &assistant("1", text("after all"))));
    all.push(line(next + 1, &result()));
    world.say(&machine, &session, &all).await;
    world.read(&session).await;
    let rows = world.messages(&session).await;
    let last = rows.last().unwrap();
    assert_eq!(last["content"], "after all");
    let head = world.remote_session(&session).await;
    assert_eq!(head["counters"]["messages"], rows.len());
}

#[tokio::test]
async fn a_machine_that_is_revoked_while_its_request_is_on_its_way_does_nothing() {
    let world = World::new().await;
    let machine = world.machine().await;
    let session = world.remote(&machine, "interactive").await;
    for (path, body) in [
        (
            format!("/v1/remote-sessions/{session}/output"),
            line(0, &result()),
        ),
        (format!("/v1/remote-sessions/{session}/import"), json!({})),
        (
            format!("/v1/remote-sessions/{session}/status"),
            json!({"state": "completed"}),
        ),
        (
            format!("/v1/remote-sessions/{session}/usage"),
            json!({"reportId": "r", "inputTokens": 1, "outputTokens": 1}),
        ),
        (
            "/v1/machine/heartbeat".to_owned(),
            json!({"detail": {"a": 1}}),
        ),
    ] {
        world.sql("UPDATE machines SET revoked_at = NULL, last_seen_at = NULL");
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            machine.token,
            body.len()
        );
        let mut stream = tokio::net::TcpStream::connect(world.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&body.as_bytes()[..1]).await.unwrap();
        // its token is looked at, its body is waited for
        while world.sql("SELECT last_seen_at IS NULL FROM machines") == "t" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        world.sql("UPDATE machines SET revoked_at = now()");
        stream.write_all(&body.as_bytes()[1..]).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 401"), "{path}: {answer}");
    }
    let rows = world.sql("SELECT (SELECT count(*) FROM remote_events) + (SELECT count(*) FROM usage_reports) + (SELECT count(*) FROM remote_imports)");
    assert_eq!(rows, "0");
    let state = world.remote_session(&session).await;
    assert_eq!(state["state"], "active");
}

/// Two processes get a session's reports by turns, in the middle of one long turn.
#[tokio::test]
async fn two_processes_that_take_turns_read_each_event_once() {
    let world = World::new().await;
    let machine = world.machine().await;
    let session = world.remote(&machine, "autonomous").await;
    let other = Builders::new(
        world.db.clone(),
        Default::default(),
        CancellationToken::new(),
    );
    let id = session.parse().unwrap();
    for n in 0..60 {
        let block = json!({"type": "tool_use", "id": format!("a-long-enough-tool-{n}"), "name": "Bash", "input": {"n": n}});
        world
            .say(
                &machine,
                &session,
                &[line(n, &assistant(&n.to_string(), block))],
            )
            .await;
        other.wake(&id);
        world.read(&session).await;
    }
    world
        .say(
            &machine,
            &session,
            &[line(60, &assistant("t", text("done"))), line(61, &result())],
        )
        .await;
    other.wake(&id);
    world.read(&session).await;
    let rows = world.messages(&session).await;
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["contentBlocks"].as_array().unwrap().len(), 61);
}
