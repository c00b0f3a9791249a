//! The chunks that the guard writes itself. What they take over from stored ones they take as it is written there.

use bytes::Bytes;
use serde_json::{Value, json};

use super::Output;
use crate::ids::TurnNo;
use crate::ui_stream::chunk::{self, Chunk, Writing};
use crate::ui_stream::head::Binding;
use crate::ui_stream::profile::Profile;
use crate::ui_stream::scrub::scrubbed;
use crate::ui_stream::values::nests_too_deep;

pub(super) fn written(chunk: Value) -> Output {
    Output::Written(Bytes::from(chunk.to_string()))
}

fn done(mut chunk: Writing) -> Output {
    Output::Written(Bytes::from(chunk.done()))
}

fn bound(mut chunk: Writing, binding: Binding) -> Output {
    if binding == Binding::Dynamic {
        chunk.field("dynamic", "true");
    }
    done(chunk)
}

/// A call that never got its output.
pub(super) fn interrupted(id: &str, binding: Binding) -> Output {
    output_error(id, binding, r#""interrupted""#)
}

/// `tool-output-denied` as an error: not every client knows it.
pub(super) fn denied(id: &str, binding: Binding, bytes: &[u8]) -> Output {
    let chunk = Chunk::read(bytes);
    let reason = chunk.and_then(|c| c.quoted("reason"));
    output_error(id, binding, reason.unwrap_or(r#""denied""#))
}

fn output_error(id: &str, binding: Binding, quoted: &str) -> Output {
    let mut chunk = Writing::new("tool-output-error");
    chunk.field("toolCallId", &chunk::json(id));
    chunk.field("errorText", quoted);
    bound(chunk, binding)
}

/// The call of an output whose call is missing; `providerExecuted` keeps a page from running it.
pub(super) fn stand_in_call(id: &str, binding: Binding) -> Output {
    call(id, binding, r#""unknown""#, "{}")
}

fn call(id: &str, binding: Binding, quoted_name: &str, input: &str) -> Output {
    let mut chunk = Writing::new("tool-input-available");
    chunk.field("toolCallId", &chunk::json(id));
    chunk.field("toolName", quoted_name);
    chunk.field("input", input);
    chunk.field("providerExecuted", "true");
    bound(chunk, binding)
}

/// `tool-input-error` for clients that do not know it.
pub(super) fn input_error_in_two(
    id: &str,
    binding: Binding,
    bytes: &[u8],
    profile: Profile,
) -> Option<[Output; 2]> {
    let chunk = Chunk::read(bytes)?;
    let name = chunk.quoted("toolName").unwrap_or(r#""unknown""#);
    let input = scrubbed(chunk.get("input").unwrap_or("null"), profile);
    let text = chunk.quoted("errorText").unwrap_or(r#""invalid input""#);
    Some([
        call(id, binding, name, &input),
        output_error(id, binding, text),
    ])
}

/// A chunk as data: any client keeps it, none interprets it. As a text where clients could not hold it.
pub(super) fn wrapped(bytes: &[u8], profile: Profile) -> Option<Output> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut chunk = Writing::new("data-bex-chunk");
    if nests_too_deep(text) {
        chunk.field("data", &chunk::json(text));
    } else {
        chunk.field("data", &scrubbed(text, profile));
    }
    Some(done(chunk))
}

/// The metadata of a dropped start or finish.
pub(super) fn metadata_of(bytes: &[u8], profile: Profile) -> Option<Output> {
    memchr::memmem::find(bytes, b"messageMetadata")?;
    let metadata = Chunk::read(bytes)?
        .get("messageMetadata")
        .filter(|m| *m != "null")?;
    let mut chunk = Writing::new("message-metadata");
    chunk.field("messageMetadata", &scrubbed(metadata, profile));
    Some(done(chunk))
}

/// An error that was not the end, as history.
pub(super) fn turn_error(turn: TurnNo, bytes: &[u8]) -> Output {
    let chunk = Chunk::read(bytes);
    let text = chunk.and_then(|c| c.quoted("errorText"));
    let text = text.unwrap_or(r#""the agent reported an error""#);
    let mut chunk = Writing::new("data-bex-turn-error");
    chunk.field(
        "data",
        &format!(r#"{{"turn":{},"errorText":{text}}}"#, json!(turn)),
    );
    done(chunk)
}
