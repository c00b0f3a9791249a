//! What is secret is taken out; where it is not, the gate refuses, and nothing is stored.

use bex_api::package::{Bounds, Builder};
use bex_redact::{Gate, GateError, Stage};
use serde_json::json;

use super::executions::{Execution, remote_session};
use super::*;

/// Only its beginning tells: nothing else calls it random.
const TOKEN: &str = "ghp_canary0123456789abcdefghijklmnopqrst";
const PASSWORD: &str = "correct-horse-9-battery";

fn without_github(profile: Profile, key: TokenKey) -> Redactor {
    Redactor::new(profile, key).without(Stage::Rule("github-token"))
}

fn without_keys(profile: Profile, key: TokenKey) -> Redactor {
    Redactor::new(profile, key).without(Stage::Keys)
}

/// Plants a secret in an execution, in a turn's text, and split over two deltas of it.
async fn planted(world: &World, secret: &str) -> [String; 3] {
    let execution = Execution::record(world, "demo");
    let key = if secret == PASSWORD {
        "password"
    } else {
        "out"
    };
    world.sql(&format!(
        "UPDATE execution_nodes SET outputs = '{}' WHERE node_id = 'z-first'",
        json!({"log": [{key: secret}]})
    ));
    let (a, b) = secret.split_at(secret.len() / 2);
    let delta = |text: &str| json!({"type": "text-delta", "id": "1", "delta": text}).to_string();
    let (first, second) = (delta(&format!("see {a}")), delta(&format!("{b} !")));
    let session = world
        .spoken(&[r#"{"type":"text-start","id":"1"}"#, &first, &second])
        .await;
    let run = world.sql("SELECT run_id FROM turns");
    [
        by("execution", execution.id),
        by("conversation", session),
        by("run", run),
    ]
}

#[tokio::test]
async fn secrets_are_tokens_in_packages_the_same_in_a_workspace_and_others_elsewhere() {
    let world = world(Place::here()).await;
    let mut seen = Vec::new();
    for path in planted(&world, TOKEN).await {
        let package = world.package(&path).await;
        let text = String::from_utf8(package.bytes).unwrap();
        assert!(
            !text.contains(TOKEN) && !text.contains(&TOKEN[20..]),
            "{text}"
        );
        let at = text
            .find("[redacted:github-token:")
            .unwrap_or_else(|| panic!("{text}"));
        seen.push(text[at..at + 28].to_owned());
    }
    assert!(seen.iter().all(|token| *token == seen[0]), "{seen:?}");
    let theirs = Execution::record(&world, "other");
    world.sql(&format!(
        "UPDATE executions SET error = 'with {TOKEN}' WHERE workspace_id = 'other'"
    ));
    let answer = world
        .get(STRANGER, &by("execution", theirs.id))
        .await
        .ok(200);
    let text = world.fetch(answer["url"].as_str().unwrap()).await.body;
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(
        text.contains("[redacted:github-token:") && !text.contains(&seen[0]),
        "{text}"
    );
}

#[tokio::test]
async fn a_redactor_that_misses_something_publishes_nothing() {
    for (redactor, secret, id) in [
        (
            without_github as fn(Profile, TokenKey) -> Redactor,
            TOKEN,
            "github-token",
        ),
        (without_keys, PASSWORD, "sensitive-key"),
    ] {
        let world = world(Place {
            redactor,
            ..Place::here()
        })
        .await;
        let paths = planted(&world, secret).await;
        // only a key tells of a password
        let told = if id == "sensitive-key" {
            &paths[..1]
        } else {
            &paths[..]
        };
        for path in told {
            let answer = world.get(VIEWER, path).await;
            assert!(!String::from_utf8_lossy(&answer.body).contains(&secret[..8]));
            let problem = answer.refused("gate_refused");
            let ids = problem["patternIds"].as_array().unwrap();
            assert!(ids.contains(&json!(id)), "{problem}");
            assert_eq!(
                (&problem["retrySafe"], problem.get("url")),
                (&json!(false), None)
            );
            world.nothing_stored();
            assert_eq!(world.sql("SELECT count(*) FROM packages"), "0");
            let told = "SELECT DISTINCT result FROM audit_events WHERE action = 'package.ask'";
            assert_eq!(world.sql(told), "gate_refused");
        }
        world.counted(
            r#"package_asks_total{result="gate_refused"}"#,
            told.len() as u64,
        );
    }
}

/// A secret that is a name is taken out like any other, so that nobody is refused for good.
#[tokio::test]
async fn a_secret_as_a_name_is_no_dead_end() {
    let world = world(Place::here()).await;
    let execution = Execution::record(&world, "demo");
    let value = json!({TOKEN: 1, "SecretAccessKey": "0123456789abcdefghij0123456789abcdefghij", "card": 4111111111111111_u64});
    world.sql(&format!(
        "UPDATE execution_nodes SET inputs = '{value}' WHERE node_id = 'z-first'"
    ));
    let package = world.package(&by("execution", execution.id)).await;
    let inputs = package.sections()["nodes"][0]["inputs"].to_string();
    assert!(
        !inputs.contains(TOKEN) && !inputs.contains("0123456789abc") && !inputs.contains("4111"),
        "{inputs}"
    );
}

/// What looks random and is no secret stays as it is: joins hold.
#[tokio::test]
async fn ids_digests_and_times_are_left_alone() {
    let world = world(Place::here()).await;
    let execution = Execution::record(&world, "demo");
    let value = json!({
        "sha": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", "trace": "4bf92f3577b34da6a3ce929d0e0e4736",
        "uuid": "550e8400-e29b-41d4-a716-446655440000", "at": "1767225600000", "text": "Bearer authentication, key: undefined"
    });
    world.sql(&format!(
        "UPDATE execution_nodes SET inputs = '{value}' WHERE node_id = 'z-first'"
    ));
    let package = world.package(&by("execution", execution.id)).await;
    assert_eq!(package.sections()["nodes"][0]["inputs"], value);
}

#[tokio::test]
async fn without_a_gate_that_finds_what_is_planted_there_are_no_packages() {
    let world = world(Place::here()).await;
    for stage in [
        Stage::Load,
        Stage::Rule("github-token"),
        Stage::Keys,
        Stage::Base64,
    ] {
        let deps = builder_deps(
            &world.db,
            std::env::temp_dir(),
            Redactor::new,
            Bounds::default(),
        );
        let gate = Gate::without(Profile::Package, stage);
        let made = Builder::with_gate(deps, gate);
        assert!(matches!(made, Err(GateError::SelfCheck(_))), "{stage:?}");
    }
}

/// Every text of the envelope that comes from a row, one after the other: taken out, or refused.
#[tokio::test]
async fn there_is_no_text_in_which_a_secret_gets_through() {
    let world = world(Place::here()).await;
    let execution = Execution::record(&world, "demo");
    let session = world.spoken(PARTS).await;
    execution.names(&world, session.as_str());
    let run = world.sql("SELECT run_id FROM turns");
    execution.finding(&world, "f-run", None, None, Some(&run));
    let remote = remote_session(&world, "demo", 1, "hello");
    let json = json!({ "deep": [{ "text": format!("see {TOKEN}") }] }).to_string();
    let totals =
        json!({"inputTokens": 1, "outputTokens": 1, "totalTokens": 2, "callCount": 1, "by": TOKEN});
    let totals = totals.to_string();
    let (of_execution, of_session, of_remote) = (
        by("execution", &execution.id),
        by("conversation", &session),
        by("conversation", &remote),
    );
    let planted: &[(&str, &str, &str, &str)] = &[
        (&of_execution, "config_versions", "body", &json),
        (&of_execution, "config_versions", "recorded_by", TOKEN),
        (&of_execution, "executions", "error", TOKEN),
        (&of_execution, "executions", "usage_totals", &totals),
        (&of_execution, "execution_nodes", "inputs", &json),
        (&of_execution, "execution_nodes", "outputs", &json),
        (&of_execution, "execution_nodes", "usage", &json),
        (&of_execution, "execution_nodes", "error", TOKEN),
        (&of_execution, "findings", "body", &json),
        (&of_execution, "findings", "decision", TOKEN),
        (&of_execution, "findings", "node_id", TOKEN),
        (&of_execution, "usage_ledger", "node_id", TOKEN),
        (&of_execution, "usage_ledger", "currency", TOKEN),
        (&of_session, "turns", "prompt", TOKEN),
        (&of_session, "findings", "decision", TOKEN),
        (
            &of_session,
            "sessions",
            "agent",
            r#"{"profile":"demo","model":"ghp_canary0123456789abcdefghijklmnopqrst"}"#,
        ),
        (&of_remote, "messages", "content", TOKEN),
        (
            &of_remote,
            "messages",
            "content_blocks",
            r#"[{"type":"text","text":"ghp_canary0123456789abcdefghijklmnopqrst"}]"#,
        ),
        (&of_remote, "messages", "message_id", TOKEN),
        (&of_remote, "messages", "model", TOKEN),
        (&of_remote, "remote_turns", "turn_id", TOKEN),
        (
            &of_remote,
            "remote_turns",
            "content_blocks",
            r#"[{"type":"tool_use","id":"a","name":"ghp_canary0123456789abcdefghijklmnopqrst","input":{}}]"#,
        ),
        (
            &of_remote,
            "remote_turns",
            "content_blocks",
            r#"[{"type":"tool_use","id":"a","name":"n","input":{"k":"ghp_canary0123456789abcdefghijklmnopqrst"}}]"#,
        ),
        (
            &of_remote,
            "remote_turns",
            "content_blocks",
            r#"[{"type":"tool_result","tool_use_id":"ghp_canary0123456789abcdefghijklmnopqrst","content":"x"}]"#,
        ),
        (
            &of_remote,
            "remote_turns",
            "content_blocks",
            r#"[{"type":"tool_result","tool_use_id":"a","content":{"ghp_canary0123456789abcdefghijklmnopqrst":1}}]"#,
        ),
    ];
    let mut refused = Vec::new();
    for (path, table, column, value) in planted {
        let what = format!("{table}.{column}");
        let keep = format!(
            "CREATE TABLE kept AS SELECT * FROM {table}; SET session_replication_role = replica;"
        );
        let only = match *column {
            "message_id" => " WHERE position = 0",
            "node_id" => " WHERE execution_id IS NOT NULL",
            _ => "",
        };
        world.sql(&format!(
            "{keep} UPDATE {table} SET {column} = '{value}'{only}"
        ));
        let answer = world.get(VIEWER, path).await;
        match answer.status {
            200 => {
                let answer = answer.json();
                let text = world.fetch(answer["url"].as_str().unwrap()).await.body;
                let text = String::from_utf8_lossy(&text).into_owned();
                assert!(!text.contains("canary0123456789"), "{what}");
                let shown = column != &"recorded_by";
                assert_eq!(text.contains("[redacted:github-token:"), shown, "{what}");
            }
            500 => {
                answer.refused("gate_refused");
                refused.push(what);
            }
            status => panic!("{what}: {status}"),
        }
        world.sql(&format!(
            "SET session_replication_role = replica; DELETE FROM {table}; INSERT INTO {table} SELECT * FROM kept; DROP TABLE kept"
        ));
    }
    assert_eq!(refused, Vec::<String>::new(), "none of these is a dead end");
}
