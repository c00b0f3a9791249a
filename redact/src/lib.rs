//! Takes secrets and personal data out of what an agent says, before anybody is shown it.
//!
//! [`Secrets`] knows the credentials a driver was given, each in every spelling of [`forms`](Secrets::new). [`Redactor`] knows what
//! secrets look like: the rules of `rules.toml`, sensitive keys of JSON, random runs, and personal data; in JSON within JSON, in
//! escapes, percent-encoding, hexadecimal digits, base64, gzip and between colours of a terminal. [`StreamRedactor`] does both for a
//! stream of parts, [`Conversation`] for recorded ones: the deltas of a text, a reasoning or a tool's input are scanned as what they
//! join to. JSON stays JSON, and bytes that are not redacted stay as they are. [`Gate`] looks through finished bytes on its own way
//! and refuses what is left.
//!
//! # A document in a file
//!
//! One [`TokenKey`] an organisation, one [`Redactor`], and one [`Gate`] for the process, made at its start: a gate that fails its self-check
//! is an error there, and nothing may be served without one. A document is written piece by piece and gated as it lies there, in bounded
//! memory:
//!
//! ```
//! use std::io::{Seek, Write};
//! use bex_redact::{Counts, DocumentError, Gate, Profile, Redactor, Rules, TokenKey};
//!
//! let gate = Gate::new(Profile::Package)?;
//! let redactor = Redactor::new(Profile::Package, TokenKey::new(b"the organisation's secret"));
//!
//! let (mut spool, mut counts) = (tempfile::tempfile()?, Counts::new());
//! spool.write_all(b"{\"messages\":[")?;
//! // a row is an object of its own, so that its values stand under their keys
//! let row = serde_json::json!({"id": "m1", "password": "hunter2", "n": 1});
//! spool.write_all(&redactor.json(&row, &mut counts)?)?;
//! // JSON that is text already keeps the bytes that are not redacted: numbers, order, spaces
//! spool.write_all(b",")?;
//! spool.write_all(&redactor.redact_counting(br#"{"big": 12345678901234567890123}"#, &mut counts))?;
//! spool.write_all(b"]}")?;
//! assert_eq!(counts["sensitive-key"], 1);
//! // what the envelope says about it: `Rules::get().version` and the counts
//! assert!(Rules::get().version > 0);
//!
//! spool.rewind()?;
//! match gate.check_document(&spool) {
//!     Ok(()) => {}
//!     Err(DocumentError::Refused(refused)) => panic!("500 gate_refused {:?}", refused.ids),
//!     Err(DocumentError::Read(error)) => panic!("the spool is gone: {error}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Recorded deltas (rows of a transcript, not yet joined) go through a [`Conversation`] first, as lines of JSON: only there are the texts of
//! their runs seen whole. Everything here works on one thread and blocks it: an async caller wraps it.
//!
//! An agent that wants to smuggle a value out in an encoding of its own can: the sandbox is the boundary, not this crate.

pub mod bounds;
mod checks;
mod conversation;
mod decode;
mod document;
mod engine;
mod find;
mod forms;
mod gate;
mod hit;
mod hold;
mod join;
mod joined;
mod json;
mod keys;
mod lists;
mod part;
mod pem;
mod pii;
mod rules;
mod runs;
mod scan;
mod stream;
mod switch;
mod token;
mod walk;

use serde::Deserialize;

pub use conversation::{Conversation, Counts};
pub use engine::Redactor;
pub use gate::{DocumentError, Gate, GateError, Refused};
pub use rules::{Rule, Rules};
pub use scan::Secrets;
pub use stream::StreamRedactor;
#[cfg(feature = "switches")]
pub use switch::Stage;
pub use token::TokenKey;

/// What stands in the place of a credential.
pub const MARKER: &str = "[redacted:credential]";
/// What stands in the place of a part that cannot be redacted without breaking its JSON.
pub const REDACTED_PART: &str = r#"{"type":"data-redacted"}"#;
/// Credentials below this many bytes are ignored: so short a value occurs in ordinary text by chance, and redacting it
/// would destroy transcripts without protecting anything (six characters are guessed, not stolen).
pub const MIN_SECRET_BYTES: usize = 6;
/// Base64, hexadecimal and percent spellings are looked for only from this length on. Shorter ones have encoded cores of a
/// few characters, which match by chance.
pub const MIN_ENCODED_BYTES: usize = 16;

/// What kind of thing a rule finds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// A secret.
    #[default]
    Secret,
    /// Personal data.
    Pii,
}

/// What is taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Secrets by rule and by key: what a driver does before anybody is shown a part.
    Secrets,
    /// Also random runs and personal data: what leaves the house.
    Package,
    /// Also national ids.
    WithNationalIds,
}
