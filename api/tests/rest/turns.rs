//! Every later turn begins at the turns verb.

use std::sync::Arc;

use bex_api::http::Activity;
use bex_proto::ticket::AttachAction;
use bex_proto::{Generation, TurnNo};
use bex_store::settle::SandboxAfter;
use serde_json::{Value, json};

use crate::support::*;

fn prompt(text: &str) -> Value {
    json!({ "prompt": text })
}

#[tokio::test]
async fn a_live_idle_driver_gets_the_turn_and_the_ticket_names_it() {
    let world = World::new().await;
    let session = world.finished(SandboxAfter::Idle).await;
    let answer = world
        .post(OPERATOR, &path(&session, "/turns"), &prompt("again"))
        .await;
    assert_eq!(answer.header("cache-control"), "no-store");
    let begun = answer.ok(201);
    let claims = world.claims(&begun);
    assert_eq!(
        (&begun["turn"], claims.trn, claims.act),
        (&json!(2), Some(TurnNo(2)), AttachAction::Turn)
    );
    assert_eq!(
        (claims.generation, claims.pod_uid.as_deref()),
        (Some(Generation(1)), Some("uid-1"))
    );
    assert_eq!(
        begun["streamUrl"],
        format!("https://stream.example/v1/agent-sessions/{session}/stream")
    );
    assert_eq!(
        world.sql(&format!(
            "SELECT phase FROM sessions WHERE id = '{session}'"
        )),
        "running"
    );
}

#[tokio::test]
async fn without_a_driver_a_sandbox_is_dispatched_and_the_ticket_waits_for_it() {
    let world = World::new().await;
    let session = world.finished(SandboxAfter::Stopping).await;
    let begun = world
        .post(OPERATOR, &path(&session, "/turns"), &prompt("again"))
        .await
        .ok(201);
    let claims = world.claims(&begun);
    assert_eq!(
        (claims.trn, claims.generation, claims.rpo),
        (Some(TurnNo(2)), None, false)
    );
    assert_eq!(
        world.sql(&format!(
            "SELECT phase FROM sessions WHERE id = '{session}'"
        )),
        "redispatching"
    );
    let turns = world.get(VIEWER, &path(&session, "/turns")).await.ok(200);
    assert_eq!(
        (&turns["turns"][1]["prompt"], &turns["turns"][0]["verdict"]),
        (&json!("again"), &json!("complete"))
    );
    let page = world
        .get(VIEWER, &path(&session, "/turns?limit=1"))
        .await
        .ok(200);
    assert_eq!(
        (page["turns"].as_array().unwrap().len(), &page["nextFrom"]),
        (1, &json!(2))
    );
    let page = world
        .get(VIEWER, &path(&session, "/turns?limit=1&from=2"))
        .await
        .ok(200);
    assert_eq!(
        (&page["turns"][0]["turn"], page.get("nextFrom")),
        (&json!(2), None)
    );
}

#[tokio::test]
async fn a_repeated_key_begins_one_turn() {
    let world = Arc::new(World::new().await);
    let session = world.finished(SandboxAfter::Stopping).await;
    let turns = path(&session, "/turns");
    let once = |world: Arc<World>, turns: String| async move {
        world
            .post_keyed(OPERATOR, &turns, "k", &prompt("again"))
            .await
            .ok(201)
    };
    let (a, b) = tokio::join!(
        tokio::spawn(once(Arc::clone(&world), turns.clone())),
        tokio::spawn(once(Arc::clone(&world), turns.clone()))
    );
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!((&a["turn"], &b["turn"]), (&json!(2), &json!(2)));
    assert_ne!(
        a["ticket"], b["ticket"],
        "tickets are single use, so each answer has its own"
    );
    world
        .post_keyed(OPERATOR, &turns, "k", &prompt("other"))
        .await
        .refused("idempotency_conflict");
    assert_eq!(world.sql("SELECT count(*) FROM turns"), "2");
}

#[tokio::test]
async fn a_spoken_turn_is_not_waited_for() {
    let world = World::new().await;
    let session = world.running().await;
    let answer = world
        .post(OPERATOR, &path(&session, "/turns"), &prompt("again"))
        .await;
    assert_eq!(answer.header("retry-after"), "5");
    let problem = answer.refused("turn_in_flight");
    assert_eq!(
        (&problem["turn"], &problem["retrySafe"]),
        (&json!(1), &json!(true))
    );
    let woken = format!(
        "SELECT count(*) FROM changes WHERE channel = 'bex_wake' AND payload = '{session}'"
    );
    assert_eq!(world.sql(&woken), "0");
    *world.sandboxes.activity.lock().unwrap() = Some(Activity::Unknown);
    world
        .post(OPERATOR, &path(&session, "/turns"), &prompt("again"))
        .await
        .refused("turn_in_flight");
    assert_eq!(world.sql(&woken), "0");
}

#[tokio::test]
async fn a_driver_that_is_done_is_settled_first() {
    let world = Arc::new(World::new().await);
    let session = world.running().await;
    *world.sandboxes.activity.lock().unwrap() = Some(Activity::Done);
    // nobody settles: the Completer is woken, the wait ends
    world
        .post(OPERATOR, &path(&session, "/turns"), &prompt("again"))
        .await
        .refused("turn_in_flight");
    let mut wakes = bex_store::listen::Listener::start(bex_store::listen::Source::Listen(
        bex_store::DbConfig::new(&world.database.url, "test"),
    ))
    .unwrap();
    assert_eq!(wakes.next().await, Some(bex_store::listen::Event::Resumed));
    let completer = tokio::spawn({
        let (world, session) = (Arc::clone(&world), session.clone());
        async move {
            while let Some(event) = wakes.next().await {
                let wake = bex_store::wake::Channel::Wake;
                if matches!(event, bex_store::listen::Event::Notified { channel, .. } if channel == wake)
                {
                    return world
                        .settle(&session, TurnNo(1), Generation(1), SandboxAfter::Idle)
                        .await;
                }
            }
        }
    });
    let begun = world
        .post(OPERATOR, &path(&session, "/turns"), &prompt("again"))
        .await
        .ok(201);
    completer.await.unwrap();
    assert_eq!(begun["turn"], 2);
    assert_eq!(
        world.claims(&begun).generation,
        Some(Generation(1)),
        "its driver took the turn"
    );
}

#[tokio::test]
async fn sessions_that_take_no_turn_say_why() {
    let world = World::new().await;
    let session = world.finished(SandboxAfter::Stopping).await;
    let turns = path(&session, "/turns");
    let begin = async || world.post(OPERATOR, &turns, &prompt("again")).await;
    world.sql(&format!(
        "UPDATE sessions SET prompt_bytes = 8388608 WHERE id = '{session}'"
    ));
    assert_eq!(begin().await.refused("prompt_quota")["limit"], 8_388_608);
    world.sql(&format!(
        "UPDATE sessions SET prompt_bytes = 5 WHERE id = '{session}'"
    ));
    let mark = "UPDATE transcript_heads SET quota_turn = 1, quota_index = 0 WHERE session_id =";
    world.sql(&format!("{mark} '{session}'"));
    begin().await.refused("session_full");
    world.sql(&format!("UPDATE transcript_heads SET quota_turn = NULL, quota_index = NULL WHERE session_id = '{session}'"));
    world
        .post(OPERATOR, &path(&session, "/archive"), &Value::Null)
        .await
        .ok(200);
    begin().await.refused("archived");
    world
        .post(OPERATOR, &path(&session, "/unarchive"), &Value::Null)
        .await
        .ok(200);
    for bad in [
        json!({"prompt": ""}),
        json!({"prompt": "a\u{0}"}),
        json!({}),
    ] {
        world
            .post(OPERATOR, &turns, &bad)
            .await
            .refused("invalid_request");
    }
    world
        .post(OPERATOR, &turns, &json!({"prompt": "p", "x": 1}))
        .await
        .refused("unknown_field");
    begin().await.ok(201);
    world
        .post(OPERATOR, &path(&session, "/cancel"), &Value::Null)
        .await
        .ok(200);
    begin().await.refused("not_steerable");
}

#[tokio::test]
async fn stop_asks_the_driver_of_an_open_turn() {
    use bex_api::exec_client::ExecFailure;
    let world = World::new().await;
    let session = world.running().await;
    let stop = async |turn: &str| {
        world
            .post(
                OPERATOR,
                &path(&session, &format!("/turns/{turn}/stop")),
                &Value::Null,
            )
            .await
    };
    assert_eq!(stop("1").await.ok(202)["verdict"], "open");
    assert_eq!(*world.sandboxes.calls.lock().unwrap(), ["stop uid-1 1"]);
    assert_eq!(
        world.sql("SELECT stop_requested_at IS NOT NULL FROM turns"),
        "t"
    );
    for (failure, code) in [
        (ExecFailure::Transport, "exec_transport"),
        (ExecFailure::Timeout, "exec_timeout"),
        (ExecFailure::Refused(401), "internal"),
    ] {
        *world.sandboxes.refusal.lock().unwrap() = Some(failure);
        stop("1").await.refused(code);
    }
    for settled_soon in [
        ExecFailure::Terminated,
        ExecFailure::Busy,
        // the driver does not know the turn yet
        ExecFailure::Unsupported,
    ] {
        *world.sandboxes.refusal.lock().unwrap() = Some(settled_soon);
        stop("1").await.ok(202);
    }
    for none in ["2", "0", "-1", "x", "99999999999"] {
        stop(none).await.refused("not_found");
    }
    world
        .settle(&session, TurnNo(1), Generation(1), SandboxAfter::Idle)
        .await;
    stop("1").await.refused("not_live");
    // a turn that no sandbox speaks yet is stopped by the Completer alone
    let waiting = world.create().await;
    world.sandboxes.calls.lock().unwrap().clear();
    world
        .post(OPERATOR, &path(&waiting, "/turns/1/stop"), &Value::Null)
        .await
        .ok(202);
    assert!(world.sandboxes.calls.lock().unwrap().is_empty());
}
