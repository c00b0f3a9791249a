use std::borrow::Cow;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::profile::Profile;
use super::scrub::scrub;
use super::shape;
use super::values::nests_too_deep;
use crate::limits;

macro_rules! kinds {
    ($($variant:ident = $word:literal),+ $(,)?) => {
        /// The `type` of a chunk.
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "each is the AI SDK's chunk of that type")]
        pub enum ChunkKind {
            $($variant),+,
            /// `data-…`, with its whole type.
            Data(Box<str>),
            /// A type no client knows.
            Unknown(Box<str>),
        }

        impl ChunkKind {
            /// The type as it stands in the chunk.
            pub fn as_str(&self) -> &str {
                match self { $(Self::$variant => $word),+, Self::Data(word) | Self::Unknown(word) => word }
            }
        }

        impl From<&str> for ChunkKind {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)+
                    data if data.starts_with("data-") => Self::Data(data.into()),
                    other => Self::Unknown(other.into()),
                }
            }
        }
    };
}

kinds! {
    Start = "start", Finish = "finish", Error = "error", Abort = "abort",
    StartStep = "start-step", FinishStep = "finish-step", MessageMetadata = "message-metadata",
    TextStart = "text-start", TextDelta = "text-delta", TextEnd = "text-end",
    ReasoningStart = "reasoning-start", ReasoningDelta = "reasoning-delta", ReasoningEnd = "reasoning-end",
    ToolInputStart = "tool-input-start", ToolInputDelta = "tool-input-delta",
    ToolInputAvailable = "tool-input-available", ToolInputError = "tool-input-error",
    ToolApprovalRequest = "tool-approval-request", ToolApprovalResponse = "tool-approval-response",
    ToolOutputAvailable = "tool-output-available", ToolOutputError = "tool-output-error", ToolOutputDenied = "tool-output-denied",
    SourceUrl = "source-url", SourceDocument = "source-document", File = "file", ReasoningFile = "reasoning-file",
    Custom = "custom",
}

/// What a client would do with a chunk as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Form {
    /// Take it.
    #[default]
    Clean,
    /// Refuse it and everything after it, for something that can be left out: an optional field of a wrong type, a key that its
    /// parser forbids.
    Odd,
    /// Refuse it and everything after it, for a required field that is missing or of a wrong type; or nobody can say what it
    /// belongs to, because its id is no Unicode, holds a NUL or is too long; or it nests too deep.
    Broken,
}

/// Whether a tool chunk says `dynamic: true`; call and output must agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Binding {
    /// Absent or false.
    #[default]
    Static,
    /// True.
    Dynamic,
}

/// What the plane needs to know of a chunk, read once where its bytes enter and kept in the store's columns, so that a
/// stream can be joined in the middle without its payloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkHead {
    /// Its type.
    pub kind: ChunkKind,
    /// `id`, or `toolCallId` of tool chunks.
    pub chunk_id: Option<Box<str>>,
    /// See [`Form`].
    pub form: Form,
    /// See [`Binding`].
    pub binding: Binding,
}

/// Separates the type from its marks in the kind column; no type has it.
const MARK: char = ';';

impl ChunkHead {
    /// Reads a chunk's head and checks that the whole text is one JSON object. `None` when it is not.
    pub fn read(text: &str) -> Option<Self> {
        let mut json = serde_json::Deserializer::from_str(text);
        let fields = json.deserialize_map(Reader).ok()?;
        json.end().ok()?;
        let kind = ChunkKind::from(fields.r#type?.as_ref());
        let is_tool = kind.as_str().starts_with("tool-");
        let chunk_id = if is_tool {
            fields.tool_call_id
        } else {
            fields.id
        };
        // an id that the store's column cannot hold is none anywhere, and neither is one that nobody could keep
        let chunk_id = chunk_id.filter(|id| id.len() <= limits::CHUNK_ID_BYTES && !holds(id, &[0]));
        let form = match shape::fit(&kind, &fields.seen) {
            _ if chunk_id.is_none() && shape::needs_id(&kind) => Form::Broken,
            _ if nests_too_deep(text) => Form::Broken,
            Form::Clean
                if holds(kind.as_str(), &[MARK as u8, 0])
                    || scrub(text, Profile::Current).is_some() =>
            {
                Form::Odd
            }
            form => form,
        };
        Some(Self {
            chunk_id: chunk_id.map(Into::into),
            form,
            binding: if is_tool && fields.dynamic {
                Binding::Dynamic
            } else {
                Binding::Static
            },
            kind,
        })
    }

    /// The kind column: the type, and the marks that are not the usual ones.
    pub fn kind_column(&self) -> Cow<'_, str> {
        let marks = match (self.form, self.binding) {
            (Form::Clean, Binding::Static) => return Cow::Borrowed(self.kind.as_str()),
            (Form::Clean, Binding::Dynamic) => "d",
            (Form::Odd, Binding::Static) => "o",
            (Form::Odd, Binding::Dynamic) => "od",
            (Form::Broken, Binding::Static) => "b",
            (Form::Broken, Binding::Dynamic) => "bd",
        };
        Cow::Owned(format!("{}{MARK}{marks}", self.kind.as_str()))
    }

    /// A head as the store's columns hold it.
    pub fn from_columns(kind: &str, chunk_id: Option<&str>) -> Self {
        let (kind, marks) = kind.rsplit_once(MARK).unwrap_or((kind, ""));
        Self {
            kind: kind.into(),
            chunk_id: chunk_id.map(Into::into),
            form: match marks.as_bytes().first() {
                Some(b'o') => Form::Odd,
                Some(b'b') => Form::Broken,
                _ => Form::Clean,
            },
            binding: if marks.contains('d') {
                Binding::Dynamic
            } else {
                Binding::Static
            },
        }
    }
}

/// Of texts that are short.
fn holds(text: &str, bytes: &[u8]) -> bool {
    text.bytes().any(|byte| bytes.contains(&byte))
}

/// What one pass over a chunk collects.
#[derive(Default)]
struct Fields<'a> {
    r#type: Option<Cow<'a, str>>,
    id: Option<Cow<'a, str>>,
    tool_call_id: Option<Cow<'a, str>>,
    dynamic: bool,
    /// Every known field and the sort of its value.
    seen: shape::Seen,
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a chunk")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Fields::default();
        while let Some(Key(key)) = map.next_key::<Key<'de>>()? {
            let Some(field) = shape::Field::of(&key) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = map.next_value::<&'de RawValue>()?;
            fields.seen.note(field, value);
            // the last of a repeated key counts, as in a browser
            match field {
                shape::Field::Type => fields.r#type = text_of(value),
                shape::Field::Id => fields.id = text_of(value),
                shape::Field::ToolCallId => fields.tool_call_id = text_of(value),
                shape::Field::Dynamic => fields.dynamic = value.get() == "true",
                _ => {}
            }
        }
        Ok(fields)
    }
}

fn text_of(value: &RawValue) -> Option<Cow<'_, str>> {
    let plain = value.get().strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', plain.as_bytes()).is_none() {
        return Some(Cow::Borrowed(plain));
    }
    serde_json::from_str::<Key<'_>>(value.get())
        .ok()
        .map(|key| key.0)
}

/// A string, borrowed where it has no escapes.
pub(super) struct Key<'a>(pub Cow<'a, str>);

impl<'de> serde::Deserialize<'de> for Key<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }
        d.deserialize_str(KeyVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> ChunkHead {
        ChunkHead::read(text).expect("a chunk")
    }

    #[test]
    fn heads_carry_the_id_their_kind_uses() {
        let tool = read(
            r#"{"toolCallId":"c","id":"x","type":"tool-input-start","toolName":"t","dynamic":true}"#,
        );
        assert_eq!(
            (tool.kind.as_str(), tool.chunk_id.as_deref(), tool.binding),
            ("tool-input-start", Some("c"), Binding::Dynamic)
        );
        let data = read(
            r#"{"type":"data-acp-plan","id":"p","data":{"deep":[1,{"x":"\ud800"}]},"transient":true}"#,
        );
        assert_eq!(
            (data.chunk_id.as_deref(), data.form),
            (Some("p"), Form::Clean)
        );
        assert!(matches!(
            read(r#"{"type":"brand-new"}"#).kind,
            ChunkKind::Unknown(_)
        ));
    }

    #[test]
    fn what_is_not_one_object_with_a_type_is_no_chunk() {
        for text in [
            "",
            "[]",
            "1",
            "{}",
            r#"{"type":1}"#,
            r#"{"type":"a"} x"#,
            r#"{"type":"a""#,
            r#"{"type":"a","type":7}"#,
        ] {
            assert_eq!(ChunkHead::read(text), None, "{text}");
        }
    }

    #[test]
    fn what_a_client_throws_on_is_named() {
        for text in [
            r#"{"type":"text-delta","id":7,"delta":"x"}"#,
            r#"{"type":"text-delta","id":"\ud800","delta":"x"}"#,
            r#"{"type":"tool-output-error","toolCallId":"a\u0000","errorText":"x"}"#,
            r#"{"type":"text-delta","id":"1"}"#,
            r#"{"type":"data-x"}"#,
            r#"{"type":"error","errorText":{}}"#,
        ] {
            assert_eq!(read(text).form, Form::Broken, "{text}");
        }
        let with_id = |length| {
            let id = "i".repeat(length);
            read(&format!(r#"{{"type":"text-start","id":"{id}"}}"#)).form
        };
        assert_eq!(with_id(limits::CHUNK_ID_BYTES), Form::Clean);
        assert_eq!(with_id(limits::CHUNK_ID_BYTES + 1), Form::Broken);
        for text in [
            r#"{"type":"text-start","id":"1","providerMetadata":null}"#,
            r#"{"type":"text-start","id":"1","providerMetadata":{"a":1}}"#,
            r#"{"type":"tool-output-available","toolCallId":"c"}"#,
            r#"{"type":"finish","finishReason":"interrupted"}"#,
            r#"{"type":"data-x","data":{"a":{"__proto__":1}}}"#,
            r#"{"type":"data-x","data":{"a":{"\u005f_proto__":1}}}"#,
            r#"{"type":"data-x","data":{"constructor":{"prototype":1}}}"#,
            r#"{"type":"data-x","data":{"__proto__":1,"a":"\ud800","b":1e999}}"#,
            r#"{"type":"text-end","id":"t","providerMetadata":{"a":{"n":1e999}}}"#,
            r#"{"type":"tool-input-start","toolCallId":"c","toolName":"x","inputEncoding":"yaml"}"#,
            r#"{"type":"tool-input-available","toolCallId":"c","toolName":"x","input":1,"toolMetadata":7}"#,
            r#"{"type":"text-end","id":"t","citations":[{}]}"#,
        ] {
            assert_eq!(read(text).form, Form::Odd, "{text}");
        }
        for text in [
            r#"{"type":"text-start","id":"1","providerMetadata":{"a":{}},"later":1}"#,
            r#"{"type":"tool-output-available","toolCallId":"c","output":null}"#,
            r#"{"type":"finish","finishReason":"stop"}"#,
            r#"{"type":"data-x","data":"__proto__ and constructor prototype in a text"}"#,
            r#"{"type":"data-x","data":{"constructor":1}}"#,
            r#"{"type":"data-x","data":null}"#,
            r#"{"type":"tool-input-start","toolCallId":"c","toolName":"x","inputEncoding":"text","toolMetadata":{"a":1}}"#,
            r#"{"type":"text-end","id":"t","citations":[{"source":{"type":"source","sourceType":"url","id":"s","url":"u"},"endIndex":3}]}"#,
        ] {
            assert_eq!(read(text).form, Form::Clean, "{text}");
        }
    }

    #[test]
    fn what_nests_too_deep_is_broken() {
        let deep = |n| {
            format!(
                r#"{{"type":"data-x","data":{}{}}}"#,
                "[".repeat(n),
                "]".repeat(n)
            )
        };
        assert_eq!(read(&deep(400)).form, Form::Clean);
        assert_eq!(read(&deep(400_000)).form, Form::Broken);
    }

    #[test]
    fn columns_round_trip() {
        for text in [
            r#"{"type":"text-delta","id":"a","delta":""}"#,
            r#"{"type":"tool-output-error","toolCallId":"a","errorText":"","dynamic":true}"#,
            r#"{"type":"data-x","data":1,"transient":true,"id":3}"#,
            r#"{"type":"brand;new","id":"a"}"#,
        ] {
            let head = read(text);
            assert_eq!(
                ChunkHead::from_columns(&head.kind_column(), head.chunk_id.as_deref()),
                head,
                "{text}"
            );
        }
    }
}
