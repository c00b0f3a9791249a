//! Retention, holds and the end of a workspace.

use bex_api::retention::{Keeping, Swept, TICK, sweep};

use super::*;

fn keeping(default_days: u32) -> Keeping {
    Keeping {
        default_days,
        log_days: 30,
        tick: TICK,
    }
}

/// An execution with a node, a finding and usage of its own; and a finding, usage and versions that are of none.
async fn filled(world: &World, session: &bex_proto::SessionId) -> ExecutionId {
    let id = ExecutionId::random();
    let body = json!({"status": "completed", "workflowId": "w", "workflowVersion": "1", "sessions": [session]});
    world
        .put(OPERATOR, &execution(&id, ""), &body)
        .await
        .ok(201);
    let node = json!({"ordinal": 0, "agentId": "a", "agentVersion": "1"});
    world
        .put(OPERATOR, &execution(&id, "/nodes/n"), &node)
        .await
        .ok(201);
    let mut about = finding("of");
    about["executionId"] = json!(id);
    let mut used = entry("of");
    used["executionId"] = json!(id);
    world
        .post(
            OPERATOR,
            "/v1/findings",
            &json!({"findings": [about, finding("free")]}),
        )
        .await
        .ok(200);
    world
        .post(
            OPERATOR,
            "/v1/usage",
            &json!({"entries": [used, entry("free")]}),
        )
        .await
        .ok(200);
    for path in [
        "/v1/workflows/w/versions/1",
        "/v1/workflows/w/versions/2",
        "/v1/agent-configs/a/versions/1",
    ] {
        world.put_text(OPERATOR, path, "{}").await.ok(201);
    }
    id
}

fn age(world: &World, days: u32) {
    world.sql(&format!(
        "UPDATE executions SET updated_at = now() - interval '{days} days';
         UPDATE findings SET recorded_at = now() - interval '{days} days';
         UPDATE usage_ledger SET recorded_at = now() - interval '{days} days';
         UPDATE config_versions SET seen_at = now() - interval '{days} days'"
    ));
}

fn counts(world: &World) -> String {
    world.sql(
        "SELECT (SELECT count(*) FROM executions), (SELECT count(*) FROM execution_nodes), (SELECT count(*) FROM execution_sessions),
                (SELECT count(*) FROM findings), (SELECT count(*) FROM usage_ledger), (SELECT count(*) FROM config_versions)",
    )
}

#[tokio::test]
async fn what_is_old_goes_and_what_a_hold_keeps_stays() {
    let world = World::new().await;
    let session = world.create().await;
    let id = filled(&world, &session).await;
    let all = "1|1|1|2|2|3";
    assert_eq!(counts(&world), all);
    for days in [0, 7] {
        let swept = sweep(&world.db, keeping(days)).await.unwrap();
        assert_eq!(swept, Swept::default(), "nothing is old");
    }
    age(&world, 8);
    // what is of a held session stays with its versions; the rest is of none
    let hold = path(&session, "/legal-hold");
    world.call(ADMIN, "POST", &hold).await.ok(200);
    world
        .call(ADMIN, "DELETE", &execution(&id, ""))
        .await
        .refused("legal_hold");
    let swept = sweep(&world.db, keeping(7)).await.unwrap();
    assert_eq!((swept.executions, swept.records), (0, 3));
    assert_eq!(counts(&world), "1|1|1|1|1|2");
    // usage or a finding by a run of a held session keeps as well
    let run = world.sql(&format!(
        "SELECT run_id FROM turns WHERE session_id = '{session}'"
    ));
    let mut by_run = finding("by-run");
    by_run["runId"] = json!(run);
    let mut of_session = entry("of-session");
    of_session["sessionId"] = json!(session);
    world
        .post(OPERATOR, "/v1/findings", &json!({"findings": [by_run]}))
        .await
        .ok(200);
    world
        .post(OPERATOR, "/v1/usage", &json!({"entries": [of_session]}))
        .await
        .ok(200);
    age(&world, 8);
    assert_eq!(
        sweep(&world.db, keeping(7)).await.unwrap(),
        Swept::default()
    );
    assert_eq!(counts(&world), "1|1|1|2|2|2");
    world.call(ADMIN, "DELETE", &hold).await.ok(200);
    // one young finding keeps its execution
    world.sql("UPDATE findings SET recorded_at = now() WHERE finding_id = 'of'");
    let swept = sweep(&world.db, keeping(7)).await.unwrap();
    assert_eq!((swept.executions, swept.records), (0, 2));
    age(&world, 8);
    let swept = sweep(&world.db, keeping(7)).await.unwrap();
    assert_eq!((swept.executions, swept.records), (1, 2));
    assert_eq!(counts(&world), "0|0|0|0|0|0");
    assert_eq!(
        world.sql("SELECT detail FROM audit_events WHERE action = 'execution.expire'"),
        format!("{id}, nodes 1, findings 1, usage entries 1")
    );
}

#[tokio::test]
async fn a_version_that_is_recorded_again_is_not_forgotten() {
    let world = World::new().await;
    let version = "/v1/workflows/w/versions/1";
    world.put_text(OPERATOR, version, "{}").await.ok(201);
    age(&world, 8);
    world.put_text(OPERATOR, version, "{}").await.ok(200);
    assert_eq!(
        sweep(&world.db, keeping(7)).await.unwrap(),
        Swept::default()
    );
    world.get(VIEWER, version).await.ok(200);
}

#[tokio::test]
async fn a_workspace_goes_with_its_records_and_takes_no_more() {
    let world = World::new().await;
    let session = world.create().await;
    let id = filled(&world, &session).await;
    // of another workspace
    let theirs = json!({"status": "running"});
    world
        .put(STRANGER, &execution(&id, ""), &theirs)
        .await
        .ok(201);
    world.sql("DELETE FROM sessions");
    world
        .call(ADMIN, "DELETE", "/v1/workspaces/demo")
        .await
        .ok(202);
    for (method, path, body) in [
        ("PUT", execution(&ExecutionId::random(), ""), theirs.clone()),
        ("PUT", execution(&id, "/nodes/late"), json!({"ordinal": 9})),
        ("PUT", "/v1/workflows/w/versions/9".to_owned(), json!({})),
        (
            "POST",
            "/v1/findings".to_owned(),
            json!({"findings": [finding("late")]}),
        ),
        (
            "POST",
            "/v1/usage".to_owned(),
            json!({"entries": [entry("late")]}),
        ),
    ] {
        let request = world.request(OPERATOR, method, &path);
        let body = Full::new(Bytes::from(body.to_string()));
        let answer = world.send(request.body(body).unwrap()).await;
        answer.refused("not_found");
    }
    let swept = sweep(&world.db, keeping(0)).await.unwrap();
    assert_eq!((swept.executions, swept.records), (1, 5));
    assert_eq!(counts(&world), "1|0|0|0|0|0");
    assert_eq!(
        world.sql("SELECT workspace_id FROM executions"),
        "other",
        "nothing of another's"
    );
    assert_eq!(
        world.sql("SELECT count(*) FROM audit_events WHERE action = 'workspace.deleted'"),
        "1"
    );
}
