//! The live stream on a terminal: what the agent says line by line, and one line of progress below it.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use serde_json::Value;

use crate::client::Event;

/// Longest line shown of a tool's output.
const WIDTH: usize = 100;
/// Without a terminal the progress line is printed once for so many parts.
const STRIDE: usize = 50;

/// Where the progress line goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Drawn again and again in place.
    InPlace,
    /// Printed now and then.
    Lines,
}

pub(super) struct Screen {
    progress: Progress,
    began: Instant,
    parts: usize,
    bytes: usize,
    /// What is said of a line that has not ended yet, and by whom.
    line: String,
    speaker: &'static str,
}

impl Screen {
    pub(super) fn new() -> Self {
        Self {
            progress: if std::io::stdout().is_terminal() {
                Progress::InPlace
            } else {
                Progress::Lines
            },
            began: Instant::now(),
            parts: 0,
            bytes: 0,
            line: String::new(),
            speaker: "",
        }
    }

    pub(super) fn show(&mut self, event: &Event) {
        let json = event.json();
        if event.id.is_some() && event.data.is_some() {
            self.parts += 1;
            self.bytes += event.data.as_ref().map_or(0, bytes::Bytes::len);
        }
        let text = |key: &str| json[key].as_str().unwrap_or_default();
        match text("type") {
            "text-delta" => self.say("  agent  ", text("delta")),
            "reasoning-delta" => self.say("  thinks ", text("delta")),
            "text-end" | "reasoning-end" => self.end_line(),
            "tool-input-available" => self.note("  calls  ", text("toolName")),
            "tool-output-available" => self.note("  result ", &one_line(&json["output"])),
            "tool-output-error" => self.note("  failed ", text("errorText")),
            "error" => self.note("  error  ", text("errorText")),
            "data-user-prompt" => self.note("  prompt ", &one_line(&json["data"]["text"])),
            "data-bex-turn" => self.note("  turn   ", &one_line(&json["data"])),
            kind if kind.starts_with("data-acp-") => {
                self.note("  shows  ", &format!("{kind} {}", one_line(&json["data"])));
            }
            _ => {}
        }
        self.draw();
    }

    pub(super) fn end(&mut self) {
        self.end_line();
        self.clear();
        println!("{}", self.line_of_progress());
    }

    fn say(&mut self, speaker: &'static str, text: &str) {
        if self.speaker != speaker {
            self.end_line();
            self.speaker = speaker;
        }
        self.line.push_str(text);
        while let Some(end) = self.line.find('\n') {
            let rest = self.line.split_off(end + 1);
            self.end_line();
            self.line = rest;
        }
    }

    fn note(&mut self, what: &str, text: &str) {
        self.end_line();
        self.print(what, text);
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if !line.trim().is_empty() {
            self.print(self.speaker, line.trim_end());
        }
    }

    fn print(&self, what: &str, text: &str) {
        self.clear();
        let shown: String = text
            .chars()
            .filter(|c| !c.is_control())
            .take(WIDTH)
            .collect();
        println!("{what}{shown}");
    }

    fn line_of_progress(&self) -> String {
        let seconds = self.began.elapsed().as_secs_f64();
        format!(
            "  … {} parts, {} bytes, {seconds:.1} s",
            self.parts, self.bytes
        )
    }

    fn draw(&self) {
        match self.progress {
            Progress::InPlace => print!("\r\x1b[K{}", self.line_of_progress()),
            Progress::Lines if self.parts > 0 && self.parts.is_multiple_of(STRIDE) => {
                println!("{}", self.line_of_progress());
            }
            Progress::Lines => {}
        }
        // a terminal that is gone is no reason to stop checking
        let _ = std::io::stdout().flush();
    }

    fn clear(&self) {
        if self.progress == Progress::InPlace {
            print!("\r\x1b[K");
        }
    }
}

fn one_line(value: &Value) -> String {
    match value {
        Value::String(text) => text.replace('\n', " "),
        other => other.to_string(),
    }
}
