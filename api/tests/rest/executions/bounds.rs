//! What is refused before anything is stored.

use bex_proto::limits;

use super::*;

#[tokio::test]
async fn every_bad_record_has_its_code_and_leaves_nothing() {
    let world = World::new().await;
    let id = world.execution().await;
    let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    let long = "x".repeat(limits::WORD_BYTES + 1);
    let run = execution(&ExecutionId::random(), "");
    let node = execution(&id, "/nodes/n");
    let version = "/v1/workflows/w/versions/1".to_owned();
    let usage = format!(r#"{{"a":"{}"}}"#, "x".repeat(limits::RECORD_USAGE_BYTES));
    let error = "x".repeat(limits::RECORD_ERROR_BYTES + 1);
    let cases: Vec<(&str, String, &str, &str)> = vec![
        (&run, "{}".into(), "invalid_request", "status"),
        (&run, "".into(), "invalid_request", "status"),
        (
            &run,
            r#"{"status":"done"}"#.into(),
            "invalid_request",
            "done",
        ),
        (
            &run,
            r#"{"status":"running""#.into(),
            "invalid_json",
            "line",
        ),
        (
            &run,
            r#"{"status":"running","org":"x"}"#.into(),
            "unknown_field",
            "org",
        ),
        (
            &run,
            r#"{"status":"running","revision":3}"#.into(),
            "unknown_field",
            "revision",
        ),
        (
            &run,
            r#"{"status":"running","workflowVersion":"1"}"#.into(),
            "invalid_request",
            "workflowId",
        ),
        (
            &run,
            r#"{"status":"running","specVersion":"1"}"#.into(),
            "invalid_request",
            "specId",
        ),
        (
            &run,
            r#"{"status":"running","modelVersion":"1"}"#.into(),
            "invalid_request",
            "modelScope",
        ),
        (
            &run,
            format!(r#"{{"status":"running","workflowId":"{long}"}}"#),
            "invalid_request",
            "255",
        ),
        (
            &run,
            r#"{"status":"running","workflowId":" "}"#.into(),
            "invalid_request",
            "blank",
        ),
        (
            &run,
            r#"{"status":"running","workflowId":"a\u0000"}"#.into(),
            "invalid_request",
            "NUL",
        ),
        (
            &run,
            r#"{"status":"running","completedAt":"2026-11-30T12:00:00Z"}"#.into(),
            "invalid_request",
            "terminal",
        ),
        (
            &run,
            r#"{"status":"running","startedAt":"1930-01-01T00:00:00Z"}"#.into(),
            "invalid_request",
            "1970",
        ),
        (
            &run,
            r#"{"status":"running","startedAt":"noon"}"#.into(),
            "invalid_request",
            "",
        ),
        (
            &run,
            r#"{"status":"running","governanceMode":"maybe"}"#.into(),
            "invalid_request",
            "maybe",
        ),
        (
            &run,
            r#"{"status":"running","usageTotals":[1]}"#.into(),
            "invalid_request",
            "object",
        ),
        (
            &run,
            r#"{"status":"running","usageTotals":{"inputTokens":1,"outputTokens":1,"totalTokens":-2,"callCount":1}}"#.into(),
            "invalid_request",
            "usageTotals must have",
        ),
        (
            &run,
            r#"{"status":"running","usageTotals":{"calls":1}}"#.into(),
            "invalid_request",
            "usageTotals must have",
        ),
        (
            &run,
            format!(r#"{{"status":"running","usageTotals":{usage}}}"#),
            "invalid_request",
            "16384",
        ),
        (
            &run,
            format!(r#"{{"status":"failed","error":"{error}"}}"#),
            "invalid_request",
            "65536",
        ),
        (
            &run,
            r#"{"status":"running","sessions":["x"]}"#.into(),
            "invalid_request",
            "sessions[0]",
        ),
        (
            &run,
            r#"{"status":"running","sessions":["ags-aaaaaaaaaaaaaaaaaaaa"]}"#.into(),
            "not_found",
            "sessions[0]",
        ),
        (
            &run,
            json!({"status": "running", "sessions": vec!["x"; 1001]}).to_string(),
            "invalid_request",
            "1000",
        ),
        (&node, "{}".into(), "invalid_request", "ordinal"),
        (&node, r#"{"ordinal":-1}"#.into(), "invalid_request", ""),
        (
            &node,
            r#"{"ordinal":2147483648}"#.into(),
            "invalid_request",
            "ordinal",
        ),
        (
            &node,
            r#"{"ordinal":1,"retries":2147483648}"#.into(),
            "invalid_request",
            "retries",
        ),
        (
            &node,
            r#"{"ordinal":1,"agentVersion":"1"}"#.into(),
            "invalid_request",
            "agentId",
        ),
        (
            &node,
            format!(r#"{{"ordinal":1,"outputs":{}}}"#, deep(65)),
            "invalid_request",
            "64 deep",
        ),
        (
            &node,
            format!(r#"{{"ordinal":1,"outputs":{}}}"#, deep(100_000)),
            "invalid_request",
            "64 deep",
        ),
        (
            &node,
            r#"{"ordinal":1,"output":1}"#.into(),
            "unknown_field",
            "output",
        ),
        (&version, "[]".into(), "invalid_request", "object"),
        (&version, "{".into(), "invalid_json", "line"),
        (&version, "".into(), "invalid_json", ""),
        (
            &version,
            format!(r#"{{"a":{}}}"#, deep(64)),
            "invalid_request",
            "64 deep",
        ),
        (
            &version,
            format!(r#"{{"a":"{}"}}"#, "x".repeat(limits::API_BODY)),
            "body_too_large",
            "",
        ),
    ];
    for (path, body, code, says) in cases {
        let answer = world.put_text(OPERATOR, path, &body).await;
        let body = &body[..body.len().min(100)];
        let problem = answer.refused(code);
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(says), "{path} {body}: {detail}");
    }
    let long = format!("/v1/workflows/{long}/versions/1");
    world
        .put_text(OPERATOR, &long, "{}")
        .await
        .refused("invalid_request");
    world.get(VIEWER, &long).await.refused("not_found");
    assert_eq!(
        world.sql("SELECT (SELECT count(*) FROM executions), (SELECT count(*) FROM execution_nodes), (SELECT count(*) FROM config_versions)"),
        "1|0|0"
    );
}

#[tokio::test]
async fn every_bad_batch_has_its_code_and_leaves_nothing() {
    let world = World::new().await;
    let with = |field: &str, value: Value| {
        let mut one = finding("a");
        one[field] = value;
        json!({"findings": [one]})
    };
    let used = |field: &str, value: Value| {
        let mut one = entry("a");
        one[field] = value;
        json!({"entries": [one]})
    };
    let cost = |amount: &str, currency: &str| {
        used("cost", json!({"amount": amount, "currency": currency}))
    };
    let many = |n: usize| -> Vec<Value> { (0..n).map(|n| finding(&n.to_string())).collect() };
    let cases = [
        ("/v1/findings", json!({}), "invalid_request"),
        ("/v1/findings", json!({"findings": []}), "invalid_request"),
        (
            "/v1/findings",
            json!({"findings": many(1001)}),
            "invalid_request",
        ),
        ("/v1/findings", with("severity", json!(1)), "unknown_field"),
        (
            "/v1/findings",
            with("findingId", json!("")),
            "invalid_request",
        ),
        (
            "/v1/findings",
            with("runId", json!("run-1")),
            "invalid_request",
        ),
        (
            "/v1/findings",
            with("executionId", json!("x")),
            "invalid_request",
        ),
        (
            "/v1/findings",
            with("nodeId", json!("n")),
            "invalid_request",
        ),
        (
            "/v1/findings",
            with("decision", json!("x".repeat(256))),
            "invalid_request",
        ),
        ("/v1/findings", with("at", json!("then")), "invalid_request"),
        (
            "/v1/findings",
            with("executionId", json!(ExecutionId::random())),
            "not_found",
        ),
        ("/v1/usage", json!({"entries": []}), "invalid_request"),
        ("/v1/usage", used("tokens", json!(1)), "unknown_field"),
        (
            "/v1/usage",
            used("inputTokens", json!(-1)),
            "invalid_request",
        ),
        (
            "/v1/usage",
            used("inputTokens", json!(1u64 << 53)),
            "invalid_request",
        ),
        ("/v1/usage", used("calls", json!(1.5)), "invalid_request"),
        (
            "/v1/usage",
            used("sessionId", json!("x")),
            "invalid_request",
        ),
        ("/v1/usage", cost("1e3", "EUR"), "invalid_request"),
        ("/v1/usage", cost("-1", "EUR"), "invalid_request"),
        ("/v1/usage", cost(".5", "EUR"), "invalid_request"),
        ("/v1/usage", cost("NaN", "EUR"), "invalid_request"),
        ("/v1/usage", cost("1234567890123", "EUR"), "invalid_request"),
        ("/v1/usage", cost("1", "euro"), "invalid_request"),
        ("/v1/usage", cost("1", "€"), "invalid_request"),
    ];
    for (path, body, code) in cases {
        let answer = world.post(OPERATOR, path, &body).await;
        assert_eq!(answer.json()["code"], code, "{path} {body:.200}");
    }
    // as many as may be, and the largest numbers
    world
        .post(OPERATOR, "/v1/findings", &json!({"findings": many(1000)}))
        .await
        .ok(200);
    world
        .post(
            OPERATOR,
            "/v1/usage",
            &cost("999999999999.999999999999", "USD"),
        )
        .await
        .ok(200);
    assert_eq!(
        world.sql("SELECT (SELECT count(*) FROM findings), (SELECT sum(cost) FROM usage_ledger)"),
        "1000|999999999999.999999999999"
    );
}

#[tokio::test]
async fn an_execution_has_so_many_nodes_and_sessions_and_no_more() {
    let world = World::new().await;
    let id = world.execution().await;
    let put = async |node: &str, retries: u32| {
        let path = execution(&id, &format!("/nodes/{node}"));
        let body = json!({"ordinal": 1, "retries": retries});
        world.put(OPERATOR, &path, &body).await
    };
    put("a", 0).await.ok(201);
    world.sql(&format!(
        "UPDATE executions SET nodes = {}",
        limits::EXECUTION_NODES
    ));
    let full = put("b", 0).await.refused("execution_full");
    assert_eq!(full["limit"], limits::EXECUTION_NODES);
    put("a", 1).await.ok(200);
    assert_eq!(world.sql("SELECT count(*) FROM execution_nodes"), "1");

    let session = world.create().await;
    world.sql(&format!(
        "INSERT INTO execution_sessions SELECT 'demo', '{id}', 'ags-' || lpad(n::text, 20, 'a'), 'agent'
           FROM generate_series(1, {}) n",
        limits::EXECUTION_SESSIONS
    ));
    let named = json!({"status": "running", "sessions": [session]});
    let refused = world.put(OPERATOR, &execution(&id, ""), &named).await;
    refused.refused("execution_full");
    assert_eq!(
        world.sql("SELECT count(*) FROM execution_sessions"),
        limits::EXECUTION_SESSIONS.to_string()
    );
}
