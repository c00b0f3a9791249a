//! Export, proof, priming, holds and retention.

use std::sync::Arc;

use bex_api::export::verify;
use bex_api::notices::Notices;
use bex_api::proof::{Notary, NotaryRound};
use bex_api::retention::{Keeping, Swept, TICK, sweep};
use bex_proto::TurnNo;
use bex_store::settle::SandboxAfter;
use serde_json::{Value, json};

use crate::support::*;

fn keeping(default_days: u32) -> Keeping {
    Keeping {
        default_days,
        log_days: 30,
        tick: TICK,
    }
}

async fn state(world: &World) -> NotaryRound {
    let notary = Notary::new(
        world.db.clone(),
        Arc::clone(&world.proof),
        Notices::default(),
    );
    notary.round().await.unwrap()
}

/// A session of one settled turn with these parts.
async fn settled(world: &World, parts: std::ops::Range<u32>) -> bex_proto::SessionId {
    let session = world.running().await;
    world.append(&session, parts).await;
    world
        .settle(
            &session,
            TurnNo(1),
            bex_proto::Generation(1),
            SandboxAfter::Stopping,
        )
        .await;
    session
}

#[tokio::test]
async fn an_export_holds_every_part_and_is_believed() {
    let world = World::new().await;
    let session = settled(&world, 0..1300).await;
    let stated = state(&world).await;
    assert_eq!((stated.stated, stated.failed), (1, 0));
    assert_eq!(state(&world).await.stated, 0);
    let answer = world.get(VIEWER, &path(&session, "/export")).await;
    assert_eq!(answer.header("content-type"), "application/x-ndjson");
    assert_eq!(
        answer.header("content-disposition"),
        format!("attachment; filename=\"{session}.jsonl\"")
    );
    let checked = verify(&answer.body[..], Some(world.proof.public())).unwrap();
    assert_eq!((checked.parts, checked.turns, checked.stated), (1300, 1, 1));
    assert!(checked.signed && checked.finished);
    let text = String::from_utf8_lossy(&answer.body);
    assert!(
        text.contains(&text_of(1299)),
        "not a byte of a part changes"
    );
    // the same again: nothing in it depends on when it was asked for
    let again = world
        .get(VIEWER, &path(&session, "/export?format=jsonl"))
        .await;
    assert_eq!(again.body, answer.body);
    for bad in ["?format=pdf", "?form=jsonl"] {
        let refused = world
            .get(VIEWER, &path(&session, &format!("/export{bad}")))
            .await;
        assert_eq!(refused.status, 400);
    }
    for rest in ["/export", "/proof", "/priming"] {
        let strange = world.get(STRANGER, &path(&session, rest)).await;
        strange.refused("not_found");
    }
}

/// Holes stay holes, wherever they are.
#[tokio::test]
async fn an_open_turn_with_holes_is_exported_as_it_stands() {
    let world = World::new().await;
    let session = world.running().await;
    world.append(&session, 0..2).await;
    world.append(&session, 5000..5002).await;
    let answer = world.get(VIEWER, &path(&session, "/export")).await;
    let checked = verify(&answer.body[..], None).unwrap();
    assert_eq!((checked.parts, checked.stated), (4, 0));
    assert!(!checked.finished);
}

#[tokio::test]
async fn the_chain_is_paged_and_its_keys_are_for_everybody() {
    let world = World::new().await;
    let session = settled(&world, 0..3).await;
    let proof = |query: &str| path(&session, &format!("/proof{query}"));
    let before = world.get(VIEWER, &proof("")).await.ok(200);
    assert_eq!(
        (&before["pending"], &before["statements"]),
        (&json!(1), &json!([]))
    );
    state(&world).await;
    let after = world.get(VIEWER, &proof("?limit=1")).await.ok(200);
    assert_eq!(after["pending"], 0);
    assert_eq!(after["statements"].as_array().unwrap().len(), 1);
    assert!(after.get("nextFrom").is_none());
    let text = after["statements"][0]["statement"].as_str().unwrap();
    let said = bex_api::proof::Statement::verify(text, world.proof.public()).unwrap();
    assert_eq!((said.turn, said.parts, said.number), (TurnNo(1), 3, 0));
    let keys = world
        .get("", "/.well-known/bex-proof-keys.json")
        .await
        .ok(200);
    assert_eq!(keys, after["keys"]);
    assert_eq!(keys["keys"][0]["kid"], "p");
    assert!(keys["keys"][0].get("d").is_none());
}

#[tokio::test]
async fn priming_is_the_newest_words_under_the_budget() {
    let world = World::new().await;
    let session = settled(&world, 0..3).await;
    let ask = async |query: &str| {
        world
            .get(VIEWER, &path(&session, &format!("/priming{query}")))
            .await
    };
    let all = ask("").await.ok(200);
    let said = json!([{"kind": "text", "text": "part 0part 1part 2"}]);
    assert_eq!(
        all,
        json!({"turns": [{"turn": 1, "prompt": "do it", "said": said}], "omittedTurns": 0, "truncated": false})
    );
    let none = ask("?budgetBytes=0").await.ok(200);
    assert_eq!(
        none,
        json!({"turns": [], "omittedTurns": 1, "truncated": true})
    );
    for bad in [
        "?budgetBytes=-1",
        "?budgetBytes=1048577",
        "?toolPayloads=yes",
    ] {
        ask(bad).await.refused("invalid_request");
    }
}

#[tokio::test]
async fn what_a_workspace_keeps_no_longer_is_swept() {
    let world = World::new().await;
    let session = settled(&world, 0..3).await;
    let policy = "/v1/workspaces/demo/retention";
    let days = async |token: &str, body: Value| world.post(token, policy, &body).await;
    days(OPERATOR, json!({"days": 7}))
        .await
        .refused("forbidden");
    days(STRANGER, json!({"days": 7}))
        .await
        .refused("not_found");
    days(ADMIN, json!({"days": 40_000}))
        .await
        .refused("invalid_request");
    assert_eq!(
        sweep(&world.db, keeping(0)).await.unwrap(),
        Swept::default()
    );
    let set = days(ADMIN, json!({"days": 7})).await.ok(200);
    assert_eq!(
        (&set["days"], &set["effectiveDays"]),
        (&json!(7), &json!(7))
    );
    // not old enough
    assert_eq!(
        sweep(&world.db, keeping(1)).await.unwrap(),
        Swept::default()
    );
    world.sql("UPDATE sessions SET created_at = now() - interval '8 days', updated_at = now() - interval '8 days'");
    let hold = path(&session, "/legal-hold");
    world
        .call(OPERATOR, "POST", &hold)
        .await
        .refused("forbidden");
    let held = world.call(ADMIN, "POST", &hold).await.ok(200);
    assert_eq!(held["legalHold"], true);
    world
        .call(ADMIN, "DELETE", &path(&session, ""))
        .await
        .refused("legal_hold");
    assert_eq!(
        sweep(&world.db, keeping(0)).await.unwrap(),
        Swept::default()
    );
    world.call(ADMIN, "DELETE", &hold).await.ok(200);
    let swept = sweep(&world.db, keeping(0)).await.unwrap();
    assert_eq!((swept.sessions, swept.parts), (1, 3));
    world
        .get(VIEWER, &path(&session, ""))
        .await
        .refused("not_found");
    assert_eq!(
        world.sql("SELECT session_id FROM audit_events WHERE action = 'session.expire'"),
        session.to_string()
    );
    let cleared = days(ADMIN, json!({})).await.ok(200);
    assert_eq!(
        (cleared.get("days"), &cleared["effectiveDays"]),
        (None, &json!(0))
    );
}

#[tokio::test]
async fn what_cannot_be_swept_keeps_nothing_else_from_it() {
    let world = World::new().await;
    let stuck = settled(&world, 0..3).await;
    let (mate, other) = (settled(&world, 0..3).await, settled(&world, 0..3).await);
    world.sql(&format!(
        "UPDATE sessions SET created_at = now() - interval '8 days', updated_at = now() - interval '8 days';
         UPDATE sessions SET workspace_id = 'a-first-one' WHERE id IN ('{stuck}', '{mate}');
         UPDATE sessions SET created_at = created_at - interval '1 day' WHERE id = '{stuck}';
         CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''stuck''; END';
         CREATE TRIGGER fail BEFORE DELETE ON sessions FOR EACH ROW WHEN (OLD.id = '{stuck}') EXECUTE FUNCTION fail()"
    ));
    let swept = sweep(&world.db, keeping(7)).await.unwrap();
    assert_eq!((swept.sessions, swept.parts, swept.failed), (2, 6, 1));
    assert_eq!(world.sql("SELECT id FROM sessions"), stuck.as_str());
    assert_eq!(
        world.sql("SELECT string_agg(session_id, ' ' ORDER BY id) FROM audit_events WHERE action = 'session.expire'"),
        format!("{mate} {other}")
    );
}
