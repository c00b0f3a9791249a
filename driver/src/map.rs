//! What an ACP agent reports, as parts of a UI message stream.
//!
//! One mapper per turn. Text and thoughts become blocks with a start and an end; a tool call becomes its input and later its
//! output; plans, diffs and terminals become data parts with stable ids, so that an update replaces what it updates; everything
//! else is a transient `data-acp-<kind>`. The agent's echo of the prompt is left out. Ids carry the turn, because a replay shows
//! all turns as one message.

mod tools;

use agent_client_protocol::v1::schema::{
    ContentBlock, ContentChunk, EmbeddedResourceResource, MessageId, PermissionOptionId,
    RequestPermissionRequest, SessionUpdate,
};
use bex_proto::ids::TurnNo;
use jiff::Timestamp;
use serde_json::{Value, json};

use tools::Tools;

/// Largest text of one delta: an escape takes six bytes for one.
const PIECE_BYTES: usize = bex_proto::limits::PART_BYTES / 8;

/// Maps one turn.
#[derive(Debug)]
pub struct Mapper {
    turn: TurnNo,
    blocks: u32,
    open: Option<Block>,
    tools: Tools,
}

/// A text or a thought being spoken.
#[derive(Debug)]
struct Block {
    kind: BlockKind,
    id: String,
    message: Option<MessageId>,
    at: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    Text,
    Reasoning,
}

impl BlockKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Reasoning => "reasoning",
        }
    }
}

impl Mapper {
    /// A mapper at the start of a turn.
    pub fn new(turn: TurnNo) -> Self {
        Self {
            turn,
            blocks: 0,
            open: None,
            tools: Tools::new(turn),
        }
    }

    /// Appends the parts that an update becomes. `now` is the driver's clock.
    pub fn update(&mut self, update: SessionUpdate, now: Timestamp, out: &mut Vec<Value>) {
        match update {
            SessionUpdate::UserMessageChunk(_) => {}
            SessionUpdate::AgentMessageChunk(chunk) => {
                self.chunk(BlockKind::Text, chunk, now, out);
            }
            SessionUpdate::AgentThoughtChunk(chunk) => {
                self.chunk(BlockKind::Reasoning, chunk, now, out);
            }
            SessionUpdate::ToolCall(call) => {
                self.close(now, out);
                self.tools.call(call, now, out);
            }
            SessionUpdate::ToolCallUpdate(update) => {
                self.close(now, out);
                self.tools.update(update, now, out);
            }
            SessionUpdate::Plan(plan) => out.push(json!({
                "type": "data-acp-plan",
                "id": format!("plan-{}", self.turn),
                "data": {"entries": plan.entries},
            })),
            other => out.extend(transient(&other)),
        }
    }

    /// What became of a permission request; `selected` is the option that was chosen by the profile.
    pub fn permission(
        &mut self,
        request: &RequestPermissionRequest,
        selected: Option<&PermissionOptionId>,
        out: &mut Vec<Value>,
    ) {
        out.push(json!({
            "type": "data-acp-permission",
            "data": {
                "toolCallId": tools::shown_id(self.turn, &request.tool_call.tool_call_id.0),
                "toolCall": request.tool_call.fields,
                "options": request.options,
                "selected": selected,
            },
        }));
    }

    /// Ends what is open, at the turn's end.
    pub fn end(&mut self, now: Timestamp, out: &mut Vec<Value>) {
        self.close(now, out);
    }

    fn chunk(
        &mut self,
        kind: BlockKind,
        chunk: ContentChunk,
        now: Timestamp,
        out: &mut Vec<Value>,
    ) {
        let ContentBlock::Text(text) = chunk.content else {
            self.close(now, out);
            out.push(attachment(&chunk.content));
            return;
        };
        let same = self.open.as_ref().is_some_and(|open| {
            open.kind == kind && (chunk.message_id.is_none() || open.message == chunk.message_id)
        });
        if !same {
            self.close(now, out);
            out.push(self.begin(kind, chunk.message_id, now));
        }
        if let Some(open) = &self.open {
            for piece in pieces(&text.text) {
                out.push(json!({"type": format!("{}-delta", kind.as_str()), "id": open.id, "delta": piece}));
            }
        }
    }

    fn begin(&mut self, kind: BlockKind, message: Option<MessageId>, now: Timestamp) -> Value {
        let block = Block {
            kind,
            id: format!("t{}-{}", self.turn, self.blocks),
            message,
            at: bex_proto::time::format(now),
        };
        self.blocks += 1;
        let part = json!({
            "type": format!("{}-start", kind.as_str()),
            "id": block.id,
            "providerMetadata": {"bex": {"at": block.at}},
        });
        self.open = Some(block);
        part
    }

    fn close(&mut self, now: Timestamp, out: &mut Vec<Value>) {
        if let Some(open) = self.open.take() {
            out.push(json!({
                "type": format!("{}-end", open.kind.as_str()),
                "id": open.id,
                "providerMetadata": {"bex": {"at": open.at, "endAt": bex_proto::time::format(now)}},
            }));
        }
    }
}

/// A text in pieces that each fit a part even when every byte of them is escaped; no character is cut.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let (piece, after) = text.split_at(text.floor_char_boundary(PIECE_BYTES));
        rest = (!after.is_empty()).then_some(after);
        Some(piece)
    })
}

/// Content that is not text.
fn attachment(content: &ContentBlock) -> Value {
    match content {
        ContentBlock::Image(image) => file(&image.mime_type, &image.data),
        ContentBlock::Audio(audio) => file(&audio.mime_type, &audio.data),
        ContentBlock::ResourceLink(link) => json!({
            "type": "source-url",
            "sourceId": link.uri,
            "url": link.uri,
            "title": link.title.as_deref().unwrap_or(&link.name),
        }),
        other => json!({"type": "data-acp-content", "data": other}),
    }
}

fn file(media_type: &str, base64: &str) -> Value {
    json!({"type": "file", "mediaType": media_type, "url": format!("data:{media_type};base64,{base64}")})
}

/// The text of a content block, where it has one.
fn text_of(content: &ContentBlock) -> Option<&str> {
    match content {
        ContentBlock::Text(text) => Some(&text.text),
        ContentBlock::Resource(resource) => match &resource.resource {
            EmbeddedResourceResource::TextResourceContents(text) => Some(&text.text),
            _ => None,
        },
        _ => None,
    }
}

/// `data-acp-<kind>` for whatever else an agent reports: shown while it is live, nothing a reader of the conversation needs.
fn transient(update: &SessionUpdate) -> Option<Value> {
    let Ok(Value::Object(mut data)) = serde_json::to_value(update) else {
        return None;
    };
    let kind = data.remove("sessionUpdate")?;
    let kind = kind.as_str()?.trim_end_matches("_update").replace('_', "-");
    Some(json!({"type": format!("data-acp-{kind}"), "data": data, "transient": true}))
}

#[cfg(test)]
mod tests;
