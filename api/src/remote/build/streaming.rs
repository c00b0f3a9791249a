//! A message while it is streamed. Its blocks come again whole, each at its end or all together; what never came whole is kept as it is.

use bex_proto::limits;
use bex_proto::message::Block;

use super::json;
use super::provider::{Delta, Started};

/// A message that has begun.
#[derive(Debug, Clone)]
pub struct Streaming {
    id: String,
    pieces: Vec<Piece>,
    bytes: usize,
    ended: bool,
}

/// A block of it that has not come whole.
#[derive(Debug, Clone)]
struct Piece {
    index: u64,
    started: Started,
    ended: bool,
}

/// There is no room for more.
#[derive(Debug)]
pub struct Full;

impl Streaming {
    /// A message of which nothing has come.
    pub fn new(id: String) -> Self {
        Self {
            id,
            pieces: Vec::new(),
            bytes: 0,
            ended: false,
        }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether it is this message.
    pub fn is(&self, id: Option<&str>) -> bool {
        id == Some(self.id.as_str())
    }

    /// Whether it came to its end. One that did not, and is followed by another, was given up by its program, which tries again.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Hears a piece.
    ///
    /// # Errors
    /// There is no room for it: it is left out.
    pub fn hear(&mut self, delta: Delta) -> Result<(), Full> {
        match delta {
            Delta::Start { index, block } => {
                self.room(block.len())?;
                self.pieces.push(Piece {
                    index,
                    started: block,
                    ended: false,
                });
            }
            Delta::Text { index, text } => {
                self.room(text.len())?;
                if let Some(piece) = self.piece(index) {
                    piece.started.text_mut().push_str(&text);
                }
            }
            Delta::Stop { index } => {
                if let Some(piece) = self.piece(index) {
                    piece.ended = true;
                }
            }
            Delta::End => self.ended = true,
        }
        Ok(())
    }

    fn room(&mut self, bytes: usize) -> Result<(), Full> {
        let fits = self.bytes + bytes <= limits::TURN_TEXT_BYTES
            && self.pieces.len() < limits::TURN_BLOCKS;
        if !fits {
            return Err(Full);
        }
        self.bytes += bytes;
        Ok(())
    }

    fn piece(&mut self, index: u64) -> Option<&mut Piece> {
        self.pieces.iter_mut().rev().find(|p| p.index == index)
    }

    /// A block came whole: its piece goes. Where events are missing the piece may hold less than its block's beginning; then it is the newest
    /// of its kind.
    pub fn came_whole(&mut self, block: &Block) {
        let exact = self.pieces.iter().position(|p| p.started.begins(block));
        let newest = || self.pieces.iter().rposition(|p| p.started.is_like(block));
        if let Some(at) = exact.or_else(newest) {
            self.pieces.remove(at);
        }
    }

    /// What never came whole, marked where it was cut off.
    pub fn rest(self) -> Vec<Block> {
        let blocks = self.pieces.into_iter().map(|piece| {
            let partial = !piece.ended;
            match piece.started {
                Started::Text(text) => Block::Text { text, partial },
                Started::Thinking(thinking) => Block::Thinking { thinking, partial },
                Started::ToolUse { id, name, input } => Block::ToolUse {
                    id,
                    name,
                    input: json::in_text(&input).into(),
                    partial,
                },
            }
        });
        blocks.collect()
    }
}

impl Started {
    /// Where more of it goes.
    fn text_mut(&mut self) -> &mut String {
        match self {
            Self::Text(text) | Self::Thinking(text) => text,
            Self::ToolUse { input, .. } => input,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Text(text) | Self::Thinking(text) => text.len(),
            Self::ToolUse { id, name, input } => id.len() + name.len() + input.len(),
        }
    }

    fn begins(&self, block: &Block) -> bool {
        match (self, block) {
            (Self::Text(begun), Block::Text { text, .. }) => text.starts_with(begun.as_str()),
            (Self::Thinking(begun), Block::Thinking { thinking, .. }) => {
                thinking.starts_with(begun.as_str())
            }
            (Self::ToolUse { id: begun, .. }, Block::ToolUse { id, .. }) => begun == id,
            _ => false,
        }
    }

    fn is_like(&self, block: &Block) -> bool {
        matches!(
            (self, block),
            (Self::Text(_), Block::Text { .. }) | (Self::Thinking(_), Block::Thinking { .. })
        )
    }
}
