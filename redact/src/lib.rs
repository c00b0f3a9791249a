//! Takes known credentials out of what an agent says, before anybody is shown it.
//!
//! [`Secrets`] knows the credentials a driver was given, each in every spelling of [`forms`](Secrets::new). It finds them in
//! free text and in the JSON text of a part, and it never breaks that JSON: a part that could not be mended becomes
//! [`REDACTED_PART`]. [`StreamRedactor`] does the same for a stream of parts and also finds a credential that was split over
//! the deltas of one text, reasoning or tool input.
//!
//! This is exact-value redaction. It does not guess what looks like a secret, and an agent that wants to smuggle a value out
//! in an encoding of its own can: the sandbox is the boundary, not this crate.

mod forms;
mod json;
mod part;
mod scan;
mod stream;

pub use scan::Secrets;
pub use stream::StreamRedactor;

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
