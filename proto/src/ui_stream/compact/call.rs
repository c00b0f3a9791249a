//! A whole call in the form that does not make a page run its tool again: a start and one delta.

use super::Begun;
use crate::ui_stream::chunk::{self, Chunk, Writing};

/// What a start alone begins. `None` where an input that is no JSON is announced: that does not go on with one.
pub(super) fn bare(start: &[u8]) -> Option<Begun> {
    let start = Chunk::read(start)?;
    let name = start.quoted("toolName")?;
    let is_json = start.get("inputEncoding").is_none();
    is_json.then(|| Begun::Bare(name.into()))
}

/// A call's input as one delta. `None` for a call that no page runs anyway.
pub(super) fn folded_call(call: &[u8]) -> Option<String> {
    let call = Chunk::read(call)?;
    if call.get("providerExecuted") == Some("true") {
        return None;
    }
    let mut delta = Writing::new("tool-input-delta");
    delta.field("toolCallId", call.get("toolCallId")?);
    delta.field("inputTextDelta", &chunk::json(call.get("input")?));
    Some(delta.done())
}

/// The start that a call makes for itself.
pub(super) struct Restart {
    pub(super) start: String,
    /// It says what the call's own start cannot have said.
    pub(super) says_more: bool,
}

pub(super) fn restarted(call: &[u8]) -> Restart {
    let mut start = Writing::new("tool-input-start");
    let mut says_more = false;
    for (name, value) in Chunk::read(call).iter().flat_map(Chunk::fields) {
        match name {
            "type" | "input" => continue,
            "toolCallId" | "toolName" | "dynamic" | "providerExecuted" => {}
            _ => says_more = true,
        }
        start.field(name, value.get());
    }
    Restart {
        start: start.done(),
        says_more,
    }
}
