//! Executions for tests, written into the tables as they stand.

use crate::support::World;

/// An execution of a workspace.
pub struct Execution {
    pub id: String,
    pub workspace: String,
}

impl Execution {
    /// One of two nodes, with all that belongs to it.
    pub fn record(world: &World, workspace: &str) -> Self {
        Self::record_as(world, workspace, &bex_proto::ids::random_id("exe"))
    }

    pub fn record_as(world: &World, workspace: &str, id: &str) -> Self {
        let execution = Self {
            id: id.to_owned(),
            workspace: workspace.to_owned(),
        };
        execution.write(world);
        execution
    }

    fn write(&self, world: &World) {
        let (w, id) = (&self.workspace, &self.id);
        for (kind, name) in [
            ("workflow", "wf-1"),
            ("exec_spec", "spec-1"),
            ("model_config", "scope-1"),
            ("agent_config", "agent-1"),
            ("agent_config", "agent-2"),
        ] {
            for version in ["1", "2"] {
                world.sql(&format!(
                    r#"INSERT INTO config_versions (workspace_id, kind, id, version, body, sha256, recorded_by)
                       VALUES ('{w}', '{kind}', '{name}', '{version}', '{{"name":"{name} {version} of {w}","n":12345678901234567890123}}', 'x', 't')
                       ON CONFLICT DO NOTHING"#
                ));
            }
        }
        world.sql(&format!(
            r#"INSERT INTO executions (workspace_id, id, workflow_id, workflow_version, spec_id, spec_version, model_scope, model_version,
                   governance_mode, status, error, started_at, completed_at, usage_totals, nodes, recorded_by)
               VALUES ('{w}', '{id}', 'wf-1', '1', 'spec-1', '1', 'scope-1', '1', 'shadow', 'failed', 'node two failed',
                   '2026-01-01T00:00:00Z', '2026-01-01T00:01:00Z',
                   '{{"inputTokens":10,"outputTokens":20,"totalTokens":30,"callCount":2}}', 2, 't')"#
        ));
        // ordinals against the order of their writing
        world.sql(&format!(
            r#"INSERT INTO execution_nodes (workspace_id, execution_id, node_id, ordinal, agent_id, agent_version, inputs, outputs, error, status, retries, usage)
               VALUES ('{w}', '{id}', 'a-second', 1, 'agent-2', '1', '{{"from":"first"}}', NULL, 'it broke', 'failed', 2, NULL),
                      ('{w}', '{id}', 'z-first', 0, 'agent-1', '1', NULL, '"done"', NULL, 'completed', 0,
                       '{{"inputTokens":10,"outputTokens":20,"totalTokens":30,"callCount":1}}')"#
        ));
        self.finding(world, "f-execution", Some("wf-1"), Some(id), None);
        self.finding(world, "f-workflow", Some("wf-1"), None, None);
        self.finding(world, "f-other", Some("wf-2"), None, None);
        self.usage(world, "u-1", Some(id), None, None);
    }

    /// Names a session.
    pub fn names(&self, world: &World, session: &str) {
        let kind = if session.starts_with("ags-") {
            "agent"
        } else {
            "remote"
        };
        world.sql(&format!(
            "INSERT INTO execution_sessions (workspace_id, execution_id, session_id, session_kind)
             VALUES ('{}', '{}', '{session}', '{kind}')",
            self.workspace, self.id
        ));
    }

    pub fn finding(
        &self,
        world: &World,
        id: &str,
        workflow: Option<&str>,
        execution: Option<&str>,
        run: Option<&str>,
    ) {
        finding(world, &self.workspace, id, workflow, execution, run);
    }

    pub fn usage(
        &self,
        world: &World,
        id: &str,
        execution: Option<&str>,
        session: Option<&str>,
        run: Option<&str>,
    ) {
        usage(world, &self.workspace, id, execution, session, run);
    }
}

fn quoted(value: Option<&str>) -> String {
    value.map_or_else(|| "NULL".to_owned(), |value| format!("'{value}'"))
}

pub fn finding(
    world: &World,
    workspace: &str,
    id: &str,
    workflow: Option<&str>,
    execution: Option<&str>,
    run: Option<&str>,
) {
    let (workflow, execution, run) = (quoted(workflow), quoted(execution), quoted(run));
    world.sql(&format!(
        r#"INSERT INTO findings (workspace_id, finding_id, workflow_id, execution_id, run_id, decision, body, at, sha256, recorded_by)
           VALUES ('{workspace}', '{id}', {workflow}, {execution}, {run}, 'allow', '{{"why": "{id} of {workspace}"}}',
                   clock_timestamp(), '{id}', 't') ON CONFLICT DO NOTHING"#
    ));
}

pub fn usage(
    world: &World,
    workspace: &str,
    id: &str,
    execution: Option<&str>,
    session: Option<&str>,
    run: Option<&str>,
) {
    let (execution, session, run) = (quoted(execution), quoted(session), quoted(run));
    world.sql(&format!(
        "INSERT INTO usage_ledger (workspace_id, entry_id, execution_id, session_id, run_id, input_tokens, output_tokens, total_tokens,
             calls, cost, currency, at, sha256, recorded_by)
         VALUES ('{workspace}', '{id}', {execution}, {session}, {run}, 3, 4, 7, 1, 0.00420, 'USD', clock_timestamp(), '{id}', 't')
         ON CONFLICT DO NOTHING"
    ));
}

/// A remote session that ended, of so many turns, each a question and an answer.
pub fn remote_session(world: &World, workspace: &str, turns: u32, text: &str) -> String {
    long_session(world, workspace, turns, 2 * turns, text)
}

/// The same with so many messages, of which those behind the last turn's belong to none.
pub fn long_session(
    world: &World,
    workspace: &str,
    turns: u32,
    messages: u32,
    text: &str,
) -> String {
    let id = bex_proto::ids::random_id("rms");
    let machine = bex_proto::ids::random_id("mac");
    world.sql(&format!(
        "INSERT INTO machines (id, workspace_id, name, created_by) VALUES ('{machine}', '{workspace}', 'm', 't');
         INSERT INTO remote_sessions (id, workspace_id, machine_id, kind, activity, created_by, state, ending_as, input_tokens,
             output_tokens, request_count)
         VALUES ('{id}', '{workspace}', '{machine}', 'interactive', 'chat', 't', 'completed', 'completed', 11, 22, 3);
         INSERT INTO remote_heads (session_id, byte_limit) VALUES ('{id}', 1000000);
         INSERT INTO remote_turns (session_id, turn_id, turn_no, visible_text, content_blocks, tool_call_ids, evidence_ids, terminal_reason,
             gaps, overflow, source, started_at, completed_at, run_id)
         SELECT '{id}', 'turn-' || n, n, 'answer',
                '[{{\"type\":\"text\",\"text\":\"answer\"}},{{\"type\":\"tool_use\",\"id\":\"t' || n || '\",\"name\":\"run\",\"input\":{{\"n\":' || n || '}}}},{{\"type\":\"tool_result\",\"tool_use_id\":\"t' || n || '\",\"content\":\"ok\"}}]',
                '[]', '[]', 'result', '[]', false, 'remote_live', now(), now(),
                'run-' || translate(lpad(to_hex(n), 8, '0'), '0189', 'wxyz') || 'aaaaaaaaaaaa'
           FROM generate_series(0, {turns} - 1) AS n;
         INSERT INTO messages (session_id, position, message_id, role, content, content_blocks, source, turn_id, said_at)
         SELECT '{id}', m, 'm-' || m, CASE m % 2 WHEN 0 THEN 'user' ELSE 'assistant' END, '{text} ' || m,
                CASE m % 2 WHEN 0 THEN NULL ELSE '[{{\"type\":\"text\",\"text\":\"answer\"}},{{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"run\",\"input\":1}}]' END,
                CASE m % 2 WHEN 0 THEN 'chat' ELSE 'remote_live' END, CASE m % 2 WHEN 0 THEN NULL ELSE 'turn-' || (m / 2) END, now()
           FROM generate_series(0, {messages} - 1) AS m"
    ));
    id
}
