//! The UI message stream a browser reads: what kinds of chunks there are, and how a stored conversation is put together
//! so that no client of it throws.

mod chunk;
mod citations;
mod compact;
mod guard;
mod head;
mod profile;
mod scrub;
mod shape;
mod values;

pub use compact::{Compact, Folded};
pub use guard::{Guard, Output, Place};
pub use head::{Binding, ChunkHead, ChunkKind, Form};
pub use profile::Profile;

use serde_json::json;

use crate::ids::{PartId, SessionId, TurnNo};

/// The `start` of a replay: the same id on every connection.
pub fn start_of_session(session: &SessionId) -> String {
    json!({"type": "start", "messageId": format!("durable-{session}")}).to_string()
}

/// The `start` of a posted turn: never the id of a replay.
pub fn start_of_turn(session: &SessionId, turn: TurnNo) -> String {
    json!({"type": "start", "messageId": format!("durable-{session}-{turn}")}).to_string()
}

/// The transient part that stands where replay ends and live begins.
pub fn live_marker(cursor: Option<PartId>) -> String {
    json!({"type": "data-bex-live", "data": {"cursor": cursor}, "transient": true}).to_string()
}

/// The in-stream end of a stream that did not end: tells where to resume.
pub fn resume_error(cause: &str, cursor: Option<PartId>) -> String {
    let text = match cursor {
        Some(cursor) => format!("{cause}; resume after {cursor}"),
        None => format!("{cause}; reconnect"),
    };
    json!({"type": "error", "errorText": text}).to_string()
}
