//! The agents' text: what the second witness says.

use std::collections::BTreeMap;

use bex_proto::session::Verdict;
use bytes::Bytes;
use serde_json::Value;

use super::{Case, TurnCase, hit_by};
use crate::plan::Midway;
use crate::witness::Spoken;

/// The agent never says more than its record holds, nothing of it twice, all of it in order; and all of it, when nothing
/// happened to it.
pub(super) fn check(
    case: &Case,
    turn: &TurnCase,
    stored: &BTreeMap<u32, &Bytes>,
    spoken: Option<&Spoken>,
    faults: &mut Vec<String>,
) {
    let said: Vec<&str> = turn.said.lines().collect();
    for (n, line) in said.iter().enumerate() {
        if !line.starts_with(&format!("Line {} of {}: ", n + 1, turn.lines)) {
            faults.push(format!(
                "was not said once and in order: {line:?} is line {}",
                n + 1
            ));
            return;
        }
    }
    let text = text_of(stored.values().map(|part| part.as_ref()));
    if !is_part_of(&text, &said) {
        faults.push("holds text that the agent did not say, or not so".into());
    }
    if let Some(spoken) = spoken {
        let logged = text_of(spoken.parts.iter().map(|part| part.as_ref()));
        if !turn.said.starts_with(&logged) {
            faults.push("was not logged as the agent said it".into());
        }
    }
    let complete = turn.verdict == Verdict::Complete;
    if complete && !turn.said.starts_with(&text) {
        faults.push("is complete, and text is missing within".into());
    }
    let undisturbed = hit_by(case, turn).is_empty()
        && !(case.canceled && turn.turn == case.begun)
        && turn.midway == Midway::Nothing;
    if undisturbed && (!complete || text != turn.said || said.len() != turn.lines as usize) {
        faults.push(format!(
            "was not disturbed and holds {} of {} lines, {} were said",
            text.lines().count(),
            turn.lines,
            said.len()
        ));
    }
}

/// The text that parts show.
fn text_of<'a>(parts: impl Iterator<Item = &'a [u8]>) -> String {
    let mut text = String::new();
    for part in parts {
        let part: Value = serde_json::from_slice(part).unwrap_or_default();
        if part["type"] == "text-delta" {
            text.push_str(part["delta"].as_str().unwrap_or_default());
        }
    }
    text
}

/// Whether lines stand in a record in the same order, none of them twice.
fn is_part_of(text: &str, said: &[&str]) -> bool {
    let mut said = said.iter();
    text.lines().all(|line| said.any(|known| *known == line))
}
