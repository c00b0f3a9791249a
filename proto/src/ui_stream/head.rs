use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;

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
            /// The type as it stands in the chunk and in the store's kind column.
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

/// What the plane needs to know of a chunk, read once where its bytes enter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkHead {
    /// Its type.
    pub kind: ChunkKind,
    /// `id`, or `toolCallId` of tool chunks.
    pub chunk_id: Option<Box<str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(borrow, default)]
    tool_call_id: Option<Text<'a>>,
}

/// A string where one is expected; anything else is left to the guard.
#[derive(Deserialize)]
#[serde(untagged)]
enum Text<'a> {
    Is(#[serde(borrow)] Cow<'a, str>),
    Not(IgnoredAny),
}

impl ChunkHead {
    /// Reads a chunk's head and checks that the whole text is one JSON object. `None` when it is not.
    pub fn read(text: &str) -> Option<Self> {
        let fields: Fields<'_> = serde_json::from_str(text).ok()?;
        let kind = ChunkKind::from(fields.r#type.as_ref());
        let id = if kind.as_str().starts_with("tool-") {
            fields.tool_call_id
        } else {
            fields.id
        };
        let chunk_id = id.and_then(|id| match id {
            Text::Is(id) => Some(id.into()),
            Text::Not(_) => None,
        });
        Some(Self { kind, chunk_id })
    }

    /// A head as the store's columns hold it.
    pub fn from_columns(kind: &str, chunk_id: Option<&str>) -> Self {
        Self {
            kind: kind.into(),
            chunk_id: chunk_id.map(Into::into),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_carry_the_id_their_kind_uses() {
        let tool = ChunkHead::read(
            r#"{"toolCallId":"c","id":"x","type":"tool-input-start","toolName":"t"}"#,
        )
        .expect("a chunk");
        assert_eq!(
            tool,
            ChunkHead {
                kind: ChunkKind::ToolInputStart,
                chunk_id: Some("c".into())
            }
        );
        let data = ChunkHead::read(
            r#"{"type":"data-acp-plan","id":"p","data":{"deep":[1,{"x":"\ud800"}]}}"#,
        )
        .expect("a chunk");
        assert_eq!(
            data,
            ChunkHead {
                kind: ChunkKind::Data("data-acp-plan".into()),
                chunk_id: Some("p".into())
            }
        );
        let odd = ChunkHead::read(r#"{"type":"text-delta","id":7,"delta":"x"}"#).expect("a chunk");
        assert_eq!(odd.chunk_id, None);
        assert!(matches!(
            ChunkHead::read(r#"{"type":"brand-new"}"#),
            Some(ChunkHead {
                kind: ChunkKind::Unknown(_),
                ..
            })
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
            r#"{"type":"a","type":"b"}"#,
        ] {
            assert_eq!(ChunkHead::read(text), None, "{text}");
        }
    }

    #[test]
    fn columns_round_trip() {
        for word in ["text-delta", "data-x", "brand-new", "tool-output-denied"] {
            assert_eq!(ChunkHead::from_columns(word, None).kind.as_str(), word);
        }
    }
}
