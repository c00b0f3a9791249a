//! Attach tickets: what each says in each state of a session.

use bex_proto::ticket::AttachAction;
use bex_proto::{Generation, TurnNo};
use bex_store::settle::SandboxAfter;
use serde_json::{Value, json};

use crate::support::*;

#[tokio::test]
async fn a_ticket_follows_the_sandbox() {
    let world = World::new().await;
    let session = world.create().await;
    let ask = async |body: &Value| {
        world
            .post(OPERATOR, &path(&session, "/attach-ticket"), body)
            .await
    };
    // being made: no target
    let ticket = ask(&json!({"action": "read"})).await.ok(200);
    let claims = world.claims(&ticket);
    assert_eq!(
        (claims.act, claims.trn, claims.generation, claims.rpo),
        (AttachAction::Read, None, None, false)
    );
    assert_eq!(
        (claims.sub.as_str(), &claims.ses, claims.ws.as_str()),
        ("svc:operator", &session, "demo")
    );
    assert_eq!(ticket["replayOnly"], false);
    // there: its target
    world.deliver(&session).await;
    for body in [
        json!({"action": "turn"}),
        json!({"action": "turn", "turn": 1}),
    ] {
        let claims = world.claims(&ask(&body).await.ok(200));
        assert_eq!(
            (claims.act, claims.trn),
            (AttachAction::Turn, Some(TurnNo(1)))
        );
        assert_eq!(claims.generation, Some(Generation(1)));
        assert_eq!(claims.pod, Some(format!("{session}-g1")));
        assert_eq!(
            (claims.ns.as_deref(), claims.pod_uid.as_deref()),
            (Some("demo-sandbox"), Some("uid-1"))
        );
    }
    // finished: replay only, whatever still runs and whatever was asked
    world
        .settle(&session, TurnNo(1), Generation(1), SandboxAfter::Idle)
        .await;
    for body in [Value::Null, json!({"action": "turn", "turn": 1})] {
        let answer = ask(&body).await;
        assert_eq!(answer.header("cache-control"), "no-store");
        let ticket = answer.ok(200);
        let claims = world.claims(&ticket);
        assert_eq!(
            (claims.act, claims.rpo, claims.generation),
            (AttachAction::Read, true, None)
        );
        assert_eq!(ticket["replayOnly"], true);
    }
}

#[tokio::test]
async fn a_read_ticket_prolongs_the_idle_grace() {
    let world = World::new().await;
    let session = world.finished(SandboxAfter::Idle).await;
    world.sql("UPDATE sandboxes SET idle_since = now() - interval '1 hour'");
    world
        .post(
            VIEWER,
            &path(&session, "/attach-ticket"),
            &json!({"action": "read"}),
        )
        .await
        .ok(200);
    assert_eq!(
        world.sql("SELECT idle_since > now() - interval '1 minute' FROM sandboxes"),
        "t"
    );
}

#[tokio::test]
async fn odd_tickets_are_refused() {
    let world = World::new().await;
    let session = world.running().await;
    let ask = async |token: &str, body: &Value| {
        world
            .post(token, &path(&session, "/attach-ticket"), body)
            .await
    };
    ask(VIEWER, &json!({"action": "turn"}))
        .await
        .refused("forbidden");
    ask(VIEWER, &json!({"action": "read"})).await.ok(200);
    for (body, code) in [
        (json!({"action": "turn", "turn": 2}), "not_found"),
        (json!({"action": "turn", "turn": 0}), "not_found"),
        (json!({"action": "write"}), "invalid_request"),
        (json!({"action": "turn", "turn": -1}), "invalid_request"),
        (json!({"action": "read", "ttl": 9}), "unknown_field"),
    ] {
        ask(OPERATOR, &body).await.refused(code);
    }
}
