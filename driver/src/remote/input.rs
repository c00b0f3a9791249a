//! The command's standard input, and how things are said to it.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bex_proto::limits;
use bex_proto::remote::OutputStream;
use nix::fcntl::OFlag;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::arguments::{Config, Dialect, InputFrom};
use super::place::Place;

/// How long a command has to read what it is told.
const TAKE_WAIT: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(20);
/// What tells a permission request from other lines, before it is read.
const CONTROL_REQUEST: &[u8] = b"\"control_request\"";

/// The writing end.
#[derive(Debug)]
pub struct Input {
    pipe: Option<PathBuf>,
    stdout: PathBuf,
    dialect: Dialect,
    /// What the command did not take of the last line; it goes before the next.
    rest: Vec<u8>,
}

/// Why the command was not told.
#[derive(Debug, thiserror::Error)]
pub enum InputFault {
    /// It was started so.
    #[error("the command has no input")]
    None,
    /// It has ended, or closed its input.
    #[error("the command does not read its input any more")]
    Closed(#[source] io::Error),
    /// Its input is full.
    #[error("the command did not read its input for {TAKE_WAIT:?}")]
    Full,
}

/// What is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Words<'a> {
    /// A person's message.
    Chat(&'a str),
    /// End the turn.
    Interrupt {
        /// A fresh id.
        id: &'a str,
    },
    /// An answer to a permission request.
    Permission {
        /// The request's.
        id: &'a str,
        /// Whether it may.
        allow: bool,
        /// What there is to say of it.
        message: Option<&'a str>,
    },
}

impl Input {
    /// The input of a session's command.
    pub fn new(config: &Config, place: &Place) -> Self {
        Self {
            pipe: (config.input == InputFrom::Pipe).then(|| place.stdin()),
            stdout: place.spool(OutputStream::Stdout),
            dialect: config.dialect,
            rest: Vec::new(),
        }
    }

    /// How it is spoken to.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Says something, as a line.
    ///
    /// # Errors
    /// See [`InputFault`].
    pub async fn say(&mut self, words: Words<'_>) -> Result<(), InputFault> {
        let pipe = self.pipe.as_ref().ok_or(InputFault::None)?;
        let mut pipe = OpenOptions::new()
            .write(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(pipe)
            .map_err(InputFault::Closed)?;
        let mut bytes = std::mem::take(&mut self.rest);
        let (before, mut taken) = (bytes.len(), 0);
        bytes.extend_from_slice(self.line(&words).as_bytes());
        let deadline = Instant::now() + TAKE_WAIT;
        while taken < bytes.len() {
            match pipe.write(&bytes[taken..]) {
                Ok(more) => taken += more,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if Instant::now() >= deadline {
                        // half a line would spoil the next one: its rest still goes
                        let end = if taken > before { bytes.len() } else { before };
                        self.rest = bytes[taken.min(end)..end].to_vec();
                        return Err(InputFault::Full);
                    }
                    sleep(AGAIN).await;
                }
                Err(error) => return Err(InputFault::Closed(error)),
            }
        }
        Ok(())
    }

    fn line(&self, words: &Words<'_>) -> String {
        let mut line = match self.dialect {
            Dialect::Text => text_line(words),
            Dialect::Claude => self.claude_line(words).to_string(),
        };
        line.push('\n');
        line
    }

    fn claude_line(&self, words: &Words<'_>) -> Value {
        match *words {
            Words::Chat(content) => json!({
                "type": "user", "session_id": "", "parent_tool_use_id": null,
                "message": {"role": "user", "content": [{"type": "text", "text": content}]},
            }),
            Words::Interrupt { id } => json!({
                "type": "control_request", "request_id": id, "request": {"subtype": "interrupt"},
            }),
            Words::Permission { id, allow, message } => {
                let answer = if allow {
                    // it wants the tool's input back, which the person may not have seen all of
                    let input = asked_input(&self.stdout, id).unwrap_or_else(|| json!({}));
                    json!({"behavior": "allow", "updatedInput": input})
                } else {
                    json!({"behavior": "deny", "message": message.unwrap_or("denied")})
                };
                json!({
                    "type": "control_response",
                    "response": {"subtype": "success", "request_id": id, "response": answer},
                })
            }
        }
    }
}

fn text_line(words: &Words<'_>) -> String {
    match *words {
        Words::Chat(content) => content.to_owned(),
        // an abort is a signal here
        Words::Interrupt { .. } => String::new(),
        Words::Permission { allow, .. } => if allow { "y" } else { "n" }.to_owned(),
    }
}

#[derive(Deserialize)]
struct ControlRequest<'a> {
    #[serde(borrow)]
    r#type: &'a RawValue,
    request_id: String,
    request: Asked,
}

#[derive(Deserialize)]
struct Asked {
    subtype: String,
    #[serde(default)]
    input: Value,
}

/// A line that asks for a permission.
fn asks(line: &[u8]) -> Option<(String, Value)> {
    memchr::memmem::find(line, CONTROL_REQUEST)?;
    let read: ControlRequest<'_> = serde_json::from_slice(line).ok()?;
    let asks =
        read.r#type.get().as_bytes() == CONTROL_REQUEST && read.request.subtype == "can_use_tool";
    asks.then_some((read.request_id, read.request.input))
}

/// Whether a line of Claude's asks for a permission.
pub fn is_permission_request(line: &[u8]) -> bool {
    asks(line).is_some()
}

/// What a tool was to be called with, as the command itself said.
fn asked_input(stdout: &Path, id: &str) -> Option<Value> {
    let mut lines = BufReader::new(std::fs::File::open(stdout).ok()?);
    let (mut line, mut found) = (Vec::new(), None);
    let most = limits::REMOTE_LINE_BYTES as u64;
    loop {
        line.clear();
        if lines
            .by_ref()
            .take(most)
            .read_until(b'\n', &mut line)
            .ok()?
            == 0
        {
            return found;
        }
        match asks(&line) {
            Some((asked, input)) if asked == id => found = Some(input),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKS: &str = r#"{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"ls"}}}"#;

    fn input(dialect: Dialect, dir: &Path) -> Input {
        let stdout = dir.join("stdout.spool");
        std::fs::write(&stdout, format!("x\n{ASKS}\ny\n")).expect("a file");
        Input {
            pipe: None,
            stdout,
            dialect,
            rest: Vec::new(),
        }
    }

    #[test]
    fn each_dialect_has_its_lines() {
        let dir = tempfile::tempdir().expect("a directory");
        let text = input(Dialect::Text, dir.path());
        assert_eq!(text.line(&Words::Chat("two\nlines")), "two\nlines\n");
        let (id, message) = ("r1", Some("no"));
        let answer = |allow| Words::Permission { id, allow, message };
        assert_eq!(text.line(&answer(true)), "y\n");
        assert_eq!(text.line(&answer(false)), "n\n");

        let claude = input(Dialect::Claude, dir.path());
        let said = |words| -> Value {
            let line = claude.line(&words);
            assert_eq!(line.matches('\n').count(), 1);
            serde_json::from_str(&line).expect("JSON")
        };
        let chat = said(Words::Chat("two\nlines"));
        assert_eq!(chat["message"]["content"][0]["text"], "two\nlines");
        let interrupt = said(Words::Interrupt { id: "cmd-1" });
        assert_eq!(interrupt["request"]["subtype"], "interrupt");
        let allow = said(answer(true));
        assert_eq!(allow["response"]["request_id"], "r1");
        assert_eq!(
            allow["response"]["response"]["updatedInput"]["command"],
            "ls"
        );
        let deny = said(answer(false));
        assert_eq!(deny["response"]["response"]["behavior"], "deny");
        assert_eq!(deny["response"]["response"]["message"], "no");
    }

    #[test]
    fn only_requests_for_a_permission_are_told_as_such() {
        let interrupt = ASKS.replace("can_use_tool", "interrupt");
        let text = r#"{"type":"assistant","text":"\"control_request\""}"#;
        for other in [text, &interrupt, "{\"control_request\""] {
            assert!(!is_permission_request(other.as_bytes()), "{other}");
        }
        assert!(is_permission_request(ASKS.as_bytes()));
    }
}
