//! Every answer that is not a package.

use std::time::Duration;

use bex_api::package::{Bounds, Shares};
use serde_json::json;

use super::executions::Execution;
use super::*;

/// One of each kind, and one of each that is nobody's.
async fn things(world: &World) -> [(&'static str, String, &'static str); 3] {
    let session = world.spoken(PARTS).await;
    let run = world.sql("SELECT run_id FROM turns");
    let execution = Execution::record(world, "demo");
    let nothing = "aaaaaaaaaaaaaaaaaaaa";
    assert_ne!(run, format!("run-{nothing}"));
    [
        ("execution", execution.id, "exe-aaaaaaaaaaaaaaaaaaaa"),
        (
            "conversation",
            session.to_string(),
            "rms-aaaaaaaaaaaaaaaaaaaa",
        ),
        ("run", run, "run-aaaaaaaaaaaaaaaaaaaa"),
    ]
}

#[tokio::test]
async fn anyone_of_the_workspace_gets_a_package_of_each_kind() {
    let world = world(Place::here()).await;
    for (kind, id, _) in things(&world).await {
        let package = world.package(&by(kind, &id)).await;
        let answer = &package.answer;
        let seconds = answer["expiresInSeconds"].as_u64().unwrap();
        assert!((290..=300).contains(&seconds), "{answer}");
        let expires: jiff::Timestamp = answer["expiresAt"].as_str().unwrap().parse().unwrap();
        let left = expires.duration_since(jiff::Timestamp::now()).as_secs();
        assert!((288..=300).contains(&left), "{answer}");
        assert_eq!(package.envelope["orgId"], "demo");
        assert_eq!(package.envelope["producerCommit"], "abc1234");
        assert_eq!(package.envelope["sanitisation"]["gate"], "passed");
        let key = format!(
            "ORG#demo/{kind}-{id}/{}.json",
            answer["packageId"].as_str().unwrap()
        );
        assert!(world.stored().contains(&key), "{key}");
        let detail = format!("{kind} {id} {}", answer["packageId"].as_str().unwrap());
        let asked = format!(
            "SELECT workspace_id, subject, result FROM audit_events WHERE action = 'package.ask' AND detail = '{detail}'"
        );
        assert_eq!(world.sql(&asked), "demo|svc:viewer|ok");
        let fetched = format!(
            "SELECT workspace_id, subject, result FROM audit_events WHERE action = 'package.fetch' AND detail = '{key}'"
        );
        assert_eq!(world.sql(&fetched), "demo|signed-url|ok");
    }
    world.counted(r#"package_asks_total{result="ok"}"#, 3);
    world.counted(r#"package_fetches_total{result="given"}"#, 3);
}

#[tokio::test]
async fn anothers_and_nobodys_are_the_same() {
    let world = world(Place::here()).await;
    for (kind, id, nothing) in things(&world).await {
        let mut bodies = Vec::new();
        for id in [&id, nothing, "x", "%2e%2e", "%ff", "a%2Fb", "ags-x"] {
            let answer = world.get(STRANGER, &by(kind, id)).await;
            bodies.push(answer.body.clone());
            answer.refused("not_found");
        }
        assert!(bodies.iter().all(|body| *body == bodies[0]), "{kind}");
        // whoever acts for every workspace acts for this one
        world.get(EVERYWHERE, &by(kind, &id)).await.ok(200);
        // an id of another kind is none
        for other in ["execution", "conversation", "run"] {
            if other != kind {
                world
                    .get(VIEWER, &by(other, &id))
                    .await
                    .refused("not_found");
            }
        }
        for bad in ["", "wrong"] {
            world
                .get(bad, &by(kind, &id))
                .await
                .refused("unauthenticated");
        }
        let path = by(kind, &id);
        let answer = world.get(VIEWER, &format!("{path}?limit=1")).await;
        answer.refused("unknown_field");
        let answer = world.get(VIEWER, &format!("{path}?workspaceId=A")).await;
        answer.refused("invalid_request");
        let answer = world
            .get(VIEWER, &format!("{path}?workspaceId=other"))
            .await;
        answer.refused("not_found");
        let answer = world.call(ADMIN, "post", &path).await;
        answer.refused("method_not_allowed");
    }
    world
        .get(VIEWER, "/replay/by-execution/")
        .await
        .refused("not_found");
    world
        .get(VIEWER, "/replay/by-workflow/x")
        .await
        .refused("not_found");
    assert_eq!(world.stored().len(), 3, "one each, for whom it is");
    assert_eq!(
        world.sql("SELECT count(*) FROM audit_events WHERE action = 'package.ask'"),
        "3"
    );
}

/// Ids of executions are chosen by whoever records them.
#[tokio::test]
async fn two_workspaces_may_have_an_execution_of_one_id() {
    let world = world(Place::here()).await;
    let ours = Execution::record(&world, "demo");
    let theirs = Execution::record_as(&world, "other", &ours.id);
    assert_eq!(ours.id, theirs.id);
    let path = by("execution", &ours.id);
    let package = world.package(&path).await;
    assert_eq!(package.envelope["orgId"], "demo");
    let text = String::from_utf8(package.bytes).unwrap();
    assert!(
        text.contains("of demo") && !text.contains("of other"),
        "{text}"
    );
    world.get(STRANGER, &path).await.ok(200);
    let problem = world
        .get(EVERYWHERE, &path)
        .await
        .refused("invalid_request");
    assert!(problem["detail"].as_str().unwrap().contains("workspaceId"));
    let theirs = world
        .get(EVERYWHERE, &format!("{path}?workspaceId=other"))
        .await
        .ok(200);
    let url = theirs["url"].as_str().unwrap();
    assert!(url.contains("ORG%23other"), "{url}");
}

#[tokio::test]
async fn where_there_is_no_place_for_packages_there_are_none() {
    let world = World::with_packages(|_| None).await;
    let session = world.spoken(PARTS).await;
    let answer = world.get(VIEWER, &by("conversation", &session)).await;
    answer.refused("not_configured");
    let answer = world.get("", "/replay/objects/a/b/c").await;
    answer.refused("not_configured");
}

#[tokio::test]
async fn who_asks_too_often_waits() {
    let shares = Shares {
        burst: 2,
        refill: Duration::from_secs(600),
        ..Shares::default()
    };
    let world = world(Place {
        shares,
        ..Place::here()
    })
    .await;
    let session = world.spoken(PARTS).await;
    let path = by("conversation", &session);
    for _ in 0..2 {
        world.get(VIEWER, &path).await.ok(200);
    }
    let answer = world.get(VIEWER, &path).await;
    let wait: u64 = answer.header("retry-after").parse().unwrap();
    assert!((1..=601).contains(&wait), "{wait}");
    answer.refused("too_many_packages");
    // what does not exist costs nothing, and another workspace is not held up
    let missing = by("conversation", "ags-aaaaaaaaaaaaaaaaaaaa");
    world.get(VIEWER, &missing).await.refused("not_found");
    let theirs = Execution::record(&world, "other");
    world
        .get(STRANGER, &by("execution", theirs.id))
        .await
        .ok(200);
}

#[tokio::test]
async fn where_all_places_are_taken_nobody_waits_in_line() {
    let shares = Shares {
        process: 0,
        ..Shares::default()
    };
    let world = world(Place {
        shares,
        ..Place::here()
    })
    .await;
    let session = world.spoken(PARTS).await;
    let answer = world.get(VIEWER, &by("conversation", &session)).await;
    assert_eq!(answer.header("retry-after"), "5");
    answer.refused("overloaded");
    world.nothing_stored();
}

#[tokio::test]
async fn a_package_is_bounded_in_size_and_time() {
    let bounds = |bytes, time| Bounds { bytes, time };
    for (bounds, code, word) in [
        (
            bounds(800, Duration::from_secs(20)),
            "package_too_large",
            "too_large",
        ),
        (bounds(1 << 20, Duration::ZERO), "unavailable", "too_slow"),
    ] {
        let world = world(Place {
            bounds,
            ..Place::here()
        })
        .await;
        let session = world.spoken(PARTS).await;
        let answer = world.get(VIEWER, &by("conversation", &session)).await;
        answer.refused(code);
        world.nothing_stored();
        world.counted(&format!(r#"package_asks_total{{result="{word}"}}"#), 1);
        world.counted("packages_building", 0);
    }
}

/// No connection stays behind in the middle of a transaction.
#[tokio::test]
async fn broken_builds_leave_the_pool_whole() {
    let bounds = Bounds {
        bytes: 800,
        ..Bounds::default()
    };
    let world = world(Place {
        bounds,
        ..Place::here()
    })
    .await;
    let session = world.spoken(PARTS).await;
    for _ in 0..40 {
        let answer = world.get(VIEWER, &by("conversation", &session)).await;
        answer.refused("package_too_large");
    }
    world.get(VIEWER, "/v1/agent-sessions").await.ok(200);
    let idle = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    assert_eq!(world.sql(idle), "0");
}

#[tokio::test]
async fn nobody_gets_what_cannot_be_written_down() {
    let world = world(Place::here()).await;
    let session = world.spoken(PARTS).await;
    let path = by("conversation", &session);
    let url = world.get(VIEWER, &path).await.ok(200)["url"]
        .as_str()
        .unwrap()
        .to_owned();
    world.sql("REVOKE INSERT ON audit_events FROM bex_api");
    let asked = world.get(VIEWER, &path).await;
    assert!(asked.json().get("url").is_none());
    asked.refused("internal");
    world.fetch(&url).await.refused("internal");
    world.sql("GRANT INSERT ON audit_events TO bex_api");
    assert_eq!(world.fetch(&url).await.status, 200);
}

#[tokio::test]
async fn a_directory_that_fails_gives_no_url() {
    let world = world(Place::here()).await;
    let session = world.spoken(PARTS).await;
    let dir = world.packages_dir.path().join("objects");
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::write(&dir, "no directory").unwrap();
    let answer = world.get(VIEWER, &by("conversation", &session)).await;
    let problem = answer.refused("internal");
    assert_eq!(problem.get("detail"), None);
    assert!(world.spooled().is_empty());
    world.counted(r#"package_asks_total{result="object_store_failed"}"#, 1);
    assert_eq!(
        world.sql("SELECT result FROM audit_events WHERE action = 'package.ask'"),
        "internal"
    );
}

#[tokio::test]
async fn the_store_away_is_said_as_elsewhere() {
    let world = world(Place::here()).await;
    let session = world.spoken(PARTS).await;
    let path = by("conversation", &session);
    let database = world.sql("SELECT current_database()");
    let server = bex_testpg::server().unwrap();
    let admits = |admits: bool| {
        let sql = format!("ALTER DATABASE \"{database}\" ALLOW_CONNECTIONS {admits}");
        server.sql("postgres", &sql).unwrap();
    };
    admits(false);
    let end = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
    );
    server.sql("postgres", &end).unwrap();
    let answer = world.get(VIEWER, &path).await;
    answer.refused("unavailable");
    admits(true);
    world.nothing_stored();
    assert_eq!(json!(world.spooled()), json!([]));
    world.get(VIEWER, &path).await.ok(200);
}
