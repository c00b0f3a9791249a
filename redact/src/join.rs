//! Which parts are pieces of one text: the deltas of a text, of a reasoning, of a tool's input.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json;

/// What kind of deltas a run has; ids of different kinds are different.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RunKind {
    Text,
    Reasoning,
    ToolInput,
}

/// The run a delta belongs to.
pub(crate) type RunKey = (RunKind, Vec<u8>);

/// The fields of a part that say what it is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Fields<'a> {
    #[serde(borrow)]
    r#type: &'a RawValue,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_call_id: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    #[serde(borrow)]
    input_text_delta: Option<&'a RawValue>,
}

/// What a part means for the runs.
pub(crate) enum Step<'a> {
    /// The next piece of a run; its text as the raw JSON string.
    Delta(RunKey, &'a RawValue),
    /// The run is over, or begins anew.
    Ends(RunKey),
    /// All runs are over.
    EndsAll,
    /// Nothing.
    Other,
}

/// What a part means for the runs.
pub(crate) fn step<'a>(fields: &Fields<'a>) -> Step<'a> {
    let kind = json::decode(body_of(fields.r#type)).text;
    let key = |kind, id: Option<&RawValue>| {
        id.map(|id| (kind, json::decode(body_of(id)).text.into_owned()))
    };
    let delta = |key: Option<RunKey>, value: Option<&'a RawValue>| match (key, value) {
        (Some(key), Some(value)) if value.get().starts_with('"') => Step::Delta(key, value),
        _ => Step::Other,
    };
    let ends = |key: Option<RunKey>| key.map_or(Step::Other, Step::Ends);
    match &kind[..] {
        b"text-delta" => delta(key(RunKind::Text, fields.id), fields.delta),
        b"reasoning-delta" => delta(key(RunKind::Reasoning, fields.id), fields.delta),
        b"tool-input-delta" => delta(
            key(RunKind::ToolInput, fields.tool_call_id),
            fields.input_text_delta,
        ),
        b"text-start" | b"text-end" => ends(key(RunKind::Text, fields.id)),
        b"reasoning-start" | b"reasoning-end" => ends(key(RunKind::Reasoning, fields.id)),
        b"tool-input-start" | b"tool-input-available" | b"tool-input-error" => {
            ends(key(RunKind::ToolInput, fields.tool_call_id))
        }
        // a client forgets its open runs here, so nothing can follow for their ids
        b"finish-step" | b"finish" | b"abort" => Step::EndsAll,
        _ => Step::Other,
    }
}

/// A JSON string without its quotes; any other value as it is.
pub(crate) fn body_of(value: &RawValue) -> &[u8] {
    let text = value.get();
    text.strip_prefix('"')
        .and_then(|t| t.strip_suffix('"'))
        .unwrap_or(text)
        .as_bytes()
}
