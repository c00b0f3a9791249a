//! A program's own record of a conversation: Claude's session files and Codex rollouts. Their lines mean what they mean live; prompts stand in
//! them too, and a prompt ends the turn before it.

use bex_proto::limits;
use bex_proto::message::TerminalReason;
use jiff::Timestamp;
use serde_json::Value;

use super::json::{self, Object, inner, text};
use super::lines::Place;
use super::{Builder, Built, BuiltTurn, Cursor, origin, provider};

/// What a record tells, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Imported {
    /// A prompt.
    User {
        /// What was asked.
        text: String,
        /// What its provider calls it.
        origin: Option<String>,
        /// When.
        at: Option<Timestamp>,
    },
    /// What was answered. Where a record has no times they are the epoch's.
    Turn(BuiltTurn),
}

/// What programs put among prompts for themselves: nobody asked it.
const NOT_ASKED: &[&str] = &[
    // Claude
    "<bash-",
    "<command-",
    "<local-command-",
    "<system-reminder>",
    "<task-notification>",
    "Caveat: The messages below were generated",
    // Codex
    "<environment_context>",
    "<permissions",
    "<recommended_plugins>",
    "<skill>",
    "<turn_aborted>",
    "<user_instructions>",
    "# AGENTS.md instructions",
];

/// What Claude notes where a person interrupted it.
const INTERRUPTED: &str = "[Request interrupted by user";

/// Reads a record. What is no JSON, or of a kind that nobody knows, is passed over.
pub fn import(lines: &str) -> Vec<Imported> {
    let mut reader = Reader {
        builder: Builder::new(Cursor::default()),
        heard: Timestamp::UNIX_EPOCH,
        tells_prompts: lines.lines().any(|line| {
            // only Codex says them apart, and then also among what it tells its model
            line.contains("user_message") && json::object(line).is_some_and(|o| asked(&o).is_some())
        }),
        out: Vec::new(),
    };
    for (line, index) in lines.lines().zip(0..) {
        reader.line(line, index);
    }
    let at = reader.heard;
    reader.close(TerminalReason::ProcessExit, at);
    reader.out
}

struct Reader {
    builder: Builder,
    /// The time of the last line that had one.
    heard: Timestamp,
    /// Prompts are told apart from what a program tells its model.
    tells_prompts: bool,
    out: Vec<Imported>,
}

impl Reader {
    fn line(&mut self, line: &str, index: u64) {
        if line.len() > limits::REMOTE_LINE_BYTES {
            self.builder.about().overflow = true;
            return;
        }
        let Some(object) = json::object(line) else {
            return;
        };
        let before = self.heard;
        let at: Option<Timestamp> = text(&object, "timestamp").and_then(|at| at.parse().ok());
        // the store has no times before its calendar's first
        let at = at.filter(|at| *at >= Timestamp::UNIX_EPOCH);
        self.heard = at.unwrap_or(before);
        let place = Place {
            index,
            offset: 0,
            at: self.heard,
        };
        self.builder.next = index + 1;
        let mut built = Vec::new();
        for said in provider::read(&object) {
            self.builder.said(said, place, place, &mut built);
        }
        self.told(built);
        let Some(text) = self.prompt(&object) else {
            return;
        };
        if text.starts_with(INTERRUPTED) {
            self.close(TerminalReason::Aborted, self.heard);
        } else if !NOT_ASKED
            .iter()
            .any(|begin| text.trim_start().starts_with(begin))
        {
            self.close(TerminalReason::Result, before);
            let origin = json::text(&object, "uuid").map(origin::of_prompt);
            self.out.push(Imported::User { text, origin, at });
        }
    }

    fn prompt(&self, object: &Object) -> Option<String> {
        let prompt = match self.tells_prompts {
            true => asked(object),
            false => said(object),
        };
        prompt.filter(|text| !text.trim().is_empty())
    }

    fn close(&mut self, reason: TerminalReason, at: Timestamp) {
        let mut built = Vec::new();
        self.builder.close(reason.into(), at, &mut built);
        self.told(built);
    }

    fn told(&mut self, built: Vec<Built>) {
        let turns = built.into_iter().filter_map(|one| match one {
            Built::Turn(turn) => Some(Imported::Turn(turn)),
            Built::System(_) | Built::CliSession(_) => None,
        });
        self.out.extend(turns);
    }
}

/// A prompt of a Codex rollout, which says it apart.
fn asked(object: &Object) -> Option<String> {
    let payload = inner(object, "payload")?;
    let is_prompt =
        text(object, "type")? == "event_msg" && text(payload, "type")? == "user_message";
    is_prompt.then(|| text(payload, "message").map(str::to_owned))?
}

/// What the user's side says.
fn said(object: &Object) -> Option<String> {
    let is = |field: &str| object.get(field).and_then(Value::as_bool) == Some(true);
    let message = match text(object, "type")? {
        "user"
            if !["isMeta", "isSidechain", "isCompactSummary"]
                .into_iter()
                .any(is) =>
        {
            inner(object, "message")?
        }
        "response_item" => inner(object, "payload")?,
        "message" => object,
        _ => return None,
    };
    if text(message, "role")? != "user" {
        return None;
    }
    match message.get("content")? {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| {
                let kind = part.get("type")?.as_str()?;
                matches!(kind, "text" | "input_text").then(|| part.get("text")?.as_str())?
            });
            Some(texts.collect())
        }
        _ => None,
    }
}
