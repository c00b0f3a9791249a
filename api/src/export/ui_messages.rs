//! The conversation as the AI SDK's messages: one JSON array, two messages a turn.

use bex_proto::TurnNo;
use bex_store::Db;
use bex_store::sessions::SessionRow;
use serde_json::json;

use super::ExportFault;
use super::messages::Message;
use super::parts::Parts;
use super::sink::Sink;

pub(super) async fn write(
    db: &Db,
    session: &SessionRow,
    sink: &mut Sink,
) -> Result<(), ExportFault> {
    let mut turn = TurnNo::FIRST;
    let mut separator = "[";
    while let Some(snapshot) = db.turn_snapshot(&session.id, turn).await? {
        let row = snapshot.turn;
        let prompt = json!({"id": format!("prompt-{}", row.turn), "role": "user",
            "parts": [{"type": "text", "text": row.prompt}]});
        sink.write(separator).await?;
        sink.write(&prompt.to_string()).await?;
        let mut message = Message::new(row.turn);
        let mut parts = Parts::new(db, &session.id, row.turn, snapshot.before);
        while let Some(part) = parts.next().await? {
            message.push(&part);
        }
        let (parts, metadata) = message.end(&row);
        let answer = json!({"id": format!("durable-{}-{}", session.id, row.turn), "role": "assistant",
            "metadata": metadata, "parts": parts});
        sink.write(",").await?;
        sink.write(&answer.to_string()).await?;
        separator = ",";
        turn = row.turn.next();
    }
    sink.write(if separator == "[" { "[]" } else { "]" })
        .await?;
    sink.flush().await
}
