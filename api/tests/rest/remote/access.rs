//! Who may do what: machines are bound to their sessions, workspaces to their members.

use super::*;

#[tokio::test]
async fn a_machine_cannot_write_to_read_or_learn_of_another_s_session() {
    let world = World::new().await;
    let (own, other) = (world.machine().await, world.machine().await);
    let session = world.remote(&own, "interactive").await;
    let none = format!("rms-{}", "a".repeat(20));
    for id in [&session, &none] {
        let path = |verb: &str| format!("/v1/remote-sessions/{id}/{verb}");
        let report = world
            .report(&other, id, line(0, &result()).to_string())
            .await;
        let mut answers = vec![report];
        for (verb, body) in [
            ("status", json!({"state": "completed"})),
            (
                "usage",
                json!({"reportId": "r", "inputTokens": 1, "outputTokens": 1}),
            ),
            ("import", json!({})),
        ] {
            answers.push(world.post(&other.token, &path(verb), &body).await);
        }
        for answer in answers {
            assert_eq!(answer.status, 404);
            let body = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(!body.contains(id.as_str()), "{body}");
            answer.refused("not_found");
        }
    }
    // a machine's token opens nothing that is for people
    let read = world
        .get(&own.token, &format!("/v1/remote-sessions/{session}"))
        .await;
    read.refused("unauthenticated");
    let page = world
        .get(VIEWER, &format!("/v1/remote-sessions/{session}/output"))
        .await
        .ok(200);
    assert_eq!(page["events"], json!([]));
}

#[tokio::test]
async fn a_revoked_token_stops_at_once_even_a_waiting_poll() {
    let world = World::new().await;
    let machine = world.machine().await;
    let session = world.remote(&machine, "interactive").await;
    let poll = world.get(&machine.token, "/v1/machine/commands?waitSeconds=25");
    let revoke = async {
        let path = format!("/v1/machines/{}/revoke", machine.id);
        world.post(ADMIN, &path, &Value::Null).await.ok(200);
        std::time::Instant::now()
    };
    let (poll, revoked) = tokio::join!(poll, revoke);
    poll.refused("unauthenticated");
    assert!(revoked.elapsed() < Duration::from_secs(1));
    let report = world
        .report(&machine, &session, line(0, &result()).to_string())
        .await;
    report.refused("unauthenticated");
    let who = world.sql("SELECT subject || ' ' || action FROM audit_events WHERE action LIKE 'machine.%' ORDER BY id DESC LIMIT 1");
    assert!(who.ends_with(" machine.revoke"), "{who}");
    let path = format!("/v1/remote-sessions/{session}/stop");
    let stopped = world.post(OPERATOR, &path, &Value::Null).await.ok(202);
    assert_eq!(stopped["state"], "ending");
}

#[tokio::test]
async fn a_token_is_rotated_without_a_pause() {
    let world = World::new().await;
    let machine = world.machine().await;
    let rotated = world
        .post(&machine.token, "/v1/machine/rotate", &Value::Null)
        .await
        .ok(200);
    let token = rotated["token"].as_str().unwrap();
    for token in [machine.token.as_str(), token] {
        let beat = json!({"detail": {"load": 1}});
        let answer = world.post(token, "/v1/machine/heartbeat", &beat).await;
        assert_eq!(answer.status, 204);
    }
    let view = world
        .get(VIEWER, &format!("/v1/machines/{}", machine.id))
        .await
        .ok(200);
    assert_eq!(
        (&view["online"], &view["detail"]),
        (&json!(true), &json!({"load": 1}))
    );
    assert!(view.get("token").is_none());
}

#[tokio::test]
async fn another_workspace_s_things_do_not_exist() {
    let world = World::new().await;
    let machine = world.machine().await;
    let session = world.remote(&machine, "interactive").await;
    let at = |path: &str| format!("/v1/remote-sessions/{session}{path}");
    for path in ["", "/messages", "/turns", "/output"] {
        world.get(STRANGER, &at(path)).await.refused("not_found");
    }
    for verb in ["/stop", "/attach-ticket", "/rebuild", "/archive"] {
        world
            .post(STRANGER, &at(verb), &Value::Null)
            .await
            .refused("not_found");
    }
    let machine = format!("/v1/machines/{}", machine.id);
    world.get(STRANGER, &machine).await.refused("not_found");
    world
        .post(STRANGER, &format!("{machine}/revoke"), &Value::Null)
        .await
        .refused("not_found");
    world
        .post(VIEWER, &at("/stop"), &Value::Null)
        .await
        .refused("forbidden");
    world
        .post(OPERATOR, &at("/rebuild"), &Value::Null)
        .await
        .refused("forbidden");
    world
        .call(OPERATOR, "DELETE", &at(""))
        .await
        .refused("forbidden");
}

#[tokio::test]
async fn bad_reports_are_refused_by_line_and_store_nothing() {
    let world = World::new().await;
    let machine = world.machine().await;
    let session = world.remote(&machine, "interactive").await;
    let good = line(0, &result());
    let report = async |body: String| world.report(&machine, &session, body).await;
    let problem = report(format!("{good}\n{{")).await.refused("invalid_json");
    assert_eq!(problem["line"], 2);
    let problem = report(format!(
        "{good}\n\n{}",
        json!({"eventIndex": 1, "stream": "x", "data": ""})
    ))
    .await;
    assert_eq!(problem.refused("invalid_request")["line"], 3);
    report("x".repeat(9 * 1024 * 1024))
        .await
        .refused("body_too_large");
    let far = json!({"eventIndex": 50_000, "stream": "stdout", "data": ""});
    let problem = report(far.to_string()).await.refused("event_too_far");
    assert_eq!(problem["nextEventIndex"], 0);
    assert_eq!(
        world.remote_session(&session).await["counters"]["nextEventIndex"],
        0
    );
    world.say(&machine, &session, &[good]).await;
    let other = json!({"eventIndex": 0, "stream": "stdout", "data": "other"});
    let problem = report(other.to_string()).await.refused("event_conflict");
    assert_eq!(problem["eventIndex"], 0);
}

#[tokio::test]
async fn usage_is_counted_once() {
    let world = World::new().await;
    let machine = world.machine().await;
    let session = world.remote(&machine, "interactive").await;
    let path = format!("/v1/remote-sessions/{session}/usage");
    let body = json!({"reportId": "r", "inputTokens": 3, "outputTokens": 4});
    let post = async |body: &Value| world.post(&machine.token, &path, body).await;
    assert_eq!(post(&body).await.ok(200)["duplicate"], false);
    assert_eq!(post(&body).await.ok(200)["duplicate"], true);
    let other = json!({"reportId": "r", "inputTokens": 5, "outputTokens": 4});
    post(&other).await.refused("report_conflict");
    let many = json!({"reportId": "s", "inputTokens": 1_000_000_001, "outputTokens": 0});
    post(&many).await.refused("invalid_request");
    let counters = world.remote_session(&session).await["counters"].clone();
    assert_eq!(
        (
            &counters["inputTokens"],
            &counters["outputTokens"],
            &counters["requests"]
        ),
        (&json!(3), &json!(4), &json!(1))
    );
}

#[tokio::test]
async fn a_held_session_is_not_deleted() {
    let world = World::new().await;
    let machine = world.machine().await;
    let session = world.remote(&machine, "interactive").await;
    let at = |path: &str| format!("/v1/remote-sessions/{session}{path}");
    let status = json!({"state": "completed", "events": 0});
    world
        .post(&machine.token, &at("/status"), &status)
        .await
        .ok(200);
    world.state(&session, "completed").await;
    world
        .post(OPERATOR, &at("/legal-hold"), &Value::Null)
        .await
        .refused("forbidden");
    let held = world.post(ADMIN, &at("/legal-hold"), &Value::Null).await;
    assert_eq!(held.ok(200)["legalHold"], true);
    let deleted = world.call(ADMIN, "DELETE", &at("")).await;
    deleted.refused("legal_hold");
    let free = world.call(ADMIN, "DELETE", &at("/legal-hold")).await;
    assert_eq!(free.ok(200)["legalHold"], false);
    assert_eq!(world.call(ADMIN, "DELETE", &at("")).await.status, 204);
    world.get(VIEWER, &at("")).await.refused("not_found");
}
