//! Which fields a chunk has and of what type: what every client's schema checks, and what it throws on.

use std::fmt;

use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::chunk::{Chunk, Writing};
use super::citations::are_citations;
use super::head::{Binding, ChunkKind, Form};
use super::profile::Profile;
use super::scrub::scrub;
use super::values::numbers_are_finite;

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
    /// An object of objects, whose numbers are finite as everywhere in metadata.
    Metadata,
    Object,
    Reason,
    Encoding,
    Citations,
    Anything,
}

fields! {
    Type = "type": Text, Id = "id": Text, Delta = "delta": Text, ToolCallId = "toolCallId": Text, ToolName = "toolName": Text,
    InputTextDelta = "inputTextDelta": Text, ErrorText = "errorText": Text, SourceId = "sourceId": Text, Url = "url": Text,
    Title = "title": Text, MediaType = "mediaType": Text, Filename = "filename": Text, MessageId = "messageId": Text,
    ApprovalId = "approvalId": Text, Reason = "reason": Text, Kind = "kind": Text,
    ProviderExecuted = "providerExecuted": Bool, Dynamic = "dynamic": Bool, Approved = "approved": Bool,
    Transient = "transient": Bool, Preliminary = "preliminary": Bool,
    ProviderMetadata = "providerMetadata": Metadata, ToolMetadata = "toolMetadata": Object,
    FinishReason = "finishReason": Reason, InputEncoding = "inputEncoding": Encoding, Citations = "citations": Citations,
    Input = "input": Anything, Output = "output": Anything, Data = "data": Anything, MessageMetadata = "messageMetadata": Anything,
}

/// A value by its first character; nothing is decoded, since a text may hold what is no Unicode (a lone surrogate's escape).
pub(super) fn raw_fits(field: Field, text: &str) -> bool {
    match field.check() {
        Check::Text => text.starts_with('"'),
        Check::Bool => matches!(text, "true" | "false"),
        Check::Metadata => {
            serde_json::from_str::<ObjectOfObjects>(text).is_ok() && numbers_are_finite(text)
        }
        Check::Object => text.starts_with('{') && numbers_are_finite(text),
        Check::Encoding => matches!(text, r#""json""# | r#""text""#),
        Check::Citations => are_citations(text),
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
        self.wrong = if raw_fits(field, value.get()) {
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
        ApprovalId, Approved, Citations, Data, Delta, Dynamic, ErrorText, Filename, FinishReason,
        Id, Input, InputEncoding, InputTextDelta, MediaType, MessageId, MessageMetadata, Output,
        Preliminary, ProviderExecuted, ProviderMetadata, Reason, SourceId, Title, ToolCallId,
        ToolMetadata, ToolName, Transient, Url,
    };
    Some(match kind {
        ChunkKind::TextStart | ChunkKind::ReasoningStart | ChunkKind::ReasoningEnd => {
            (&[Id], &[ProviderMetadata], &[])
        }
        ChunkKind::TextEnd => (&[Id], &[ProviderMetadata], &[Citations]),
        ChunkKind::TextDelta | ChunkKind::ReasoningDelta => {
            (&[Id, Delta], &[ProviderMetadata], &[])
        }
        ChunkKind::ToolInputStart => (
            &[ToolCallId, ToolName],
            &[ProviderExecuted, Dynamic],
            &[Title, ProviderMetadata, ToolMetadata, InputEncoding],
        ),
        ChunkKind::ToolInputDelta => (&[ToolCallId, InputTextDelta], &[], &[]),
        ChunkKind::ToolInputAvailable => (
            &[ToolCallId, ToolName, Input],
            &[ProviderExecuted, ProviderMetadata, Dynamic],
            &[Title, ToolMetadata],
        ),
        ChunkKind::ToolInputError => (
            &[ToolCallId, ToolName, Input, ErrorText],
            &[ProviderExecuted, ProviderMetadata, Dynamic],
            &[Title, ToolMetadata],
        ),
        ChunkKind::ToolOutputAvailable => (
            &[ToolCallId, Output],
            &[ProviderExecuted, Dynamic],
            &[Preliminary, ProviderMetadata, ToolMetadata],
        ),
        ChunkKind::ToolOutputError => (
            &[ToolCallId, ErrorText],
            &[ProviderExecuted, Dynamic],
            &[ProviderMetadata, ToolMetadata],
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

/// Whether a chunk is part of what its id names.
pub(super) fn needs_id(kind: &ChunkKind) -> bool {
    let names = |field: &Field| matches!(field, Field::Id | Field::ToolCallId);
    spec(kind).is_some_and(|(required, ..)| required.iter().any(names))
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

/// Makes a chunk one that the profile's clients take: known fields of the right types only, and `dynamic` as its call has it where
/// that is known. `None` when a required field is missing or wrong. An absent `input` or `output` becomes null. Every value that
/// stays does so as it is written.
pub(super) fn clean(
    bytes: &[u8],
    kind: &ChunkKind,
    profile: Profile,
    bind: Option<Binding>,
) -> Option<String> {
    let (required, optional, later) = spec(kind)?;
    let chunk = Chunk::read(bytes)?;
    let mut kept = Writing::new(kind.as_str());
    for field in required {
        match (chunk.get(field.name()), field) {
            (Some(value), _) if raw_fits(*field, value) => kept.field(field.name(), value),
            (None, Field::Input | Field::Output) => kept.field(field.name(), "null"),
            _ => return None,
        };
    }
    let current = profile == Profile::Current;
    let later = later.iter().filter(|_| current);
    for field in optional.iter().chain(later) {
        let value = match (field, bind) {
            (Field::Dynamic, Some(binding)) => (binding == Binding::Dynamic).then_some("true"),
            _ => chunk.get(field.name()),
        };
        if let Some(value) = value.filter(|v| *v != "null" && raw_fits(*field, v)) {
            kept.field(field.name(), value);
        }
    }
    // what this table does not know is tolerated by current clients
    for (name, value) in chunk.fields().filter(|_| current) {
        if Field::of(name).is_none() {
            kept.field(name, value.get());
        }
    }
    let kept = kept.done();
    Some(scrub(&kept, profile).unwrap_or(kept))
}

/// Whether a strict client of 5.0.0 takes this chunk as it is.
pub(super) fn fits_strictly(bytes: &[u8], kind: &ChunkKind) -> bool {
    let (Some((required, optional, _)), Some(chunk)) = (spec(kind), Chunk::read(bytes)) else {
        return false;
    };
    let fits = |(name, value): (&str, &RawValue)| {
        let field = Field::of(name).filter(|f| required.contains(f) || optional.contains(f));
        name == "type" || field.is_some_and(|f| raw_fits(f, value.get()))
    };
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    chunk.fields().all(fits)
        && required.iter().all(|f| chunk.get(f.name()).is_some())
        && scrub(text, Profile::Strict5).is_none()
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
        let chunk = br#"{"type":"tool-output-available","toolCallId":"c","output":{"a":{"__proto__":1,"b":2}},"dynamic":null,"providerMetadata":{"x":1},"preliminary":true,"later":1}"#;
        let kind = ChunkKind::ToolOutputAvailable;
        let cleaned = |profile, bind| clean(chunk, &kind, profile, bind).expect("repairable");
        assert_eq!(
            cleaned(Profile::Current, None),
            r#"{"type":"tool-output-available","toolCallId":"c","output":{"a":{"b":2}},"preliminary":true,"later":1}"#
        );
        let strict = cleaned(Profile::Strict5, Some(Binding::Dynamic));
        assert_eq!(
            strict,
            r#"{"type":"tool-output-available","toolCallId":"c","output":{"a":{"b":2}},"dynamic":true}"#
        );
        assert!(fits_strictly(strict.as_bytes(), &kind));
        assert!(!fits_strictly(chunk, &kind));
    }

    #[test]
    fn what_no_decoder_takes_is_kept_as_it_is_written() {
        let chunk = br#"{"delta":"half \ud83d","type":"text-delta","id":"t","x":{"n":1e999,"m":12345678901234567890123}}"#;
        let kind = ChunkKind::TextDelta;
        assert_eq!(
            clean(chunk, &kind, Profile::Strict5, None).as_deref(),
            Some(r#"{"type":"text-delta","id":"t","delta":"half \ud83d"}"#)
        );
        assert_eq!(
            clean(chunk, &kind, Profile::Current, None).as_deref(),
            Some(
                r#"{"type":"text-delta","id":"t","delta":"half \ud83d","x":{"n":1e999,"m":12345678901234567890123}}"#
            )
        );
        assert!(fits_strictly(
            br#"{"type":"text-delta","id":"t","delta":"\ude00"}"#,
            &kind
        ));
        let null = br#"{"type":"data-x","data":{"constructor":null}}"#;
        assert!(!fits_strictly(null, &ChunkKind::Data("data-x".into())));
    }
}
