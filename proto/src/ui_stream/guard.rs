use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::head::{Binding, ChunkHead, ChunkKind, Form};
use super::profile::Profile;
use super::shape;
use crate::ids::TurnNo;

/// One chunk for a viewer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// The stored bytes, untouched.
    Verbatim,
    /// A chunk the plane wrote itself, or a stored one that had to be rewritten.
    Written(Bytes),
}

/// Whether an error is the stream's own or history: a client stops reading at an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// More of the conversation follows.
    Earlier,
    /// Nothing follows, or nobody knows yet.
    Last,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Its input is being streamed.
    Streaming,
    /// Its input is whole.
    Called,
    /// It has its output.
    Answered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tool {
    progress: Progress,
    binding: Binding,
    step: u32,
    origin: Origin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The agent called it.
    Agent,
    /// Its call was lost; the guard wrote one.
    StandIn,
}

/// The repairing state machine of one viewer's stream.
///
/// A well-formed stream passes byte for byte. Where chunks are missing the guard closes what was open and starts what was not;
/// what no client can place is left out, what a client does not know is wrapped in `data-bex-chunk`. It works from the
/// heads and looks into a payload only where it must rewrite it, so its state can be rebuilt from the store's columns.
///
/// The one `start` of the stream and its `finish` are the caller's; those of single turns are dropped here and their
/// metadata is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guard {
    profile: Profile,
    text: Vec<Box<str>>,
    reasoning: Vec<Box<str>>,
    tools: BTreeMap<Box<str>, Tool>,
    in_step: bool,
    step: u32,
}

/// What becomes of the pushed chunk itself.
enum Fate {
    /// It goes out: verbatim if it can.
    Pass,
    /// It goes out with its call's `dynamic`.
    Bind(Binding),
    /// Clients do not know it.
    Wrap,
    /// It has no place.
    Drop,
    /// It was answered by what was written.
    Replaced,
}

impl Guard {
    /// A guard at the start of a message, for current clients.
    pub fn new() -> Self {
        Self::default()
    }

    /// A guard for the clients of a profile.
    pub fn for_profile(profile: Profile) -> Self {
        Self {
            profile,
            ..Self::default()
        }
    }

    /// Whose clients it works for.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// Takes one stored chunk and appends what a viewer is sent for it, in order.
    pub fn push(
        &mut self,
        turn: TurnNo,
        place: Place,
        head: &ChunkHead,
        bytes: &[u8],
        out: &mut Vec<Output>,
    ) {
        let fate = match head.form {
            Form::Broken => Fate::Wrap,
            Form::Clean | Form::Odd => self.step(turn, place, head, bytes, out),
        };
        match fate {
            Fate::Pass => self.pass(head, None, bytes, out),
            Fate::Bind(binding) => self.pass(head, Some(binding), bytes, out),
            Fate::Wrap => out.extend(wrapped(bytes)),
            Fate::Drop | Fate::Replaced => {}
        }
    }

    /// Takes a chunk that the viewer already has: only the state moves.
    pub fn skip(&mut self, turn: TurnNo, head: &ChunkHead) {
        if head.form != Form::Broken {
            // the state depends on heads alone; a payload is only needed for what would be sent, which nobody is here
            let _ = self.step(turn, Place::Last, head, b"{}", &mut Vec::new());
        }
    }

    /// Starts again the text and reasoning that is open here, for a viewer that lost its state. The guard's state stays.
    pub fn reopen(&self, out: &mut Vec<Output>) {
        let text = self.text.iter().map(|id| ("text-start", id));
        let reasoning = self.reasoning.iter().map(|id| ("reasoning-start", id));
        out.extend(
            text.chain(reasoning)
                .map(|(start, id)| written(json!({"type": start, "id": id}))),
        );
    }

    /// Whether a tool call is begun here and has no output yet.
    pub fn is_open_tool(&self, id: &str) -> bool {
        self.tools
            .get(id)
            .is_some_and(|tool| tool.progress != Progress::Answered)
    }

    /// Parts are known to be missing here: what was open cannot be continued.
    pub fn gap(&mut self, out: &mut Vec<Output>) {
        self.close_open(out);
    }

    /// The stream ends here: leaves nothing half-open.
    pub fn end(&mut self, out: &mut Vec<Output>) {
        self.close_open(out);
        for (id, tool) in &mut self.tools {
            if tool.progress != Progress::Answered {
                out.push(interrupted(id, tool.binding));
                tool.progress = Progress::Answered;
            }
        }
        if std::mem::take(&mut self.in_step) {
            out.push(written(json!({"type": "finish-step"})));
        }
    }

    fn step(
        &mut self,
        turn: TurnNo,
        place: Place,
        head: &ChunkHead,
        bytes: &[u8],
        out: &mut Vec<Output>,
    ) -> Fate {
        let id = head.chunk_id.as_deref();
        match &head.kind {
            ChunkKind::Start => {
                out.extend(metadata_of(bytes));
                Fate::Replaced
            }
            ChunkKind::Finish => {
                self.close_open(out);
                out.extend(metadata_of(bytes));
                Fate::Replaced
            }
            ChunkKind::Error if place == Place::Earlier => {
                self.close_open(out);
                out.push(turn_error(turn, bytes));
                Fate::Replaced
            }
            ChunkKind::Error => Fate::Pass,
            ChunkKind::Abort => {
                self.close_open(out);
                Fate::Pass
            }
            ChunkKind::StartStep => {
                self.close_open(out);
                self.settle_streaming_tools(out);
                self.in_step = true;
                self.step += 1;
                Fate::Pass
            }
            ChunkKind::FinishStep => {
                self.close_open(out);
                self.in_step = false;
                Fate::Pass
            }
            ChunkKind::TextStart | ChunkKind::TextDelta | ChunkKind::TextEnd => run(
                &mut self.text,
                ("text-start", "text-end"),
                &head.kind,
                id,
                out,
            ),
            ChunkKind::ReasoningStart | ChunkKind::ReasoningDelta | ChunkKind::ReasoningEnd => run(
                &mut self.reasoning,
                ("reasoning-start", "reasoning-end"),
                &head.kind,
                id,
                out,
            ),
            ChunkKind::ToolInputStart
            | ChunkKind::ToolInputDelta
            | ChunkKind::ToolInputAvailable
            | ChunkKind::ToolInputError => self.call(head, bytes, out),
            ChunkKind::ToolOutputAvailable
            | ChunkKind::ToolOutputError
            | ChunkKind::ToolOutputDenied => self.answer(head, bytes, out),
            // only some current clients know these
            ChunkKind::ToolApprovalRequest
            | ChunkKind::ToolApprovalResponse
            | ChunkKind::Custom
            | ChunkKind::ReasoningFile
            | ChunkKind::Unknown(_) => Fate::Wrap,
            ChunkKind::MessageMetadata
            | ChunkKind::SourceUrl
            | ChunkKind::SourceDocument
            | ChunkKind::File
            | ChunkKind::Data(_) => Fate::Pass,
        }
    }

    /// The pushed chunk itself, as its clients take it.
    fn pass(&self, head: &ChunkHead, bind: Option<Binding>, bytes: &[u8], out: &mut Vec<Output>) {
        if self.profile == Profile::Current && bind.is_none() && head.form == Form::Clean {
            return out.push(Output::Verbatim);
        }
        let Some(mut chunk) = object(bytes) else {
            return;
        };
        if let Some(binding) = bind {
            set_binding(&mut chunk, binding);
        }
        if bind.is_none() && head.form == Form::Clean && shape::fits_strictly(&chunk, &head.kind) {
            return out.push(Output::Verbatim);
        }
        out.extend(
            shape::clean(&chunk, &head.kind, self.profile)
                .map(|chunk| written(Value::Object(chunk))),
        );
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

    /// Clients look for a half-streamed call in the current step only.
    fn settle_streaming_tools(&mut self, out: &mut Vec<Output>) {
        for (id, tool) in &mut self.tools {
            if tool.progress == Progress::Streaming {
                out.push(interrupted(id, tool.binding));
                tool.progress = Progress::Answered;
            }
        }
    }

    fn call(&mut self, head: &ChunkHead, bytes: &[u8], out: &mut Vec<Output>) -> Fate {
        let Some(id) = head.chunk_id.as_deref() else {
            return Fate::Drop;
        };
        let known = self.tools.get(id).copied();
        let repeated = known.is_some_and(|tool| match (&head.kind, tool.progress) {
            _ if tool.origin == Origin::StandIn => true,
            (ChunkKind::ToolInputStart, progress) => {
                progress != Progress::Answered || tool.step == self.step
            }
            (ChunkKind::ToolInputAvailable, Progress::Called) => true,
            (ChunkKind::ToolInputAvailable | ChunkKind::ToolInputError, Progress::Answered) => {
                tool.step == self.step
            }
            _ => false,
        });
        let streaming = known.filter(|tool| tool.progress == Progress::Streaming);
        // without its start nobody knows a call's name, and its whole input follows anyway
        if repeated || (head.kind == ChunkKind::ToolInputDelta && streaming.is_none()) {
            return Fate::Drop;
        }
        let binding = streaming.map_or(head.binding, |tool| tool.binding);
        let progress = match head.kind {
            ChunkKind::ToolInputStart | ChunkKind::ToolInputDelta => Progress::Streaming,
            ChunkKind::ToolInputAvailable => Progress::Called,
            _ => Progress::Answered,
        };
        self.tools.insert(
            id.into(),
            Tool {
                progress,
                binding,
                step: self.step,
                origin: Origin::Agent,
            },
        );
        if head.kind == ChunkKind::ToolInputError && self.profile == Profile::Strict5 {
            out.extend(input_error_in_two(id, binding, bytes));
            return Fate::Replaced;
        }
        if head.kind == ChunkKind::ToolInputDelta || binding == head.binding {
            Fate::Pass
        } else {
            Fate::Bind(binding)
        }
    }

    fn answer(&mut self, head: &ChunkHead, bytes: &[u8], out: &mut Vec<Output>) -> Fate {
        let Some(id) = head.chunk_id.as_deref() else {
            return Fate::Drop;
        };
        let tool = self.tools.entry(id.into()).or_insert_with(|| {
            out.push(stand_in_call(id, head.binding));
            Tool {
                progress: Progress::Called,
                binding: head.binding,
                step: self.step,
                origin: Origin::StandIn,
            }
        });
        tool.progress = Progress::Answered;
        let binding = tool.binding;
        if head.kind == ChunkKind::ToolOutputDenied {
            let reason = object(bytes)
                .and_then(|c| c.get("reason").and_then(Value::as_str).map(str::to_owned));
            out.push(output_error(
                id,
                binding,
                reason.as_deref().unwrap_or("denied"),
            ));
            return Fate::Replaced;
        }
        if binding == head.binding {
            Fate::Pass
        } else {
            Fate::Bind(binding)
        }
    }
}

/// Text and reasoning: a run of deltas between its start and its end.
fn run(
    open: &mut Vec<Box<str>>,
    (start, end): (&str, &str),
    kind: &ChunkKind,
    id: Option<&str>,
    out: &mut Vec<Output>,
) -> Fate {
    let Some(id) = id else { return Fate::Drop };
    let at = open.iter().position(|o| &**o == id);
    match (kind, at) {
        (ChunkKind::TextStart | ChunkKind::ReasoningStart, Some(_)) => {
            out.push(written(json!({"type": end, "id": id})))
        }
        (ChunkKind::TextStart | ChunkKind::ReasoningStart, None) => open.push(id.into()),
        (ChunkKind::TextDelta | ChunkKind::ReasoningDelta, Some(_)) => {}
        (ChunkKind::TextDelta | ChunkKind::ReasoningDelta, None) => {
            out.push(written(json!({"type": start, "id": id})));
            open.push(id.into());
        }
        (_, Some(at)) => drop(open.remove(at)),
        (_, None) => return Fate::Drop,
    }
    Fate::Pass
}

fn written(chunk: Value) -> Output {
    Output::Written(Bytes::from(chunk.to_string()))
}

fn object(bytes: &[u8]) -> Option<Map<String, Value>> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(chunk)) => Some(chunk),
        _ => None,
    }
}

fn set_binding(chunk: &mut Map<String, Value>, binding: Binding) {
    match binding {
        Binding::Static => drop(chunk.remove("dynamic")),
        Binding::Dynamic => drop(chunk.insert("dynamic".into(), Value::Bool(true))),
    }
}

fn bound(mut chunk: Value, binding: Binding) -> Output {
    if let Value::Object(chunk) = &mut chunk {
        set_binding(chunk, binding);
    }
    written(chunk)
}

fn interrupted(id: &str, binding: Binding) -> Output {
    output_error(id, binding, "interrupted")
}

fn output_error(id: &str, binding: Binding, text: &str) -> Output {
    bound(
        json!({"type": "tool-output-error", "toolCallId": id, "errorText": text}),
        binding,
    )
}

/// The call of an output whose call is missing; `providerExecuted` keeps a page from running it.
fn stand_in_call(id: &str, binding: Binding) -> Output {
    bound(
        json!({"type": "tool-input-available", "toolCallId": id, "toolName": "unknown", "input": {}, "providerExecuted": true}),
        binding,
    )
}

/// `tool-input-error` for clients that do not know it.
fn input_error_in_two(id: &str, binding: Binding, bytes: &[u8]) -> Vec<Output> {
    let chunk = object(bytes).unwrap_or_default();
    let name = chunk
        .get("toolName")
        .and_then(Value::as_str)
        .unwrap_or("unknown");
    let input = chunk.get("input").map_or(Value::Null, shape::scrub);
    let text = chunk
        .get("errorText")
        .and_then(Value::as_str)
        .unwrap_or("invalid input");
    let call = json!({"type": "tool-input-available", "toolCallId": id, "toolName": name, "input": input, "providerExecuted": true});
    vec![bound(call, binding), output_error(id, binding, text)]
}

/// A chunk as data: any client keeps it, none interprets it.
fn wrapped(bytes: &[u8]) -> Option<Output> {
    let chunk = Value::Object(object(bytes)?);
    Some(written(
        json!({"type": "data-bex-chunk", "data": shape::scrub(&chunk)}),
    ))
}

/// The metadata of a dropped start or finish.
fn metadata_of(bytes: &[u8]) -> Option<Output> {
    memchr::memmem::find(bytes, b"messageMetadata")?;
    let chunk = object(bytes)?;
    let metadata = chunk.get("messageMetadata").filter(|m| !m.is_null())?;
    Some(written(
        json!({"type": "message-metadata", "messageMetadata": shape::scrub(metadata)}),
    ))
}

fn turn_error(turn: TurnNo, bytes: &[u8]) -> Output {
    let chunk = object(bytes).unwrap_or_default();
    let text = chunk
        .get("errorText")
        .and_then(Value::as_str)
        .unwrap_or("the agent reported an error");
    written(json!({"type": "data-bex-turn-error", "data": {"turn": turn, "errorText": text}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(guard: &mut Guard, place: Place, chunks: &[&str]) -> Vec<String> {
        let mut sent = Vec::new();
        for chunk in chunks {
            let (head, mut out) = (ChunkHead::read(chunk).expect("a chunk"), Vec::new());
            guard.push(TurnNo(2), place, &head, chunk.as_bytes(), &mut out);
            sent.extend(out.into_iter().map(|out| match out {
                Output::Verbatim => (*chunk).to_owned(),
                Output::Written(bytes) => String::from_utf8(bytes.to_vec()).expect("json"),
            }));
        }
        sent
    }

    fn last(chunks: &[&str]) -> Vec<String> {
        feed(&mut Guard::new(), Place::Last, chunks)
    }

    fn ends(guard: &mut Guard) -> Vec<String> {
        let mut out = Vec::new();
        guard.end(&mut out);
        out.into_iter()
            .map(|o| match o {
                Output::Written(b) => String::from_utf8(b.to_vec()).expect("json"),
                Output::Verbatim => panic!("nothing is stored here"),
            })
            .collect()
    }

    const CALL: &str =
        r#"{"type":"tool-input-available","toolCallId":"c","toolName":"x","input":{}}"#;
    const OUTPUT: &str = r#"{"type":"tool-output-available","toolCallId":"c","output":1}"#;

    #[test]
    fn a_well_formed_stream_passes_byte_for_byte() {
        let chunks = [
            r#"{"type":"start-step"}"#,
            r#"{"type":"text-start","id":"t"}"#,
            r#"{"type":"text-delta","id":"t","delta":"a\ud800"}"#,
            r#"{ "type":"text-end","id":"t"}"#,
            r#"{"type":"tool-input-start","toolCallId":"c","toolName":"x"}"#,
            r#"{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"{}"}"#,
            CALL,
            r#"{"type":"tool-output-available","toolCallId":"c","output":0,"preliminary":true}"#,
            OUTPUT,
            r#"{"type":"finish-step"}"#,
            r#"{"type":"data-x","data":1}"#,
        ];
        let mut guard = Guard::new();
        assert_eq!(feed(&mut guard, Place::Last, &chunks), chunks);
        assert!(ends(&mut guard).is_empty());
    }

    #[test]
    fn nested_ends_keep_only_their_metadata() {
        let chunks = [
            r#"{"type":"start","messageId":"m","messageMetadata":{"a":1}}"#,
            r#"{"type":"text-start","id":"t"}"#,
            r#"{"type":"finish"}"#,
        ];
        assert_eq!(
            last(&chunks),
            [
                r#"{"type":"message-metadata","messageMetadata":{"a":1}}"#,
                chunks[1],
                r#"{"type":"text-end","id":"t"}"#
            ]
        );
    }

    #[test]
    fn a_cut_head_is_started_and_a_cut_tail_is_closed() {
        let chunks = [
            r#"{"type":"text-delta","id":"t","delta":"lo"}"#,
            r#"{"type":"reasoning-end","id":"r"}"#,
            OUTPUT,
            r#"{"type":"tool-input-start","toolCallId":"d","toolName":"x"}"#,
            r#"{"type":"start-step"}"#,
        ];
        let mut guard = Guard::new();
        assert_eq!(
            feed(&mut guard, Place::Last, &chunks),
            [
                r#"{"type":"text-start","id":"t"}"#,
                chunks[0],
                r#"{"type":"tool-input-available","toolCallId":"c","toolName":"unknown","input":{},"providerExecuted":true}"#,
                OUTPUT,
                chunks[3],
                r#"{"type":"text-end","id":"t"}"#,
                r#"{"type":"tool-output-error","toolCallId":"d","errorText":"interrupted"}"#,
                chunks[4],
            ]
        );
        assert_eq!(ends(&mut guard), [r#"{"type":"finish-step"}"#]);
    }

    #[test]
    fn an_earlier_error_is_history_and_the_last_one_is_the_streams() {
        let error = r#"{"type":"error","errorText":"boom"}"#;
        let history = feed(&mut Guard::new(), Place::Earlier, &[error]);
        assert_eq!(
            history,
            [r#"{"type":"data-bex-turn-error","data":{"turn":2,"errorText":"boom"}}"#]
        );
        assert_eq!(last(&[error]), [error]);
    }

    #[test]
    fn what_clients_throw_on_is_rewritten_or_wrapped() {
        assert_eq!(
            last(&[r#"{"type":"text-start","id":"t","providerMetadata":null}"#]),
            [r#"{"type":"text-start","id":"t"}"#]
        );
        assert_eq!(
            last(&[r#"{"type":"brand-new","a":1}"#]),
            [r#"{"type":"data-bex-chunk","data":{"type":"brand-new","a":1}}"#]
        );
        assert_eq!(
            last(&[r#"{"type":"text-delta","id":"t"}"#]),
            [r#"{"type":"data-bex-chunk","data":{"type":"text-delta","id":"t"}}"#]
        );
        assert_eq!(
            last(&[r#"{"type":"data-x","data":{"__proto__":{},"a":1}}"#]),
            [r#"{"type":"data-x","data":{"a":1}}"#]
        );
        let denied = last(&[CALL, r#"{"type":"tool-output-denied","toolCallId":"c"}"#]);
        assert_eq!(
            denied[1],
            r#"{"type":"tool-output-error","toolCallId":"c","errorText":"denied"}"#
        );
    }

    #[test]
    fn a_call_and_its_output_agree_and_repeats_are_dropped() {
        let sent = last(&[
            CALL,
            CALL,
            r#"{"type":"tool-output-available","toolCallId":"c","output":1,"dynamic":true}"#,
        ]);
        assert_eq!(
            sent,
            [
                CALL,
                r#"{"type":"tool-output-available","toolCallId":"c","output":1}"#
            ]
        );
    }

    #[test]
    fn strict_clients_get_only_what_they_know() {
        let mut guard = Guard::for_profile(Profile::Strict5);
        let text = r#"{"type":"text-start","id":"t"}"#;
        let sent = feed(
            &mut guard,
            Place::Last,
            &[
                text,
                r#"{"type":"text-delta","id":"t","delta":"a","x":1}"#,
                r#"{"type":"tool-input-error","toolCallId":"c","toolName":"n","input":1,"errorText":"e"}"#,
            ],
        );
        assert_eq!(
            sent,
            [
                text,
                r#"{"type":"text-delta","id":"t","delta":"a"}"#,
                r#"{"type":"tool-input-available","toolCallId":"c","toolName":"n","input":1,"providerExecuted":true}"#,
                r#"{"type":"tool-output-error","toolCallId":"c","errorText":"e"}"#,
            ]
        );
    }

    #[test]
    fn state_can_be_rebuilt_from_columns_alone() {
        let chunks = [
            r#"{"type":"start-step"}"#,
            r#"{"type":"text-start","id":"t","providerMetadata":null}"#,
            r#"{"type":"reasoning-delta","id":"r"}"#,
            r#"{"type":"tool-input-start","toolCallId":"c","toolName":"x","dynamic":true}"#,
            r#"{"type":"tool-output-error","toolCallId":"d","errorText":""}"#,
        ];
        let (mut read, mut rebuilt) = (Guard::new(), Guard::new());
        feed(&mut read, Place::Last, &chunks);
        for chunk in chunks {
            let head = ChunkHead::read(chunk).expect("a chunk");
            rebuilt.skip(
                TurnNo(2),
                &ChunkHead::from_columns(&head.kind_column(), head.chunk_id.as_deref()),
            );
        }
        assert_eq!(read, rebuilt);
    }
}
