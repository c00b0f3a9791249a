use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};

use super::head::{ChunkHead, ChunkKind};
use crate::ids::TurnNo;

/// One chunk for a viewer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// The stored bytes, untouched; carries the part's id.
    Verbatim,
    /// A chunk the plane wrote itself; carries no id unless it takes a stored part's place.
    Written(Bytes),
}

/// Whether a turn is the one the stream ends with: its error is the stream's own, an earlier turn's is history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Another turn follows.
    Earlier,
    /// The last turn of the stream.
    Last,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    /// Its input is being streamed.
    Streaming,
    /// Its input is whole.
    Called,
    /// It has its output.
    Answered,
}

/// The repairing state machine of one viewer's stream.
///
/// A well-formed stream passes byte for byte. Where chunks are missing it closes what was open, starts what was not, and
/// leaves out what no client can place; it works from the heads alone and looks into a payload only where it must rewrite it.
///
/// The one `start` of the stream and its `finish` are the caller's; those of single turns are dropped here and their
/// metadata is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guard {
    text: Vec<Box<str>>,
    reasoning: Vec<Box<str>>,
    tools: BTreeMap<Box<str>, Tool>,
    in_step: bool,
}

impl Guard {
    /// A guard at the start of a message.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one stored chunk and gives what a viewer is sent for it, in order.
    pub fn push(
        &mut self,
        turn: TurnNo,
        place: Place,
        head: &ChunkHead,
        bytes: &[u8],
    ) -> Vec<Output> {
        let mut out = Vec::with_capacity(1);
        let id = head.chunk_id.as_deref();
        match &head.kind {
            ChunkKind::Start => out.extend(metadata_of(bytes)),
            ChunkKind::Finish => {
                self.close_open(&mut out);
                out.extend(metadata_of(bytes));
            }
            ChunkKind::Error => match place {
                Place::Last => out.push(Output::Verbatim),
                Place::Earlier => {
                    self.close_open(&mut out);
                    out.push(turn_error(turn, bytes));
                }
            },
            ChunkKind::Abort => {
                self.close_open(&mut out);
                out.push(Output::Verbatim);
            }
            ChunkKind::StartStep => {
                self.close_open(&mut out);
                self.settle_streaming_tools(&mut out);
                self.in_step = true;
                out.push(Output::Verbatim);
            }
            ChunkKind::FinishStep => {
                self.close_open(&mut out);
                self.in_step = false;
                out.push(Output::Verbatim);
            }
            ChunkKind::TextStart | ChunkKind::TextDelta | ChunkKind::TextEnd => {
                self.run(Run::Text, &head.kind, id, &mut out);
            }
            ChunkKind::ReasoningStart | ChunkKind::ReasoningDelta | ChunkKind::ReasoningEnd => {
                self.run(Run::Reasoning, &head.kind, id, &mut out);
            }
            ChunkKind::ToolInputStart
            | ChunkKind::ToolInputDelta
            | ChunkKind::ToolInputAvailable
            | ChunkKind::ToolInputError
            | ChunkKind::ToolOutputAvailable
            | ChunkKind::ToolOutputError
            | ChunkKind::ToolOutputDenied
            | ChunkKind::ToolApprovalRequest => self.tool(&head.kind, id, bytes, &mut out),
            ChunkKind::Unknown(_) => {}
            ChunkKind::MessageMetadata
            | ChunkKind::SourceUrl
            | ChunkKind::SourceDocument
            | ChunkKind::File
            | ChunkKind::ReasoningFile
            | ChunkKind::Custom
            | ChunkKind::ToolApprovalResponse
            | ChunkKind::Data(_) => out.push(Output::Verbatim),
        }
        out
    }

    /// Takes a chunk that the viewer already has: only the state moves.
    pub fn skip(&mut self, turn: TurnNo, head: &ChunkHead) {
        // heads alone decide the state; the payload is only looked at for what would be sent, which nobody is here
        let _ = self.push(turn, Place::Last, head, b"{}");
    }

    /// Parts are known to be missing here: what was open cannot be continued.
    pub fn gap(&mut self) -> Vec<Output> {
        let mut out = Vec::new();
        self.close_open(&mut out);
        out
    }

    /// The stream ends here: leaves nothing half-open.
    pub fn end(&mut self) -> Vec<Output> {
        let mut out = Vec::new();
        self.close_open(&mut out);
        for (id, tool) in &mut self.tools {
            if *tool != Tool::Answered {
                out.push(interrupted(id));
                *tool = Tool::Answered;
            }
        }
        if std::mem::take(&mut self.in_step) {
            out.push(written(json!({"type": "finish-step"})));
        }
        out
    }

    fn close_open(&mut self, out: &mut Vec<Output>) {
        out.extend(
            self.text
                .drain(..)
                .map(|id| written(json!({"type": "text-end", "id": id}))),
        );
        out.extend(
            self.reasoning
                .drain(..)
                .map(|id| written(json!({"type": "reasoning-end", "id": id}))),
        );
    }

    fn settle_streaming_tools(&mut self, out: &mut Vec<Output>) {
        for (id, tool) in &mut self.tools {
            if *tool == Tool::Streaming {
                out.push(interrupted(id));
                *tool = Tool::Answered;
            }
        }
    }

    fn run(&mut self, run: Run, kind: &ChunkKind, id: Option<&str>, out: &mut Vec<Output>) {
        let Some(id) = id else { return };
        let open = match run {
            Run::Text => &mut self.text,
            Run::Reasoning => &mut self.reasoning,
        };
        let at = open.iter().position(|o| &**o == id);
        match kind {
            ChunkKind::TextStart | ChunkKind::ReasoningStart => match at {
                Some(_) => out.push(written(json!({"type": run.end(), "id": id}))),
                None => open.push(id.into()),
            },
            ChunkKind::TextDelta | ChunkKind::ReasoningDelta => {
                if at.is_none() {
                    out.push(written(json!({"type": run.start(), "id": id})));
                    open.push(id.into());
                }
            }
            _ => match at {
                Some(at) => drop(open.remove(at)),
                None => return,
            },
        }
        out.push(Output::Verbatim);
    }

    fn tool(&mut self, kind: &ChunkKind, id: Option<&str>, bytes: &[u8], out: &mut Vec<Output>) {
        let Some(id) = id else { return };
        let state = self.tools.get(id).copied();
        let next = match kind {
            ChunkKind::ToolInputStart => Tool::Streaming,
            ChunkKind::ToolInputDelta if state == Some(Tool::Streaming) => Tool::Streaming,
            // without its start nobody knows the tool's name; the whole input follows anyway
            ChunkKind::ToolInputDelta => return,
            ChunkKind::ToolInputAvailable => Tool::Called,
            ChunkKind::ToolInputError => Tool::Answered,
            // cannot be answered without its input
            ChunkKind::ToolApprovalRequest if state.is_none() => return,
            ChunkKind::ToolApprovalRequest => state.unwrap_or(Tool::Called),
            _ => {
                if state.is_none() {
                    out.push(stand_in_call(id, bytes));
                }
                Tool::Answered
            }
        };
        self.tools.insert(id.into(), next);
        out.push(Output::Verbatim);
    }
}

#[derive(Clone, Copy)]
enum Run {
    Text,
    Reasoning,
}

impl Run {
    fn start(self) -> &'static str {
        match self {
            Run::Text => "text-start",
            Run::Reasoning => "reasoning-start",
        }
    }

    fn end(self) -> &'static str {
        match self {
            Run::Text => "text-end",
            Run::Reasoning => "reasoning-end",
        }
    }
}

fn written(chunk: Value) -> Output {
    Output::Written(Bytes::from(chunk.to_string()))
}

fn interrupted(id: &str) -> Output {
    written(json!({"type": "tool-output-error", "toolCallId": id, "errorText": "interrupted"}))
}

/// The metadata of a dropped start or finish.
fn metadata_of(bytes: &[u8]) -> Option<Output> {
    memchr::memmem::find(bytes, b"messageMetadata")?;
    let chunk: Value = serde_json::from_slice(bytes).ok()?;
    let metadata = chunk.get("messageMetadata").filter(|m| !m.is_null())?;
    Some(written(
        json!({"type": "message-metadata", "messageMetadata": metadata}),
    ))
}

fn turn_error(turn: TurnNo, bytes: &[u8]) -> Output {
    let chunk: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let text = chunk
        .get("errorText")
        .and_then(Value::as_str)
        .unwrap_or("the agent reported an error");
    written(json!({"type": "data-bex-turn-error", "data": {"turn": turn, "errorText": text}}))
}

/// The call of an output whose call is missing; `providerExecuted` keeps a page from running it.
fn stand_in_call(id: &str, output: &[u8]) -> Output {
    let output: Value = serde_json::from_slice(output).unwrap_or_default();
    let mut call = json!({"type": "tool-input-available", "toolCallId": id, "toolName": "unknown", "input": {}, "providerExecuted": true});
    if output.get("dynamic").and_then(Value::as_bool) == Some(true) {
        call["dynamic"] = Value::Bool(true);
    }
    written(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(guard: &mut Guard, place: Place, chunks: &[&str]) -> Vec<String> {
        let mut sent = Vec::new();
        for chunk in chunks {
            let head = ChunkHead::read(chunk).expect("a chunk");
            for out in guard.push(TurnNo(2), place, &head, chunk.as_bytes()) {
                sent.push(match out {
                    Output::Verbatim => (*chunk).to_owned(),
                    Output::Written(bytes) => String::from_utf8(bytes.to_vec()).expect("json"),
                });
            }
        }
        sent
    }

    fn texts(out: Vec<Output>) -> Vec<String> {
        out.into_iter()
            .map(|o| match o {
                Output::Written(b) => String::from_utf8(b.to_vec()).expect("json"),
                Output::Verbatim => panic!("nothing is stored here"),
            })
            .collect()
    }

    #[test]
    fn a_well_formed_stream_passes_byte_for_byte() {
        let chunks = [
            r#"{"type":"start-step"}"#,
            r#"{"type":"text-start","id":"t"}"#,
            r#"{"type":"text-delta","id":"t","delta":"a"}"#,
            r#"{ "type":"text-end","id":"t"}"#,
            r#"{"type":"tool-input-start","toolCallId":"c","toolName":"x"}"#,
            r#"{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"{}"}"#,
            r#"{"type":"tool-input-available","toolCallId":"c","toolName":"x","input":{}}"#,
            r#"{"type":"tool-output-available","toolCallId":"c","output":1}"#,
            r#"{"type":"finish-step"}"#,
            r#"{"type":"data-x","data":1}"#,
        ];
        let mut guard = Guard::new();
        assert_eq!(feed(&mut guard, Place::Last, &chunks), chunks);
        assert_eq!(guard.end(), []);
    }

    #[test]
    fn nested_ends_keep_only_their_metadata() {
        let mut guard = Guard::new();
        let sent = feed(
            &mut guard,
            Place::Last,
            &[
                r#"{"type":"start","messageId":"m","messageMetadata":{"a":1}}"#,
                r#"{"type":"text-start","id":"t"}"#,
                r#"{"type":"finish"}"#,
            ],
        );
        assert_eq!(
            sent,
            [
                r#"{"messageMetadata":{"a":1},"type":"message-metadata"}"#,
                r#"{"type":"text-start","id":"t"}"#,
                r#"{"id":"t","type":"text-end"}"#
            ]
        );
    }

    #[test]
    fn a_cut_head_is_started_and_a_cut_tail_is_closed() {
        let mut guard = Guard::new();
        let sent = feed(
            &mut guard,
            Place::Last,
            &[
                r#"{"type":"text-delta","id":"t","delta":"lo"}"#,
                r#"{"type":"reasoning-end","id":"r"}"#,
                r#"{"type":"tool-output-available","toolCallId":"c","output":1}"#,
                r#"{"type":"tool-input-start","toolCallId":"d","toolName":"x"}"#,
                r#"{"type":"start-step"}"#,
            ],
        );
        assert_eq!(
            sent,
            [
                r#"{"id":"t","type":"text-start"}"#,
                r#"{"type":"text-delta","id":"t","delta":"lo"}"#,
                r#"{"input":{},"providerExecuted":true,"toolCallId":"c","toolName":"unknown","type":"tool-input-available"}"#,
                r#"{"type":"tool-output-available","toolCallId":"c","output":1}"#,
                r#"{"type":"tool-input-start","toolCallId":"d","toolName":"x"}"#,
                r#"{"id":"t","type":"text-end"}"#,
                r#"{"errorText":"interrupted","toolCallId":"d","type":"tool-output-error"}"#,
                r#"{"type":"start-step"}"#,
            ]
        );
        assert_eq!(texts(guard.end()), [r#"{"type":"finish-step"}"#]);
    }

    #[test]
    fn an_earlier_error_is_history_and_the_last_one_is_the_streams() {
        let error = r#"{"type":"error","errorText":"boom"}"#;
        assert_eq!(
            feed(&mut Guard::new(), Place::Earlier, &[error]),
            [r#"{"data":{"errorText":"boom","turn":2},"type":"data-bex-turn-error"}"#]
        );
        assert_eq!(feed(&mut Guard::new(), Place::Last, &[error]), [error]);
    }

    #[test]
    fn state_can_be_rebuilt_from_heads_alone() {
        let chunks = [
            r#"{"type":"start-step"}"#,
            r#"{"type":"text-start","id":"t"}"#,
            r#"{"type":"tool-input-available","toolCallId":"c","toolName":"x","input":{}}"#,
        ];
        let (mut read, mut rebuilt) = (Guard::new(), Guard::new());
        feed(&mut read, Place::Last, &chunks);
        for chunk in chunks {
            rebuilt.skip(TurnNo(2), &ChunkHead::read(chunk).expect("a chunk"));
        }
        assert_eq!(read, rebuilt);
        assert_eq!(rebuilt.gap().len(), 1);
    }
}
