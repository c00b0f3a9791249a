//! What packages say.

use bex_proto::TurnNo;
use serde_json::json;

use super::executions::{Execution, finding, remote_session, usage};
use super::*;

fn ids(list: &Value, field: &str) -> Vec<String> {
    let items = list.as_array().unwrap();
    items
        .iter()
        .map(|i| i[field].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn an_execution_is_told_by_the_versions_that_ran() {
    let world = world(Place::here()).await;
    let execution = Execution::record(&world, "demo");
    let session = world.spoken(PARTS).await;
    execution.names(&world, session.as_str());
    let run = world.sql("SELECT run_id FROM turns");
    execution.finding(&world, "f-run", None, None, Some(&run));
    execution.usage(&world, "u-session", None, Some(session.as_str()), None);
    execution.usage(&world, "u-run", None, None, Some(&run));
    let package = world.package(&by("execution", &execution.id)).await;
    let s = package.sections();
    for (section, name) in [
        ("workflow", "wf-1"),
        ("execSpec", "spec-1"),
        ("modelConfig", "scope-1"),
        ("agentConfig", "agent-1"),
    ] {
        assert_eq!(
            (&s[section]["id"], &s[section]["version"]),
            (&json!(name), &json!("1"))
        );
        assert_eq!(
            s[section]["body"]["name"],
            format!("{name} 1 of demo"),
            "never today's"
        );
    }
    let text = String::from_utf8(package.bytes.clone()).unwrap();
    assert!(
        text.contains("12345678901234567890123"),
        "numbers keep their digits"
    );
    assert_eq!(ids(&s["agentConfigs"], "id"), ["agent-1", "agent-2"]);
    assert_eq!(s["governanceMode"], "shadow");
    assert_eq!(
        (&s["execution"]["status"], &s["execution"]["error"]),
        (&json!("failed"), &json!("node two failed"))
    );
    assert_eq!(ids(&s["nodes"], "nodeId"), ["z-first", "a-second"]);
    let (first, second) = (&s["nodes"][0], &s["nodes"][1]);
    assert_eq!(
        (
            &first["inputs"],
            &first["outputs"],
            &first["usage"]["callCount"]
        ),
        (&Value::Null, &json!("done"), &json!(1))
    );
    assert_eq!(
        (
            &second["inputs"]["from"],
            &second["outputs"],
            &second["error"]
        ),
        (&json!("first"), &Value::Null, &json!("it broke"))
    );
    assert_eq!(
        (&second["retries"], &second["agentId"], &second["status"]),
        (&json!(2), &json!("agent-2"), &json!("failed"))
    );
    assert_eq!(
        ids(&s["findings"], "findingId"),
        ["f-execution", "f-workflow", "f-run"]
    );
    assert_eq!(s["findings"][0]["decision"], "allow");
    assert_eq!(
        s["usageTotals"],
        json!({"inputTokens": 10, "outputTokens": 20, "totalTokens": 30, "callCount": 2})
    );
    assert_eq!(ids(&s["usage"], "entryId"), ["u-1", "u-run", "u-session"]);
    // as the ledger's own route says it
    assert_eq!(s["usage"][0]["cost"], "0.0042");
    assert_eq!(ids(&s["sessions"], "sessionId"), [session.to_string()]);
    assert_eq!(s["sessions"][0]["complete"], true);
    assert_eq!(
        (&s["turns"][0]["verdict"], &s["turns"][0]["runId"]),
        (&json!("complete"), &json!(run))
    );
    assert_eq!(s["toolResults"]["partial"], false);
    let result = &s["toolResults"]["results"][0];
    assert_eq!(
        (
            &result["toolName"],
            &result["input"]["path"],
            &result["output"]["lines"]
        ),
        (&json!("read"), &json!("a.txt"), &json!(2))
    );
    assert_eq!(
        (&result["runId"], &result["answered"]),
        (&json!(run), &json!(true))
    );
    assert_eq!(s.get("messages"), None);
    assert_eq!(s["notes"], json!([]));
}

#[tokio::test]
async fn what_an_execution_lacks_is_null_or_empty_and_said() {
    let world = world(Place::here()).await;
    let id = bex_proto::ids::random_id("exe");
    world.sql(&format!(
        "INSERT INTO executions (workspace_id, id, workflow_id, spec_id, spec_version, status, recorded_by)
         VALUES ('demo', '{id}', 'wf-1', 'spec-9', '7', 'running', 't')"
    ));
    let gone = "ags-aaaaaaaaaaaaaaaaaaaa";
    world.sql(&format!("INSERT INTO execution_sessions (workspace_id, execution_id, session_id, session_kind) VALUES ('demo', '{id}', '{gone}', 'agent')"));
    // another workspace has what is missing here
    Execution::record(&world, "other");
    let package = world.package(&by("execution", &id)).await;
    let s = package.sections();
    for section in [
        "agentConfig",
        "workflow",
        "execSpec",
        "modelConfig",
        "governanceMode",
        "usageTotals",
    ] {
        assert_eq!(s[section], Value::Null, "{section}");
    }
    for section in ["agentConfigs", "nodes", "findings", "usage", "turns"] {
        assert_eq!(s[section], json!([]), "{section}");
    }
    assert_eq!(ids(&s["notes"], "section"), ["workflow", "execSpec"]);
    assert_eq!(
        s["sessions"],
        json!([{"sessionId": gone, "kind": "agent", "complete": false, "phase": null}])
    );
    assert_eq!(s["toolResults"]["partial"], true);
    assert!(
        s["toolResults"]["provenance"]
            .as_str()
            .unwrap()
            .contains(gone)
    );
}

/// Recorded before their form was checked.
#[tokio::test]
async fn totals_of_another_form_are_left_out_and_said() {
    let world = world(Place::here()).await;
    let execution = Execution::record(&world, "demo");
    world.sql(r#"UPDATE executions SET usage_totals = '{"calls":1}'"#);
    let package = world.package(&by("execution", &execution.id)).await;
    let s = package.sections();
    assert_eq!(s["usageTotals"], Value::Null);
    assert_eq!(ids(&s["notes"], "section"), ["usage"]);
}

#[tokio::test]
async fn a_conversation_has_its_messages_in_their_order() {
    let world = world(Place::here()).await;
    let session = world.spoken(PARTS).await;
    let run = world.sql("SELECT run_id FROM turns");
    finding(&world, "demo", "f-1", None, None, Some(&run));
    usage(&world, "demo", "u-1", None, Some(session.as_str()), None);
    usage(&world, "demo", "u-2", None, None, Some(&run));
    let package = world.package(&by("conversation", &session)).await;
    let s = package.sections();
    let messages = s["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 2);
    assert_eq!(
        (&messages[0]["role"], &messages[0]["content"]),
        (&json!("user"), &json!("do it"))
    );
    assert_eq!(
        (&messages[1]["role"], &messages[1]["content"]),
        (&json!("assistant"), &json!("I look. Two lines."))
    );
    assert!(messages.iter().all(|m| m["runId"] == run), "{messages:?}");
    // where a tool was called is said; what it was asked stands by itself
    assert_eq!(
        messages[1]["contentBlocks"][1],
        json!({"type": "tool_use", "id": "call-1", "name": "read"})
    );
    assert_eq!(
        s["toolResults"]["results"][0]["output"],
        json!({"lines": 2})
    );
    assert_eq!(s["toolResults"]["partial"], false);
    assert_eq!(ids(&s["findings"], "findingId"), ["f-1"]);
    assert_eq!(
        s["usageTotals"],
        json!({"inputTokens": 6, "outputTokens": 8, "totalTokens": 14, "callCount": 2})
    );
    for section in [
        "agentConfig",
        "workflow",
        "execSpec",
        "modelConfig",
        "governanceMode",
        "execution",
    ] {
        assert_eq!(s[section], Value::Null, "{section}");
    }
    assert_eq!((&s["nodes"], &s["notes"]), (&json!([]), &json!([])));
}

#[tokio::test]
async fn a_transcript_that_is_not_whole_says_so() {
    let world = world(Place::here()).await;
    let session = world.running().await;
    world.speak(&session, &PARTS[..5]).await;
    let package = world.package(&by("conversation", &session)).await;
    let s = package.sections();
    assert_eq!(
        (&s["toolResults"]["partial"], &s["sessions"][0]["complete"]),
        (&json!(true), &json!(false))
    );
    let open = format!("turn {session}.1 is open (still open)");
    assert!(
        s["toolResults"]["provenance"]
            .as_str()
            .unwrap()
            .contains(&open)
    );
    let result = &s["toolResults"]["results"][0];
    assert_eq!(
        (&result["answered"], &result["output"]),
        (&json!(false), &Value::Null)
    );
    world.sql(&format!("UPDATE turns SET verdict = 'truncated', reason = 'sandbox_lost', settled_at = now() WHERE session_id = '{session}'"));
    let later = world.package(&by("conversation", &session)).await;
    assert!(
        later.sections()["toolResults"]["provenance"]
            .as_str()
            .unwrap()
            .contains("truncated (sandbox_lost)")
    );
    assert_eq!(later.sections()["turns"][0]["reason"], "sandbox_lost");
    assert_ne!(
        later.answer["packageId"], package.answer["packageId"],
        "it says something else"
    );
    assert_eq!(world.stored().len(), 2);
}

#[tokio::test]
async fn findings_are_joined_as_far_as_there_are_runs() {
    let world = world(Place::here()).await;
    let session = world.spoken(PARTS).await;
    let run = world.sql("SELECT run_id FROM turns");
    let path = by("conversation", &session);
    let none = world.package(&path).await;
    assert_eq!(
        none.sections()["findings"],
        json!([]),
        "looked for, and there is none"
    );
    finding(&world, "demo", "f-1", None, None, Some(&run));
    // a turn from before runs were given
    world.sql(&format!(
        "INSERT INTO turns (session_id, turn, prompt, verdict, settled_at, ended_by) VALUES ('{session}', 2, 'more', 'complete', now(), 'agent')"
    ));
    let mixed = world.package(&path).await;
    assert_eq!(ids(&mixed.sections()["findings"], "findingId"), ["f-1"]);
    assert_eq!(ids(&mixed.sections()["notes"], "section"), ["findings"]);
    world.sql(&format!(
        "UPDATE turns SET run_id = NULL WHERE session_id = '{session}'"
    ));
    let old = world.package(&path).await;
    let findings = &old.sections()["findings"];
    assert_eq!(
        (&findings["partial"], &findings["results"]),
        (&json!(true), &json!([]))
    );
    assert!(
        findings["provenance"]
            .as_str()
            .unwrap()
            .contains("no turn has one")
    );
}

#[tokio::test]
async fn a_run_is_one_turn_of_its_session() {
    let world = world(Place::here()).await;
    let session = world.spoken(PARTS).await;
    let run = world.sql("SELECT run_id FROM turns");
    world.sql(&format!(
        "INSERT INTO turns (session_id, turn, prompt, verdict, settled_at, ended_by, run_id)
         VALUES ('{session}', 2, 'another', 'complete', now(), 'agent', 'run-bbbbbbbbbbbbbbbbbbbb')"
    ));
    finding(&world, "demo", "f-1", None, None, Some(&run));
    finding(
        &world,
        "demo",
        "f-2",
        None,
        None,
        Some("run-bbbbbbbbbbbbbbbbbbbb"),
    );
    usage(
        &world,
        "demo",
        "u-1",
        None,
        Some(session.as_str()),
        Some(&run),
    );
    usage(&world, "demo", "u-2", None, Some(session.as_str()), None);
    let package = world.package(&by("run", &run)).await;
    let s = package.sections();
    assert_eq!(ids(&s["messages"], "role"), ["user", "assistant"]);
    assert_eq!(ids(&s["findings"], "findingId"), ["f-1"]);
    assert_eq!(ids(&s["usage"], "entryId"), ["u-1"]);
    assert_eq!(ids(&s["turns"], "turnId"), [format!("{session}.1")]);
    assert_eq!((&s["nodes"], &s["workflow"]), (&json!([]), &Value::Null));
    let other = world.package(&by("run", "run-bbbbbbbbbbbbbbbbbbbb")).await;
    assert_eq!(ids(&other.sections()["messages"], "content"), ["another"]);
}

#[tokio::test]
async fn a_remote_session_is_a_conversation_too() {
    let world = world(Place::here()).await;
    let session = remote_session(&world, "demo", 700, "hello");
    let package = world.package(&by("conversation", &session)).await;
    let s = package.sections();
    let messages = s["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 1400);
    let places: Vec<u64> = messages
        .iter()
        .map(|m| m["position"].as_u64().unwrap())
        .collect();
    assert_eq!(places, (0..1400).collect::<Vec<_>>());
    assert_eq!(s["toolResults"]["results"].as_array().unwrap().len(), 700);
    assert_eq!(
        (&s["toolResults"]["partial"], &s["sessions"][0]["kind"]),
        (&json!(false), &json!("remote"))
    );
    assert_eq!(
        messages[1]["contentBlocks"][1],
        json!({"type": "tool_use", "id": "t", "name": "run"})
    );
    // no entry of the ledger: what its machine counted, and that is said
    assert_eq!(
        s["usageTotals"],
        json!({"inputTokens": 11, "outputTokens": 22, "totalTokens": 33, "callCount": 3})
    );
    assert_eq!(ids(&s["notes"], "section"), ["usage"]);
    let run = s["turns"][3]["runId"].as_str().unwrap();
    let one = world.package(&by("run", run)).await;
    assert_eq!(ids(&one.sections()["messages"], "id"), ["m-7"]);
    assert_eq!(
        one.sections()["toolResults"]["results"][0]["input"],
        json!({"n": 3})
    );
    world.sql(&format!("UPDATE remote_turns SET gaps = '[{{\"from\":1,\"to\":2}}]' WHERE session_id = '{session}' AND turn_no = 5"));
    let gap = world.package(&by("conversation", &session)).await;
    assert_eq!(gap.sections()["toolResults"]["partial"], true);
    assert!(
        gap.sections()["toolResults"]["provenance"]
            .as_str()
            .unwrap()
            .contains("turn turn-5")
    );
}

#[tokio::test]
async fn where_nothing_was_said_there_is_nothing_to_hand_over() {
    let world = world(Place::here()).await;
    let session = remote_session(&world, "demo", 0, "");
    let answer = world.get(VIEWER, &by("conversation", &session)).await;
    answer.refused("not_found");
    world.nothing_stored();
}

#[tokio::test]
async fn the_same_again_is_the_same_object() {
    let world = world(Place::here()).await;
    let session = world.spoken(PARTS).await;
    let path = by("conversation", &session);
    let first = world.package(&path).await;
    let dated = "UPDATE packages SET generated_at = '2026-01-02T03:04:05.678Z', renewed_at = now() - interval '6 days'";
    world.sql(dated);
    let again = world.package(&path).await;
    assert_eq!(again.answer["packageId"], first.answer["packageId"]);
    assert_eq!(
        again.envelope["generatedAt"], "2026-01-02T03:04:05.678Z",
        "when the first was made"
    );
    let third = world.package(&path).await;
    assert_eq!(
        (third.bytes, &third.answer["sha256"]),
        (again.bytes, &again.answer["sha256"])
    );
    assert_eq!(world.stored().len(), 1);
    assert_eq!(
        world
            .sql("SELECT count(*), bool_and(renewed_at > now() - interval '1 hour') FROM packages"),
        "1|t"
    );
    // four at once
    let asks = (0..2).map(|_| world.get(EVERYWHERE, &path));
    let sums: Vec<_> = futures::future::join_all(asks)
        .await
        .into_iter()
        .map(|a| a.ok(200)["sha256"].clone())
        .collect();
    assert!(sums.iter().all(|sum| *sum == again.answer["sha256"]));
    assert_eq!(world.stored().len(), 1);
}

/// A snapshot: what is written while a package is made is not in it, and half of a change never is.
#[tokio::test]
async fn a_snapshot_is_of_one_moment() {
    let world = world(Place::here()).await;
    let session = world.spoken(PARTS).await;
    let snapshot = world.db.snapshot().await.unwrap();
    assert_eq!(snapshot.turns(&session, TurnNo(1)).await.unwrap().len(), 1);
    world.sql(&format!(
        "INSERT INTO turns (session_id, turn, prompt, verdict, settled_at) VALUES ('{session}', 2, 'more', 'complete', now())"
    ));
    world.sql(&format!(
        "DELETE FROM transcript_parts WHERE session_id = '{session}'"
    ));
    assert_eq!(snapshot.turns(&session, TurnNo(1)).await.unwrap().len(), 1);
    assert_eq!(
        snapshot
            .parts(&session, TurnNo(1), None)
            .await
            .unwrap()
            .len(),
        PARTS.len()
    );
    snapshot.end().await.unwrap();
    let after = world.db.snapshot().await.unwrap();
    assert_eq!(after.turns(&session, TurnNo(1)).await.unwrap().len(), 2);
    assert!(
        after
            .parts(&session, TurnNo(1), None)
            .await
            .unwrap()
            .is_empty()
    );
}
