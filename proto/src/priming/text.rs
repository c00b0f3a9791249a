//! The preamble: the result as a text that stands before an agent's prompt.

use std::fmt::Write;

use super::{Priming, Said};

/// What a preamble is longer than its `turns` as JSON, at most.
pub const FRAME: usize = 256;

impl Priming {
    /// The text, or `None` when no turn is kept. At most [`FRAME`] bytes longer than the budget.
    pub fn preamble(&self) -> Option<String> {
        if self.turns.is_empty() {
            return None;
        }
        let mut text = String::from("This is the record of your conversation so far.");
        if self.omitted_turns > 0 {
            let _ = write!(text, " {} older turns are left out.", self.omitted_turns);
        }
        text.push('\n');
        for turn in &self.turns {
            match &turn.prompt {
                Some(prompt) => {
                    let _ = writeln!(text, "\nTurn {}, asked:\n{prompt}", turn.turn);
                }
                None => {
                    let _ = writeln!(text, "\nTurn {}, its end.", turn.turn);
                }
            }
            if !turn.said.is_empty() {
                text.push_str("Answered:\n");
            }
            for said in &turn.said {
                say(&mut text, said);
            }
        }
        text.push_str("\nThis was the record. What is asked now follows.\n");
        Some(text)
    }
}

fn say(out: &mut String, said: &Said) {
    match said {
        Said::Text { text } => {
            out.push_str(text);
            out.push('\n');
        }
        Said::Tool {
            name,
            input,
            output,
        } => {
            let _ = writeln!(out, "(Used {name}.)");
            if let Some(input) = input {
                let _ = writeln!(out, "(In: {input})");
            }
            if let Some(output) = output {
                let _ = writeln!(out, "(Out: {output})");
            }
        }
    }
}
