//! Which fields a chunk has and of what type: what every client's schema checks, and what it throws on.

use std::fmt;

use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::head::{ChunkKind, Form};
use super::profile::Profile;

macro_rules! fields {
    ($($variant:ident = $word:literal : $check:ident),+ $(,)?) => {
        /// A field that some chunk has.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Field { $($variant),+ }

        impl Field {
            #[cfg(test)]
            const ALL: &'static [Field] = &[$(Field::$variant),+];

            /// The field of that name.
            pub fn of(name: &str) -> Option<Self> {
                match name { $($word => Some(Self::$variant),)+ _ => None }
            }

            fn name(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            fn check(self) -> Check {
                match self { $(Self::$variant => Check::$check),+ }
            }
        }
    };
}

/// What a field's value must be.
#[derive(Clone, Copy)]
enum Check {
    Text,
    Bool,
    /// An object of objects.
    Metadata,
    Reason,
    Anything,
}

fields! {
    Type = "type": Text, Id = "id": Text, Delta = "delta": Text, ToolCallId = "toolCallId": Text, ToolName = "toolName": Text,
    InputTextDelta = "inputTextDelta": Text, ErrorText = "errorText": Text, SourceId = "sourceId": Text, Url = "url": Text,
    Title = "title": Text, MediaType = "mediaType": Text, Filename = "filename": Text, MessageId = "messageId": Text,
    ApprovalId = "approvalId": Text, Reason = "reason": Text, Kind = "kind": Text,
    ProviderExecuted = "providerExecuted": Bool, Dynamic = "dynamic": Bool, Approved = "approved": Bool,
    Transient = "transient": Bool, Preliminary = "preliminary": Bool,
    ProviderMetadata = "providerMetadata": Metadata, FinishReason = "finishReason": Reason,
    Input = "input": Anything, Output = "output": Anything, Data = "data": Anything, MessageMetadata = "messageMetadata": Anything,
}

/// A value by its first character; nothing is decoded, since a text may hold what is no Unicode (a lone surrogate's escape).
fn raw_fits(field: Field, value: &RawValue) -> bool {
    let text = value.get();
    match field.check() {
        Check::Text => text.starts_with('"'),
        Check::Bool => matches!(text, "true" | "false"),
        Check::Metadata => serde_json::from_str::<ObjectOfObjects>(text).is_ok(),
        Check::Reason => text.len() > 2 && REASONS.contains(&&text[1..text.len() - 1]),
        Check::Anything => true,
    }
}

/// Which known fields a chunk has, one bit each: present, and as every client wants it.
#[derive(Default, Clone, Copy)]
pub(super) struct Seen {
    present: u32,
    wrong: u32,
}

impl Seen {
    pub fn note(&mut self, field: Field, value: &RawValue) {
        let bit = 1 << field as u32;
        self.present |= bit;
        self.wrong = if raw_fits(field, value) {
            self.wrong & !bit
        } else {
            self.wrong | bit
        };
    }

    fn has(self, field: Field) -> bool {
        self.present & (1 << field as u32) != 0
    }
}

/// The finish reasons every version knows.
const REASONS: [&str; 6] = [
    "stop",
    "length",
    "content-filter",
    "tool-calls",
    "error",
    "other",
];

/// Required fields, optional fields since 5.0.0, and optional fields that came later.
type Spec = (&'static [Field], &'static [Field], &'static [Field]);

fn spec(kind: &ChunkKind) -> Option<Spec> {
    use Field::{
        ApprovalId, Approved, Data, Delta, Dynamic, ErrorText, Filename, FinishReason, Id, Input,
        InputTextDelta, MediaType, MessageId, MessageMetadata, Output, Preliminary,
        ProviderExecuted, ProviderMetadata, Reason, SourceId, Title, ToolCallId, ToolName,
        Transient, Url,
    };
    Some(match kind {
        ChunkKind::TextStart
        | ChunkKind::TextEnd
        | ChunkKind::ReasoningStart
        | ChunkKind::ReasoningEnd => (&[Id], &[ProviderMetadata], &[]),
        ChunkKind::TextDelta | ChunkKind::ReasoningDelta => {
            (&[Id, Delta], &[ProviderMetadata], &[])
        }
        ChunkKind::ToolInputStart => (
            &[ToolCallId, ToolName],
            &[ProviderExecuted, Dynamic],
            &[Title, ProviderMetadata],
        ),
        ChunkKind::ToolInputDelta => (&[ToolCallId, InputTextDelta], &[], &[]),
        ChunkKind::ToolInputAvailable => (
            &[ToolCallId, ToolName, Input],
            &[ProviderExecuted, ProviderMetadata, Dynamic],
            &[Title],
        ),
        ChunkKind::ToolInputError => (
            &[ToolCallId, ToolName, Input, ErrorText],
            &[ProviderExecuted, ProviderMetadata, Dynamic],
            &[Title],
        ),
        ChunkKind::ToolOutputAvailable => (
            &[ToolCallId, Output],
            &[ProviderExecuted, Dynamic],
            &[Preliminary, ProviderMetadata],
        ),
        ChunkKind::ToolOutputError => (
            &[ToolCallId, ErrorText],
            &[ProviderExecuted, Dynamic],
            &[ProviderMetadata],
        ),
        ChunkKind::ToolOutputDenied => (&[ToolCallId], &[], &[]),
        ChunkKind::ToolApprovalRequest => (&[ApprovalId, ToolCallId], &[], &[]),
        ChunkKind::ToolApprovalResponse => (
            &[ApprovalId, Approved],
            &[],
            &[Reason, ProviderExecuted, ProviderMetadata],
        ),
        ChunkKind::SourceUrl => (&[SourceId, Url], &[Title, ProviderMetadata], &[]),
        ChunkKind::SourceDocument => (
            &[SourceId, MediaType, Title],
            &[Filename, ProviderMetadata],
            &[],
        ),
        ChunkKind::File | ChunkKind::ReasoningFile => (&[Url, MediaType], &[ProviderMetadata], &[]),
        ChunkKind::Custom => (&[Field::Kind], &[ProviderMetadata], &[]),
        ChunkKind::StartStep | ChunkKind::FinishStep => (&[], &[], &[]),
        ChunkKind::Start => (&[], &[MessageId, MessageMetadata], &[]),
        ChunkKind::Finish => (&[], &[MessageMetadata], &[FinishReason]),
        ChunkKind::MessageMetadata => (&[MessageMetadata], &[], &[]),
        ChunkKind::Error => (&[ErrorText], &[], &[]),
        ChunkKind::Abort => (&[], &[], &[Reason]),
        ChunkKind::Data(_) => (&[Data], &[Id, Transient], &[]),
        ChunkKind::Unknown(_) => return None,
    })
}

/// What a client of a current version would do with a chunk of these fields. An absent `input` or `output` can be made null.
/// A kind that nobody knows is clean: it is wrapped anyway.
pub(super) fn fit(kind: &ChunkKind, seen: &Seen) -> Form {
    let Some((required, optional, later)) = spec(kind) else {
        return Form::Clean;
    };
    let wrong = |field: &Field| seen.wrong & (1 << *field as u32) != 0;
    let missing = |field: &Field| !seen.has(*field);
    if required
        .iter()
        .any(|f| wrong(f) || missing(f) && !matches!(f, Field::Input | Field::Output))
    {
        Form::Broken
    } else if required.iter().any(missing) || optional.iter().chain(later).any(wrong) {
        Form::Odd
    } else {
        Form::Clean
    }
}

/// Makes a chunk one that the profile's clients take: known fields of the right types only. `None` when a required one is
/// missing or wrong. An absent `input` or `output` becomes null.
pub(super) fn clean(
    chunk: &Map<String, Value>,
    kind: &ChunkKind,
    profile: Profile,
) -> Option<Map<String, Value>> {
    let (required, optional, later) = spec(kind)?;
    let mut kept = Map::new();
    kept.insert("type".into(), Value::from(kind.as_str()));
    for field in required {
        match (chunk.get(field.name()), field) {
            (Some(value), _) if value_fits(*field, value) => {
                kept.insert(field.name().into(), scrub(value))
            }
            (None, Field::Input | Field::Output) => kept.insert(field.name().into(), Value::Null),
            _ => return None,
        };
    }
    let rest: &[Field] = if profile == Profile::Strict5 {
        &[]
    } else {
        later
    };
    for field in optional.iter().chain(rest) {
        if let Some(value) = chunk
            .get(field.name())
            .filter(|v| !v.is_null() && value_fits(*field, v))
        {
            kept.insert(field.name().into(), scrub(value));
        }
    }
    if profile == Profile::Current {
        // what this table does not know is tolerated by current clients
        for (name, value) in chunk
            .iter()
            .filter(|(name, _)| Field::of(name).is_none() && !is_forbidden(name, &chunk[*name]))
        {
            kept.insert(name.clone(), scrub(value));
        }
    }
    Some(kept)
}

/// Whether a strict client of 5.0.0 takes the fields of this chunk.
pub(super) fn fits_strictly(chunk: &Map<String, Value>, kind: &ChunkKind) -> bool {
    let Some((required, optional, _)) = spec(kind) else {
        return false;
    };
    chunk.iter().all(|(name, value)| {
        name == "type"
            || Field::of(name).is_some_and(|f| {
                (required.contains(&f) || optional.contains(&f)) && value_fits(f, value)
            })
    }) && required.iter().all(|f| chunk.contains_key(f.name()))
}

fn value_fits(field: Field, value: &Value) -> bool {
    match field.check() {
        Check::Text => value.is_string(),
        Check::Bool => value.is_boolean(),
        Check::Metadata => value
            .as_object()
            .is_some_and(|o| o.values().all(Value::is_object)),
        Check::Reason => value.as_str().is_some_and(|r| REASONS.contains(&r)),
        Check::Anything => true,
    }
}

/// Whether a client's JSON parser refuses the whole text because of a key: `__proto__` anywhere, or `constructor` with an object
/// that has a `prototype`.
pub(super) fn has_forbidden_key(text: &str) -> bool {
    let suspicious = memchr::memmem::find(text.as_bytes(), b"proto").is_some()
        || has_letter_escape(text.as_bytes());
    suspicious && serde_json::from_str(text).is_ok_and(|value: Value| holds_forbidden_key(&value))
}

/// A `\u00xx` escape of an ASCII letter or underscore, which could spell a key.
fn has_letter_escape(text: &[u8]) -> bool {
    memchr::memmem::find_iter(text, br"\u00")
        .any(|at| matches!(text.get(at + 4), Some(b'5'..=b'7')))
}

fn is_forbidden(name: &str, value: &Value) -> bool {
    name == "__proto__" || (name == "constructor" && value.get("prototype").is_some())
}

fn holds_forbidden_key(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(holds_forbidden_key),
        Value::Object(fields) => fields
            .iter()
            .any(|(name, v)| is_forbidden(name, v) || holds_forbidden_key(v)),
        _ => false,
    }
}

/// The value without the keys that a client's parser refuses.
pub(super) fn scrub(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(scrub).collect(),
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, v)| !is_forbidden(name, v))
            .map(|(name, v)| (name.clone(), scrub(v)))
            .collect::<Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

/// Deserialises from an object whose values are objects, and from nothing else.
struct ObjectOfObjects;

impl<'de> serde::Deserialize<'de> for ObjectOfObjects {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_map(Self)
    }
}

impl<'de> Visitor<'de> for ObjectOfObjects {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_key::<IgnoredAny>()?.is_some() {
            if !map.next_value::<&RawValue>()?.get().starts_with('{') {
                return Err(A::Error::custom("a value is no object"));
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_a_bit() {
        assert!(Field::ALL.len() <= 32);
        for field in Field::ALL {
            assert_eq!(Field::of(field.name()), Some(*field));
        }
    }

    #[test]
    fn cleaning_keeps_what_clients_take() {
        let chunk: Map<String, Value> = serde_json::from_str(
            r#"{"type":"tool-output-available","toolCallId":"c","output":{"a":{"__proto__":1,"b":2}},"dynamic":null,"providerMetadata":{"x":1},"preliminary":true,"later":1}"#,
        )
        .expect("an object");
        let kind = ChunkKind::ToolOutputAvailable;
        let current = Value::from(clean(&chunk, &kind, Profile::Current).expect("repairable"));
        assert_eq!(
            current,
            serde_json::json!({"type":"tool-output-available","toolCallId":"c","output":{"a":{"b":2}},"preliminary":true,"later":1})
        );
        let strict = clean(&chunk, &kind, Profile::Strict5).expect("repairable");
        assert!(fits_strictly(&strict, &kind));
        assert_eq!(
            Value::from(strict),
            serde_json::json!({"type":"tool-output-available","toolCallId":"c","output":{"a":{"b":2}}})
        );
        assert!(!fits_strictly(&chunk, &kind));
    }
}
