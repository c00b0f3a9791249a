//! Create, list, get.

use std::collections::BTreeSet;
use std::sync::Arc;

use bex_store::settle::SandboxAfter;
use serde_json::{Value, json};

use crate::support::*;

const SESSIONS: &str = "/v1/agent-sessions";

#[tokio::test]
async fn a_session_is_created_with_its_turn_and_shown_as_asked() {
    let world = World::new().await;
    let body = json!({
        "workspaceId": "demo", "kind": "autonomous", "workflowId": "wf-1", "title": "A title", "repo": "https://git/x",
        "branch": "b", "prompt": "secret plan",
        "agent": {"profile": "command", "model": "m", "args": ["true"], "env": [{"name": "TOKEN", "secretRef": "git/token"}]},
    });
    let answer = world.post(OPERATOR, SESSIONS, &body).await;
    let location = answer.header("location").to_owned();
    let created = answer.ok(201);
    assert_eq!(
        location,
        format!("{SESSIONS}/{}", created["id"].as_str().unwrap())
    );
    let shown = world.get(VIEWER, &location).await.ok(200);
    assert_eq!(shown, created);
    for field in [
        "workspaceId",
        "kind",
        "workflowId",
        "title",
        "repo",
        "branch",
        "agent",
    ] {
        assert_eq!(shown[field], body[field], "{field}");
    }
    assert_eq!(
        (&shown["phase"], &shown["createdBy"]),
        (&json!("creating"), &json!("svc:operator"))
    );
    assert_eq!(
        shown["counters"],
        json!({"turns": 1, "parts": 0, "bytes": 0, "promptBytes": 11})
    );
    assert_eq!(shown["turns"][0]["verdict"], "open");
    assert!(
        !shown.to_string().contains("secret plan"),
        "no prompts here"
    );
    assert_eq!(
        world.sql("SELECT session_id || turn FROM dispatches"),
        format!("{}1", shown["id"].as_str().unwrap())
    );
    assert_eq!(
        world.sql("SELECT subject, action FROM audit_events"),
        "svc:operator|session.create"
    );
}

#[tokio::test]
async fn a_repeated_key_is_the_same_request() {
    let world = Arc::new(World::new().await);
    let once = async |world: Arc<World>| {
        world
            .post_keyed(OPERATOR, SESSIONS, "k-1", &create_body())
            .await
            .ok(201)
    };
    let (a, b) = tokio::join!(
        tokio::spawn(once(Arc::clone(&world))),
        tokio::spawn(once(Arc::clone(&world)))
    );
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!(a["id"], b["id"]);
    assert_eq!(once(Arc::clone(&world)).await["id"], a["id"]);
    let mut other = create_body();
    other["prompt"] = json!("something else");
    world
        .post_keyed(OPERATOR, SESSIONS, "k-1", &other)
        .await
        .refused("idempotency_conflict");
    // a key belongs to the subject that chose it
    let theirs = world
        .post_keyed(ADMIN, SESSIONS, "k-1", &other)
        .await
        .ok(201);
    assert_ne!(theirs["id"], a["id"]);
    assert_eq!(world.sql("SELECT count(*) FROM sessions"), "2");
    assert_eq!(world.sql("SELECT count(*) FROM audit_events"), "2");
    for bad in [String::new(), "x".repeat(256)] {
        world
            .post_keyed(OPERATOR, SESSIONS, &bad, &create_body())
            .await
            .refused("invalid_request");
    }
}

#[tokio::test]
async fn a_workspace_has_a_live_limit() {
    let world = World::with_live_limit(2).await;
    let first = world.running().await;
    world.create().await;
    let problem = world
        .post_keyed(OPERATOR, SESSIONS, "k", &create_body())
        .await
        .refused("live_limit");
    assert_eq!(
        (&problem["live"], &problem["limit"], &problem["retrySafe"]),
        (&json!(2), &json!(2), &json!(true))
    );
    world
        .settle(
            &first,
            bex_proto::TurnNo(1),
            bex_proto::Generation(1),
            SandboxAfter::Stopping,
        )
        .await;
    // the refused request's key was not used up
    world
        .post_keyed(OPERATOR, SESSIONS, "k", &create_body())
        .await
        .ok(201);
}

fn ids(page: &Value) -> Vec<String> {
    page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn pages_are_stable_while_sessions_are_created() {
    let world = World::new().await;
    let mut before = Vec::new();
    for _ in 0..7 {
        before.push(world.create().await.to_string());
    }
    // equal times must not lose or repeat a row
    world.sql("UPDATE sessions SET created_at = '2026-01-01T00:00:00.123456Z'");
    let (mut seen, mut query, mut pages) = (Vec::new(), "?limit=3".to_owned(), 0);
    loop {
        let page = world
            .get(VIEWER, &format!("{SESSIONS}{query}"))
            .await
            .ok(200);
        seen.extend(ids(&page));
        pages += 1;
        world.create().await;
        match page["nextCursor"].as_str() {
            Some(cursor) => query = format!("?limit=3&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!((pages, seen.len()), (3, 7));
    assert_eq!(
        seen.iter().collect::<BTreeSet<_>>(),
        before.iter().collect::<BTreeSet<_>>()
    );
    let newest = world
        .get(VIEWER, &format!("{SESSIONS}?limit=3"))
        .await
        .ok(200);
    assert!(
        ids(&newest).iter().all(|id| !before.contains(id)),
        "newest first"
    );
    assert!(newest["items"][0].get("turns").is_none());
}

#[tokio::test]
async fn filters_choose() {
    let world = World::new().await;
    let (done, archived, live) = (
        world.finished(SandboxAfter::Stopping).await,
        world.create().await,
        world.create().await,
    );
    world
        .post(OPERATOR, &path(&archived, "/archive"), &Value::Null)
        .await
        .ok(200);
    world.sql(&format!(
        "UPDATE sessions SET repo = 'r+1', created_at = '2026-01-02T00:00:00Z' WHERE id = '{done}'"
    ));
    let list = async |query: &str| {
        let page = world
            .get(VIEWER, &format!("{SESSIONS}?workspaceId=demo&{query}"))
            .await
            .ok(200);
        ids(&page).into_iter().collect::<BTreeSet<_>>()
    };
    let set = |ids: &[&bex_proto::SessionId]| {
        ids.iter().map(ToString::to_string).collect::<BTreeSet<_>>()
    };
    assert_eq!(list("").await, set(&[&done, &live]));
    assert_eq!(list("archived=true").await, set(&[&archived]));
    assert_eq!(list("archived=all").await, set(&[&done, &archived, &live]));
    assert_eq!(list("phase=completed&phase=failed").await, set(&[&done]));
    assert_eq!(list("repo=r%2B1").await, set(&[&done]));
    assert_eq!(
        list("createdBefore=2026-01-03T00:00:00Z").await,
        set(&[&done])
    );
    assert_eq!(
        list("createdAfter=2026-01-03T00:00:00Z").await,
        set(&[&live])
    );
}

#[tokio::test]
async fn words_are_looked_for_in_titles_and_prompts() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for (title, prompt) in crate::words::SPOKEN {
        let mut body = create_body();
        body["title"] = json!(title);
        body["prompt"] = json!(prompt);
        let created = world.post(OPERATOR, SESSIONS, &body).await.ok(201);
        ids.push(created["id"].as_str().unwrap().to_owned());
    }
    world.words_are_found(SESSIONS, &ids).await;
}

/// Words that stand nowhere cost no more than a bounded scan, which goes on behind its cursor.
#[tokio::test]
async fn a_search_ends_and_goes_on() {
    let world = World::new().await;
    let mut body = create_body();
    body["title"] = json!("needle");
    let oldest = world.post(OPERATOR, SESSIONS, &body).await.ok(201);
    world.sql(
        "INSERT INTO sessions (id, workspace_id, kind, title, agent, created_by, phase, turns, prompt_bytes, created_at)
         SELECT 'ags-' || lpad(translate(n::text, '0189', 'abcd'), 20, 'z'), 'demo', 'interactive', 'hay', '{\"profile\":\"p\"}', 'x', 'completed', 0, 0,
                now() + n * interval '1 second'
           FROM generate_series(1, 2500) n",
    );
    world.sql(
        "INSERT INTO transcript_heads (session_id, byte_limit, part_limit) SELECT id, 1, 1 FROM sessions s
          WHERE NOT EXISTS (SELECT 1 FROM transcript_heads h WHERE h.session_id = s.id)",
    );
    let first = world
        .get(VIEWER, &format!("{SESSIONS}?q=needle"))
        .await
        .ok(200);
    assert_eq!(first["items"], json!([]), "not in the newest 2000");
    let cursor = first["nextCursor"].as_str().unwrap();
    let second = world
        .get(VIEWER, &format!("{SESSIONS}?q=needle&cursor={cursor}"))
        .await
        .ok(200);
    assert_eq!(second["items"][0]["id"], oldest["id"]);
    assert_eq!(second["items"].as_array().unwrap().len(), 1);
    assert!(second["nextCursor"].is_null());
}
