//! Rows of another workspace, planted in each table that a package is read from.

use super::executions::{Execution, finding, remote_session, usage};
use super::*;

/// As somebody who may do everything in the database.
fn plant(world: &World, sql: &str) {
    world.sql(&format!("SET session_replication_role = replica; {sql}"));
}

async fn refused(world: &World, path: &str, table: &str) {
    let nothing = world
        .get(VIEWER, &by("execution", "exe-aaaaaaaaaaaaaaaaaaaa"))
        .await;
    let answer = world.get(VIEWER, path).await;
    assert_eq!(
        (answer.status, &answer.body),
        (404, &nothing.body),
        "{table}"
    );
    world.nothing_stored();
    world.counted(
        &format!(r#"package_foreign_rows_total{{table="{table}"}}"#),
        1,
    );
    world.counted(r#"package_asks_total{result="foreign_row"}"#, 1);
}

#[tokio::test]
async fn what_names_an_execution_from_elsewhere_is_an_alarm() {
    for (table, sql) in [
        (
            "execution_nodes",
            "INSERT INTO execution_nodes (workspace_id, execution_id, node_id, ordinal) VALUES ('other', 'ID', 'n', 9)",
        ),
        (
            "execution_sessions",
            "INSERT INTO execution_sessions (workspace_id, execution_id, session_id, session_kind) VALUES ('other', 'ID', 'ags-aaaaaaaaaaaaaaaaaaaa', 'agent')",
        ),
        (
            "findings",
            "INSERT INTO findings (workspace_id, finding_id, execution_id, decision, body, at, sha256, recorded_by) VALUES ('other', 'f', 'ID', 'allow', '{}', now(), 'x', 't')",
        ),
        (
            "usage_ledger",
            "INSERT INTO usage_ledger (workspace_id, entry_id, execution_id, input_tokens, output_tokens, total_tokens, calls, at, sha256, recorded_by) VALUES ('other', 'u', 'ID', 1, 1, 1, 1, now(), 'x', 't')",
        ),
        // a node that was moved elsewhere is missed here
        (
            "execution_nodes",
            "INSERT INTO executions (workspace_id, id, status, recorded_by) VALUES ('other', 'ID', 'running', 't');
             UPDATE execution_nodes SET workspace_id = 'other' WHERE node_id = 'z-first'",
        ),
    ] {
        let world = world(Place::here()).await;
        let execution = Execution::record(&world, "demo");
        plant(&world, &sql.replace("ID", &execution.id));
        refused(&world, &by("execution", &execution.id), table).await;
    }
}

/// Keys begin with the workspace, so the database itself takes no such row.
#[tokio::test]
async fn the_database_takes_no_such_row() {
    let world = world(Place::here()).await;
    let execution = Execution::record(&world, "demo");
    let sql = format!(
        "INSERT INTO execution_nodes (workspace_id, execution_id, node_id, ordinal) VALUES ('other', '{}', 'n', 9)",
        execution.id
    );
    assert!(world.database.sql(&sql).is_err());
}

#[tokio::test]
async fn a_session_of_anothers_cannot_be_named_into_a_package() {
    let world = world(Place::here()).await;
    let execution = Execution::record(&world, "demo");
    let theirs = world.spoken(PARTS).await;
    world.sql(&format!(
        "UPDATE sessions SET workspace_id = 'other' WHERE id = '{theirs}'"
    ));
    execution.names(&world, theirs.as_str());
    refused(&world, &by("execution", &execution.id), "sessions").await;
}

#[tokio::test]
async fn nor_a_remote_one() {
    let world = world(Place::here()).await;
    let execution = Execution::record(&world, "demo");
    let theirs = remote_session(&world, "other", 2, "theirs");
    execution.names(&world, &theirs);
    refused(&world, &by("execution", &execution.id), "remote_sessions").await;
}

#[tokio::test]
async fn what_names_a_session_or_its_runs_from_elsewhere_is_an_alarm() {
    for table in [
        "findings",
        "usage_ledger",
        "usage_ledger of the session",
        "execution_sessions",
    ] {
        let world = world(Place::here()).await;
        let session = world.spoken(PARTS).await;
        let run = world.sql("SELECT run_id FROM turns");
        match table {
            "findings" => finding(&world, "other", "f", None, None, Some(&run)),
            "usage_ledger" => usage(&world, "other", "u", None, None, Some(&run)),
            "execution_sessions" => {
                Execution::record(&world, "other").names(&world, session.as_str())
            }
            _ => usage(&world, "other", "u", None, Some(session.as_str()), None),
        }
        let table = table.split(' ').next().unwrap();
        refused(&world, &by("conversation", &session), table).await;
        if table == "findings" {
            let answer = world.get(VIEWER, &by("run", &run)).await;
            answer.refused("not_found");
        }
    }
}

/// What another workspace records about things of its own is in nobody's way.
#[tokio::test]
async fn another_workspace_with_the_same_names_is_in_nobodys_way() {
    let world = world(Place::here()).await;
    let ours = Execution::record(&world, "demo");
    Execution::record_as(&world, "other", &ours.id);
    let package = world.package(&by("execution", &ours.id)).await;
    let text = String::from_utf8(package.bytes).unwrap();
    assert!(!text.contains("of other"), "{text}");
    world.counted(r#"package_asks_total{result="ok"}"#, 1);
}
