//! The events the plane writes itself. Their names and fields are the contract's; none carries an id of the cursor.

use bex_proto::ids::PartId;
use bex_proto::session::{TruncationReason, Verdict};
use bex_proto::{PartIndex, TurnNo};
use bex_store::turns::TurnRow;
use serde_json::{Value, json};

/// The prompt of a turn, before its first part.
pub fn user_prompt(row: &TurnRow) -> String {
    json!({
        "type": "data-user-prompt",
        "id": format!("prompt-{}", row.turn),
        "data": {
            "turn": row.turn,
            "text": row.prompt,
            "complete": row.verdict == Verdict::Complete,
            "settled": row.settled_at.is_some(),
            "truncated": row.verdict == Verdict::Truncated,
            "reason": row.reason,
            "deliveryMode": row.delivery_mode,
        }
    })
    .to_string()
}

/// A settled turn that is not whole, where it ends.
pub fn incomplete_turn(row: &TurnRow, reason: TruncationReason) -> String {
    let mut data = json!({"turn": row.turn, "reason": reason, "stored": row.stored_parts});
    if let Some(expected) = row.expected_parts {
        data["expected"] = expected.into();
    }
    event("data-bex-incomplete", &data)
}

/// A range that is known to be missing, where it would stand.
pub fn incomplete_range(
    turn: TurnNo,
    reason: TruncationReason,
    from: PartIndex,
    to: PartIndex,
) -> String {
    let data = json!({"turn": turn, "reason": reason, "from": PartId { turn, index: from }, "to": PartId { turn, index: to }});
    event("data-bex-incomplete", &data)
}

/// A turn settled under a viewer, or did not in time.
pub fn turn_verdict(row: &TurnRow, healed: bool) -> String {
    let data =
        json!({"turn": row.turn, "verdict": row.verdict, "reason": row.reason, "healed": healed});
    event("data-bex-turn", &data)
}

/// The last event before `[DONE]`.
pub const FINISH: &str = r#"{"type":"finish"}"#;

fn event(kind: &str, data: &Value) -> String {
    json!({"type": kind, "data": data}).to_string()
}
