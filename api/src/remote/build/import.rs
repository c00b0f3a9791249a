//! A program's own record of a conversation: Claude's session files and Codex rollouts. Prompts stand in it too; a prompt ends the turn before
//! it.

use bex_proto::message::TerminalReason;
use jiff::Timestamp;
use serde_json::Value;

use super::BuiltTurn;
use super::lines::Place;
use super::open_turn::OpenTurn;
use super::provider::{self, Said};

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
    /// What was answered.
    Turn(BuiltTurn),
}

/// Reads a record. What is no JSON, or of a kind that nobody knows, is passed over.
pub fn import(lines: &str) -> Vec<Imported> {
    let mut out = Vec::new();
    let mut open: Option<OpenTurn> = None;
    let mut at = Timestamp::UNIX_EPOCH;
    let close = |open: &mut Option<OpenTurn>, reason, at, out: &mut Vec<Imported>| {
        if let Some(open) = open.take() {
            out.push(Imported::Turn(open.close(0, 0, reason, at)));
        }
    };
    for line in lines.lines() {
        let Some(object) = provider::parsed(line) else {
            continue;
        };
        let time = object.get("timestamp").and_then(Value::as_str);
        let time: Option<Timestamp> = time.and_then(|text| text.parse().ok());
        at = time.unwrap_or(at);
        if let Some(text) = prompt(&object) {
            close(&mut open, TerminalReason::Result, at, &mut out);
            let origin = object.get("uuid").and_then(Value::as_str);
            out.push(Imported::User {
                text,
                origin: origin.map(|uuid| format!("user:{uuid}")),
                at: time,
            });
            continue;
        }
        for said in provider::read(line) {
            match said {
                Said::End(reason) => close(&mut open, reason, at, &mut out),
                Said::Blocks(_) | Said::Partial(_) => {
                    let place = Place {
                        index: 0,
                        offset: 0,
                        at,
                    };
                    open.get_or_insert_with(|| OpenTurn::new(place, Vec::new(), false))
                        .hear(said);
                }
                Said::Session(_) | Said::System(_) => {}
            }
        }
    }
    close(&mut open, TerminalReason::ProcessExit, at, &mut out);
    out
}

/// What a person asked, where a line tells of that.
fn prompt(object: &serde_json::Map<String, Value>) -> Option<String> {
    let is_meta = object.get("isMeta").and_then(Value::as_bool) == Some(true);
    let is_side = object.get("isSidechain").and_then(Value::as_bool) == Some(true);
    let message = match object.get("type")?.as_str()? {
        "user" if !is_meta && !is_side => object.get("message")?,
        "response_item" => object.get("payload")?,
        _ => return None,
    };
    if message.get("role")?.as_str()? != "user" {
        return None;
    }
    let text = match message.get("content")? {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| {
                let kind = part.get("type")?.as_str()?;
                matches!(kind, "text" | "input_text").then(|| part.get("text")?.as_str())?
            });
            texts.collect::<Vec<_>>().join("")
        }
        _ => return None,
    };
    let text = text.replace('\0', "\u{fffd}");
    // what a program puts before a prompt for itself is nobody's question
    let is_context =
        text.starts_with("<environment_context>") || text.starts_with("<user_instructions>");
    (!text.trim().is_empty() && !is_context).then_some(text)
}
