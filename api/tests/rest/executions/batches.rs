//! Findings and usage come in batches, each recorded whole or not at all.

use super::*;

async fn recorded(world: &World, path: &str, field: &str, entries: Vec<Value>) -> (u64, u64) {
    let answer = world.post(OPERATOR, path, &json!({field: entries})).await;
    let answer = answer.ok(200);
    (
        answer["recorded"].as_u64().unwrap(),
        answer["duplicates"].as_u64().unwrap(),
    )
}

#[tokio::test]
async fn a_finding_counts_once_and_its_id_means_one_thing() {
    let world = World::new().await;
    let record = async |entries| recorded(&world, "/v1/findings", "findings", entries).await;
    assert_eq!(record(vec![finding("a"), finding("b")]).await, (2, 0));
    assert_eq!(
        record(vec![finding("b"), finding("c"), finding("c")]).await,
        (1, 2)
    );
    // another order of fields, or another writing of the time, is the same finding
    let other = json!({"at": "2026-11-30T13:00:00+01:00", "body": {"rule": "r1"}, "decision": "allow", "findingId": "a"});
    assert_eq!(record(vec![other]).await, (0, 1));
    let mut changed = finding("a");
    changed["decision"] = json!("deny");
    for batch in [
        vec![finding("d"), changed.clone()],
        vec![finding("d"), {
            let mut twice = finding("d");
            twice["body"] = json!(null);
            twice
        }],
    ] {
        let refused = world
            .post(OPERATOR, "/v1/findings", &json!({"findings": batch}))
            .await;
        assert_eq!(refused.refused("record_conflict")["index"], 1);
    }
    assert_eq!(
        world.sql(
            "SELECT string_agg(finding_id || decision, ' ' ORDER BY finding_id) FROM findings"
        ),
        "aallow ballow callow",
        "nothing of a refused batch is kept"
    );
}

#[tokio::test]
async fn usage_counts_once_and_names_what_is_there() {
    let world = World::new().await;
    let id = world.execution().await;
    let session = world.create().await;
    let mut used = entry("a");
    used["executionId"] = json!(id);
    used["sessionId"] = json!(session);
    let record = async |entries| recorded(&world, "/v1/usage", "entries", entries).await;
    assert_eq!(record(vec![used.clone(), entry("b")]).await, (2, 0));
    assert_eq!(record(vec![used.clone(), entry("b")]).await, (0, 2));
    for (field, value) in [
        ("executionId", json!(ExecutionId::random())),
        ("sessionId", json!(bex_proto::SessionId::random())),
        ("sessionId", json!(bex_proto::RemoteSessionId::random())),
    ] {
        let mut lost = entry("c");
        lost[field] = value;
        let batch = json!({"entries": [entry("d"), lost]});
        let refused = world.post(OPERATOR, "/v1/usage", &batch).await;
        assert_eq!(refused.refused("not_found")["index"], 1);
    }
    let mut more = used.clone();
    more["outputTokens"] = json!(6);
    let refused = world
        .post(OPERATOR, "/v1/usage", &json!({"entries": [more]}))
        .await;
    refused.refused("record_conflict");
    let ledger = world.get(VIEWER, &execution(&id, "")).await.ok(200)["ledger"].clone();
    assert_eq!(
        ledger,
        json!({"entries": 1, "inputTokens": 10, "outputTokens": 5, "totalTokens": 15, "calls": 1})
    );
    let (of_session, _) = world
        .pages(&format!("/v1/usage?sessionId={session}&limit=9"))
        .await;
    assert_eq!(names(&of_session, "entryId"), ["a"]);
    // what was recorded is known, though its session is gone
    world.sql(&format!("DELETE FROM sessions WHERE id = '{session}'"));
    assert_eq!(record(vec![used]).await, (0, 1));
}

#[tokio::test]
async fn lists_have_every_entry_once_in_the_order_of_time() {
    let world = World::new().await;
    let id = world.execution().await;
    let run = bex_proto::RunId::random();
    let batch: Vec<Value> = (0..250)
        .map(|n| {
            let mut one = finding(&format!("f{n:03}"));
            // many of one moment
            one["at"] = json!(format!("2026-11-30T12:00:{:02}.000Z", (249 - n) / 100));
            match n % 3 {
                0 => one["executionId"] = json!(id),
                1 => one["runId"] = json!(run),
                _ => one["workflowId"] = json!("w"),
            }
            one
        })
        .collect();
    assert_eq!(
        recorded(&world, "/v1/findings", "findings", batch).await,
        (250, 0)
    );
    let (all, pages) = world.pages("/v1/findings?limit=100").await;
    assert_eq!((all.len(), pages), (250, 3));
    let order: Vec<(String, String)> = all
        .iter()
        .map(|one| (one["at"].to_string(), one["findingId"].to_string()))
        .collect();
    assert!(order.windows(2).all(|pair| pair[0] < pair[1]));
    for (query, count) in [
        (format!("executionId={id}"), 84),
        (format!("runId={run}"), 83),
        ("workflowId=w".to_owned(), 83),
        ("workflowId=none".to_owned(), 0),
    ] {
        let (some, _) = world.pages(&format!("/v1/findings?{query}&limit=40")).await;
        assert_eq!(some.len(), count, "{query}");
    }
    let both = format!("/v1/findings?executionId={id}&runId={run}");
    world.get(VIEWER, &both).await.refused("invalid_request");

    let entries: Vec<Value> = (0..120).map(|n| entry(&format!("e{n:03}"))).collect();
    assert_eq!(
        recorded(&world, "/v1/usage", "entries", entries).await,
        (120, 0)
    );
    let (all, pages) = world.pages("/v1/usage?limit=50").await;
    assert_eq!(pages, 3);
    let expected: Vec<String> = (0..120).map(|n| format!("e{n:03}")).collect();
    assert_eq!(names(&all, "entryId"), expected);
}

#[tokio::test]
async fn a_page_is_bounded_in_bytes_and_has_one_row_at_least() {
    let world = World::new().await;
    let id = world.execution().await;
    let large = "x".repeat(1_000_000);
    for n in 0..9 {
        let path = execution(&id, &format!("/nodes/n{n}"));
        let body = json!({"ordinal": n, "outputs": large});
        world.put(OPERATOR, &path, &body).await.ok(201);
    }
    let first = world.get(VIEWER, &execution(&id, "/nodes")).await;
    assert!(first.body.len() < 6 << 20, "{}", first.body.len());
    assert_eq!(first.ok(200)["items"].as_array().unwrap().len(), 5);
    let (nodes, pages) = world.pages(&execution(&id, "/nodes?limit=200")).await;
    assert_eq!((nodes.len(), pages), (9, 2));
    for n in 0..6 {
        let mut one = finding(&format!("f{n}"));
        one["body"] = json!(large);
        recorded(&world, "/v1/findings", "findings", vec![one]).await;
    }
    let (findings, pages) = world.pages("/v1/findings?limit=200").await;
    assert_eq!((findings.len(), pages), (6, 2));
}
