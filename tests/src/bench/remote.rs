//! Remote sessions of about 100 bytes an event, in turns of about a thousand.

use std::time::Duration;

use bex_proto::RemoteSessionId;
use bex_proto::transcript::sha256_hex;
use bytes::Bytes;

use super::database::{Database, WORKSPACE};
use super::parts::Numbers;
use crate::eventually;

/// The machine's token.
pub const TOKEN: &str = "bench-machine-token";
/// The only machine.
const MACHINE: &str = "mac-benchbenchbenchbench";
/// Events of one turn.
pub const TURN_EVENTS: u64 = 1_000;
/// For a builder to read the end of what was reported.
const READ: Duration = Duration::from_secs(60);

/// One event's data: a line of Claude's stream with a word in it, and at its turn's end the line that says so.
fn data(index: u64, numbers: &mut Numbers) -> String {
    if index % TURN_EVENTS == TURN_EVENTS - 1 {
        return "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false}\n".to_owned();
    }
    let word = numbers.below(1 << 20);
    format!(
        "{{\"type\":\"stream_event\",\"event\":{{\"type\":\"content_block_delta\",\"delta\":{{\"type\":\"text_delta\",\"text\":\"{word:x} \"}}}}}}\n"
    )
}

/// Datas of so many events, the same for every run.
pub fn datas(events: u64) -> Vec<String> {
    let numbers = &mut Numbers::new(20_261_201);
    (0..events).map(|index| data(index, numbers)).collect()
}

/// Events counted on from an index, as the body of one report.
pub fn report(from: u64, datas: &[String]) -> Bytes {
    let lines = datas.iter().zip(from..).map(|(data, index)| {
        let data = serde_json::Value::from(data.as_str());
        format!("{{\"eventIndex\":{index},\"stream\":\"stdout\",\"data\":{data}}}\n")
    });
    Bytes::from(lines.collect::<String>())
}

/// The path of a session's reports.
pub fn output_path(session: &RemoteSessionId) -> String {
    format!("/v1/remote-sessions/{session}/output")
}

impl Database {
    /// A live session on the bench's machine.
    ///
    /// # Errors
    /// When the statements fail.
    pub async fn remote(&self) -> anyhow::Result<RemoteSessionId> {
        let session = RemoteSessionId::random();
        let token = sha256_hex(TOKEN.as_bytes());
        let limit = bex_proto::limits::REMOTE_LOG_BYTES;
        let statements = format!(
            "INSERT INTO machines (id, workspace_id, name, created_by) VALUES ('{MACHINE}', '{WORKSPACE}', 'bench', 'bench')
                 ON CONFLICT DO NOTHING;
             INSERT INTO machine_tokens (sha256, machine_id) VALUES ('{token}', '{MACHINE}') ON CONFLICT DO NOTHING;
             INSERT INTO remote_sessions (id, workspace_id, machine_id, kind, activity, created_by)
                  VALUES ('{session}', '{WORKSPACE}', '{MACHINE}', 'interactive', 'chat', 'bench');
             INSERT INTO remote_heads (session_id, byte_limit) VALUES ('{session}', {limit})"
        );
        self.sql.batch_execute(&statements).await?;
        Ok(session)
    }

    /// Waits until a builder has read everything of a session.
    ///
    /// # Errors
    /// When it has not within a minute.
    pub async fn remote_is_read(&self, session: &RemoteSessionId) -> anyhow::Result<()> {
        let read = format!(
            "SELECT seen_index >= high_index FROM remote_heads WHERE session_id = '{session}'"
        );
        eventually("everything is read", READ, async || {
            let row = self.sql.query_one(&read, &[]).await.ok()?;
            row.get::<_, bool>(0).then_some(())
        })
        .await
    }
}
