//! An execution's life as its engine tells it: facts stay, statuses move forward only, the same again changes nothing.

use super::*;

#[tokio::test]
async fn an_execution_is_told_step_by_step_and_read_with_its_sections() {
    let world = World::new().await;
    let session = world.create().await;
    let workflow = r#"{ "name":"nightly", "n": 12345678901234567890, "n": 1.0 }"#;
    for (path, body) in [
        ("/v1/workflows/wf%201/versions/7", workflow),
        ("/v1/exec-specs/spec/versions/a", "{}"),
        (
            "/v1/agent-configs/reviewer/versions/3",
            r#"{"temperature":0}"#,
        ),
    ] {
        let made = world.put_text(OPERATOR, path, body).await.ok(201);
        assert_eq!(
            made["sha256"],
            bex_proto::transcript::sha256_hex(body.as_bytes())
        );
    }
    let id = ExecutionId::random();
    let begun = json!({
        "status": "running", "workflowId": "wf 1", "workflowVersion": "7", "specId": "spec", "specVersion": "a",
        "modelScope": "prod", "modelVersion": "1", "governanceMode": "shadow", "startedAt": "2026-11-30T12:00:00.123456Z",
        "sessions": [session],
    });
    let answer = world.put(OPERATOR, &execution(&id, ""), &begun).await;
    assert_eq!(answer.header("location"), execution(&id, ""));
    let made = answer.ok(201);
    assert_eq!(
        (&made["status"], &made["recordedBy"]),
        (&json!("running"), &json!("svc:operator"))
    );
    assert_eq!(made["startedAt"], "2026-11-30T12:00:00.123Z");
    for (node, ordinal, body) in [
        (
            "plan",
            1,
            json!({"inputs": {"q": [1]}, "status": "running"}),
        ),
        ("gate", 0, json!({"status": "skipped"})),
        (
            "plan",
            1,
            json!({"outputs": "done", "status": "completed", "retries": 2, "agentId": "reviewer", "agentVersion": "3",
                   "usage": {"tokens": 7}, "completedAt": "2026-11-30T12:01:00.000Z"}),
        ),
    ] {
        let mut body = body;
        body["ordinal"] = json!(ordinal);
        let path = execution(&id, &format!("/nodes/{node}"));
        let answer = world.put(OPERATOR, &path, &body).await;
        assert!([200, 201].contains(&answer.status), "{answer:?}");
    }
    let mut used = entry("e1");
    used["executionId"] = json!(id);
    used["cost"] = json!({"amount": "0.00420", "currency": "EUR"});
    world
        .post(OPERATOR, "/v1/usage", &json!({"entries": [used]}))
        .await
        .ok(200);
    let over = json!({"status": "completed", "completedAt": "2026-11-30T12:02:00.000Z", "usageTotals": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3, "callCount": 1, "more": "kept"}});
    world
        .put(OPERATOR, &execution(&id, ""), &over)
        .await
        .ok(200);

    let told = world.get(VIEWER, &execution(&id, "")).await;
    assert!(
        String::from_utf8_lossy(&told.body).contains(workflow),
        "a body is shown as it was sent"
    );
    let told = told.ok(200);
    assert_eq!(
        (
            &told["status"],
            &told["workflow"]["version"],
            &told["execSpec"]["body"]
        ),
        (&json!("completed"), &json!("7"), &json!({}))
    );
    assert_eq!(told["modelConfig"], Value::Null, "it was not recorded");
    assert_eq!(told["sessions"][0]["sessionId"], session.as_str());
    assert_eq!(
        (&told["nodes"], &told["ledger"]["totalTokens"]),
        (&json!(2), &json!(15))
    );
    let (nodes, _) = world.pages(&execution(&id, "/nodes?limit=200")).await;
    assert_eq!(names(&nodes, "nodeId"), ["gate", "plan"]);
    assert_eq!(
        (
            &nodes[1]["inputs"],
            &nodes[1]["outputs"],
            &nodes[1]["retries"]
        ),
        (&json!({"q": [1]}), &json!("done"), &json!(2))
    );
    let (ledger, _) = world
        .pages(&format!("/v1/usage?executionId={id}&limit=1"))
        .await;
    assert_eq!(
        ledger[0]["cost"],
        json!({"amount": "0.0042", "currency": "EUR"})
    );
}

#[tokio::test]
async fn the_same_again_changes_nothing_and_a_contradiction_is_refused() {
    let world = World::new().await;
    let id = ExecutionId::random();
    let path = execution(&id, "");
    let totals = |calls: u32| json!({"inputTokens": 1, "outputTokens": 2, "totalTokens": 3, "callCount": calls});
    let begun = json!({"status": "running", "workflowId": "w", "usageTotals": totals(1)});
    let first = world.put(OPERATOR, &path, &begun).await.ok(201);
    let again = world.put(OPERATOR, &path, &begun).await.ok(200);
    assert_eq!(first, again);
    let over = json!({"status": "failed", "error": "out of memory"});
    let ended = world.put(OPERATOR, &path, &over).await.ok(200);
    assert_eq!(ended["revision"], 2);
    // a report that comes late, and one that comes twice
    for late in [&begun, &over] {
        assert_eq!(world.put(OPERATOR, &path, late).await.ok(200), ended);
    }
    for (field, asked) in [
        ("status", json!({"status": "completed"})),
        ("workflowId", json!({"status": "failed", "workflowId": "v"})),
        ("error", json!({"status": "failed", "error": "other"})),
        (
            "usageTotals",
            json!({"status": "running", "usageTotals": totals(2)}),
        ),
    ] {
        let refused = world.put(OPERATOR, &path, &asked).await;
        assert_eq!(refused.refused("record_conflict")["field"], field);
    }
    let told = world.get(VIEWER, &path).await.ok(200);
    assert_eq!(
        (&told["revision"], &told["status"], &told["error"]),
        (&json!(2), &json!("failed"), &json!("out of memory"))
    );
}

#[tokio::test]
async fn statuses_of_executions_and_nodes_move_by_their_tables() {
    use bex_proto::execution::{ExecutionStatus, NodeStatus};
    let world = World::new().await;
    for from in ExecutionStatus::ALL {
        for to in ExecutionStatus::ALL {
            let path = execution(&ExecutionId::random(), "");
            let body = |status: &ExecutionStatus| json!({"status": status});
            world.put(OPERATOR, &path, &body(from)).await.ok(201);
            let answer = world.put(OPERATOR, &path, &body(to)).await;
            let expected = if from.is_terminal() && to.is_terminal() && from != to {
                answer.refused("record_conflict");
                from
            } else {
                answer.ok(200);
                if from.is_terminal() { from } else { to }
            };
            let told = world.get(VIEWER, &path).await.ok(200);
            assert_eq!(told["status"], expected.as_str(), "{from} {to}");
        }
    }
    let id = world.execution().await;
    for (n, from) in NodeStatus::ALL.iter().enumerate() {
        for (m, to) in NodeStatus::ALL.iter().enumerate() {
            let path = execution(&id, &format!("/nodes/n{n}-{m}"));
            let body = |status: &NodeStatus| json!({"ordinal": 10 * n + m, "status": status});
            world.put(OPERATOR, &path, &body(from)).await.ok(201);
            let answer = world.put(OPERATOR, &path, &body(to)).await;
            if from.stage() == 2 && to.stage() == 2 && from != to {
                answer.refused("record_conflict");
                continue;
            }
            let expected = if to.stage() > from.stage() { to } else { from };
            assert_eq!(answer.ok(200)["status"], expected.as_str(), "{from} {to}");
        }
    }
}

#[tokio::test]
async fn a_nodes_facts_stay_and_its_retries_only_grow() {
    let world = World::new().await;
    let id = world.execution().await;
    let path = execution(&id, "/nodes/a");
    let put = async |body: Value| world.put(OPERATOR, &path, &body).await;
    put(json!({"ordinal": 3, "retries": 2, "outputs": {"x": 1}}))
        .await
        .ok(201);
    let fewer = put(json!({"ordinal": 3, "retries": 1})).await.ok(200);
    assert_eq!(
        (&fewer["retries"], &fewer["revision"]),
        (&json!(2), &json!(1))
    );
    let more = put(json!({"ordinal": 3, "retries": 5})).await.ok(200);
    assert_eq!(
        (&more["retries"], &more["revision"]),
        (&json!(5), &json!(2))
    );
    for (field, body) in [
        ("ordinal", json!({"ordinal": 4})),
        ("outputs", json!({"ordinal": 3, "outputs": {"x": 2}})),
    ] {
        assert_eq!(put(body).await.refused("record_conflict")["field"], field);
    }
    // its execution may be over by then
    let over = json!({"status": "completed"});
    world
        .put(OPERATOR, &execution(&id, ""), &over)
        .await
        .ok(200);
    put(json!({"ordinal": 3, "error": "late"})).await.ok(200);
    assert_eq!(
        world.get(VIEWER, &execution(&id, "")).await.ok(200)["nodes"],
        1
    );
}

#[tokio::test]
async fn a_version_never_changes_and_versions_have_pages() {
    let world = World::new().await;
    let path = |version: &str| format!("/v1/model-configs/prod/versions/{version}");
    let body = r#"{"a": 1}"#;
    let first = world.put_text(OPERATOR, &path("1"), body).await.ok(201);
    assert_eq!(
        world.put_text(OPERATOR, &path("1"), body).await.ok(200),
        first
    );
    for other in [r#"{"a": 2}"#, r#"{"a":1}"#] {
        let refused = world.put_text(OPERATOR, &path("1"), other).await;
        refused.refused("version_conflict");
    }
    // the same name elsewhere is another thing
    let elsewhere = "/v1/workflows/prod/versions/1";
    world.put_text(OPERATOR, elsewhere, "{}").await.ok(201);
    for version in 2..=7 {
        world
            .put_text(OPERATOR, &path(&version.to_string()), "{}")
            .await
            .ok(201);
    }
    let (versions, pages) = world.pages("/v1/model-configs/prod/versions?limit=3").await;
    assert_eq!(
        names(&versions, "version"),
        ["7", "6", "5", "4", "3", "2", "1"]
    );
    assert_eq!(pages, 3);
    assert!(versions.iter().all(|version| version.get("body").is_none()));
    let read = world.get(VIEWER, &path("1")).await.ok(200);
    assert_eq!(read["body"], json!({"a": 1}));
    for none in [path("8"), "/v1/model-configs/none/versions".to_owned()] {
        world.get(VIEWER, &none).await.refused("not_found");
    }
}

#[tokio::test]
async fn executions_are_listed_by_workflow_status_and_time() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for n in 0..7 {
        let id = ExecutionId::random();
        let status = if n % 2 == 0 { "running" } else { "completed" };
        let body = json!({"status": status, "workflowId": format!("w{}", n % 3)});
        world
            .put(OPERATOR, &execution(&id, ""), &body)
            .await
            .ok(201);
        ids.push(id.to_string());
    }
    // of one moment: then their ids decide, and no page skips or repeats one
    world.sql(
        "UPDATE executions SET recorded_at = '2026-11-30T12:00:00Z' WHERE workflow_id <> 'w2'",
    );
    let (all, pages) = world.pages("/v1/executions?limit=2").await;
    assert_eq!(pages, 4);
    let mut listed = names(&all, "id");
    assert_eq!(listed.len(), 7);
    listed.sort();
    ids.sort();
    assert_eq!(listed, ids);
    let count = async |query: &str| {
        world
            .pages(&format!("/v1/executions?{query}"))
            .await
            .0
            .len()
    };
    assert_eq!(count("workflowId=w0").await, 3);
    assert_eq!(count("status=completed").await, 3);
    assert_eq!(count("status=completed&status=running").await, 7);
    assert_eq!(count("workflowId=w0&status=completed").await, 1);
    assert_eq!(
        count("recordedBefore=2026-11-30T12:00:00.001Z&recordedAfter=2026-11-30T11:59:59Z").await,
        5
    );
    for (bad, code) in [
        ("status=done", "invalid_request"),
        ("recordedAfter=today", "invalid_request"),
        ("limit=201", "invalid_request"),
        ("cursor=x", "invalid_cursor"),
        ("sort=id", "unknown_field"),
    ] {
        let path = format!("/v1/executions?{bad}");
        world.get(VIEWER, &path).await.refused(code);
    }
}
