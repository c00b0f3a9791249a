//! What the engine finds, what it leaves alone, and how the gate proves it.
#![allow(clippy::unwrap_used)]

mod cases;
mod clean;
mod cli;
mod encodings;
mod gate;
mod hostile;
mod independence;
mod joining;
mod live;
mod matrix;
mod parts;
mod planted;
mod predecessor;
mod properties;
mod rules;
mod stages;
mod stream;
mod written;

use bex_redact::{Conversation, Gate, Profile, Redactor, TokenKey};

/// What packages are made with.
pub fn redactor() -> Redactor {
    Redactor::new(Profile::Package, TokenKey::new(b"test"))
}

/// A text as it comes out of the conversation that is it alone.
pub fn clean(redactor: &Redactor, text: &str) -> String {
    let mut conversation = Conversation::new(redactor);
    conversation.push(text.as_bytes().to_vec());
    let (texts, _) = conversation.finish();
    String::from_utf8(texts.concat()).expect("text stays text")
}

/// The ids the gate refuses a text with.
pub fn refusal(gate: &Gate, text: &str) -> Vec<String> {
    match gate.check([text.as_bytes()]) {
        Ok(()) => Vec::new(),
        Err(refused) => refused.ids.into_iter().collect(),
    }
}

/// What refuses packages.
pub fn gate() -> &'static Gate {
    static GATE: std::sync::OnceLock<Gate> = std::sync::OnceLock::new();
    GATE.get_or_init(|| Gate::new(Profile::Package).expect("the gate finds its canaries"))
}

/// What the deltas of parts join to.
pub fn joined_text(parts: &[bytes::Bytes]) -> String {
    parts
        .iter()
        .map(|part| serde_json::from_slice::<serde_json::Value>(part).expect("JSON stays JSON"))
        .filter_map(|part| part["delta"].as_str().map(str::to_owned))
        .collect()
}
