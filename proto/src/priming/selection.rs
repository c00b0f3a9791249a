//! Which pieces are kept: the newest, until the first that does not fit.

use std::collections::VecDeque;

use super::{MAX_BUDGET, PrimedTurn, Priming, Said, TurnWords};

/// A piece of a long text is at most this long.
const PIECE: usize = 256;
/// What a turn costs beside its words, with its comma.
const TURN: usize = br#"{"turn":4294967295,"prompt":"","said":[]},"#.len();
/// What a text costs beside its words.
const TEXT: usize = br#"{"kind":"text","text":""},"#.len();
/// What a tool costs beside its name.
const TOOL: usize = br#"{"kind":"tool","name":""},"#.len();
/// What each payload costs beside itself.
const PAYLOAD: usize = br#","output":"""#.len();

/// Turns are added from the newest on, until it is full.
#[derive(Debug)]
pub struct Selection {
    room: usize,
    full: bool,
    /// Something within the kept turns was left out.
    lacks: bool,
    turns: VecDeque<PrimedTurn>,
}

impl Selection {
    /// A selection of at most `budget` bytes of JSON, and [`MAX_BUDGET`].
    pub fn new(budget: usize) -> Self {
        Self {
            room: budget.min(MAX_BUDGET),
            full: false,
            lacks: false,
            turns: VecDeque::new(),
        }
    }

    /// Whether nothing older can be kept.
    pub fn is_full(&self) -> bool {
        self.full || self.room <= TURN
    }

    /// Bytes that are left: no turn needs to gather more.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Keeps of a turn what fits. Call it with the next older turn each time, while it is not full.
    pub fn add(&mut self, words: TurnWords) {
        if self.is_full() {
            self.full = true;
            return;
        }
        let before = self.room;
        self.room -= TURN;
        let TurnWords {
            turn,
            prompt,
            said,
            lacks,
            ..
        } = words;
        let mut kept = VecDeque::new();
        for said in said.into_iter().rev() {
            kept.extend(self.keep(said));
            if self.full {
                break;
            }
        }
        kept.make_contiguous().reverse();
        // what the turn itself let go is older than what it has and newer than its prompt
        self.full |= lacks;
        let prompt = if self.full {
            None
        } else {
            self.keep_text(prompt, 0)
        };
        self.lacks |= self.full;
        if kept.is_empty() && prompt.is_none() {
            self.room = before;
            return;
        }
        self.turns.push_front(PrimedTurn {
            turn,
            prompt,
            said: kept.into(),
        });
    }

    /// The result. `older` turns were not added.
    pub fn finish(self, all_turns: u32, original_task: Option<String>) -> Priming {
        let kept = u32::try_from(self.turns.len()).unwrap_or(u32::MAX);
        let omitted_turns = all_turns.saturating_sub(kept);
        Priming {
            turns: self.turns.into(),
            omitted_turns,
            truncated: self.lacks || omitted_turns > 0,
            original_task,
            agent_session_id: None,
        }
    }

    fn keep(&mut self, said: Said) -> Option<Said> {
        match said {
            Said::Text { text } if text.is_empty() => None,
            Said::Text { text } => self.keep_text(text, TEXT).map(|text| Said::Text { text }),
            Said::Tool {
                name,
                input,
                output,
            } => self.keep_tool(name, input, output),
        }
    }

    /// The newest pieces of a text that fit.
    fn keep_text(&mut self, mut text: String, overhead: usize) -> Option<String> {
        let mut start = text.len();
        let mut room = self.room.saturating_sub(overhead);
        while start > 0 {
            let piece = piece_before(&text, start);
            let cost = json_length(&text[piece..start]);
            if cost > room || self.room < overhead {
                self.full = true;
                break;
            }
            room -= cost;
            start = piece;
        }
        if start == text.len() {
            return None;
        }
        self.room = room;
        text.drain(..start);
        Some(text)
    }

    fn keep_tool(
        &mut self,
        name: String,
        input: Option<String>,
        output: Option<String>,
    ) -> Option<Said> {
        let payload = |payload: &Option<String>| {
            payload
                .as_deref()
                .map_or(0, |json| PAYLOAD + json_length(json))
        };
        let named = TOOL + json_length(&name);
        let whole = named + payload(&input) + payload(&output);
        if whole <= self.room {
            self.room -= whole;
            return Some(Said::Tool {
                name,
                input,
                output,
            });
        }
        if named <= self.room {
            self.room -= named;
            self.lacks = true;
            return Some(Said::Tool {
                name,
                input: None,
                output: None,
            });
        }
        self.full = true;
        None
    }
}

/// Where the piece begins that ends at `end`: behind a line's end where there is one within reach, at a character in any case.
fn piece_before(text: &str, end: usize) -> usize {
    if end <= PIECE {
        return 0;
    }
    let start = text.ceil_char_boundary(end - PIECE);
    match text.as_bytes()[start..end - 1]
        .iter()
        .position(|b| *b == b'\n')
    {
        Some(newline) => start + newline + 1,
        None => start,
    }
}

/// Length of a text inside the quotes of its JSON.
fn json_length(text: &str) -> usize {
    text.bytes()
        .map(|byte| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
            0..=0x1f => 6,
            _ => 1,
        })
        .sum()
}
