//! What is stored before a client reads it.

use bex_proto::PartId;
use bex_proto::transcript::{Part, storable};
use bex_proto::ui_stream::{ChunkKind, Form};
use bytes::Bytes;

/// What a transcript is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// Any client must survive it.
    Any,
    /// It is well formed: beside that, its bytes must arrive untouched.
    WellFormed,
    /// As well formed, and the clients are timed.
    Timed,
}

/// A session's conversation.
#[derive(Debug, Clone)]
pub struct Transcript {
    pub name: String,
    pub sort: Sort,
    pub turns: Vec<Turn>,
}

/// What a driver spoke; `None` where a part is known to be missing.
#[derive(Debug, Clone, Default)]
pub struct Turn(pub Vec<Option<Bytes>>);

impl Turn {
    pub fn is_whole(&self) -> bool {
        self.0.iter().all(Option::is_some)
    }

    /// The parts as they are stored, stand-ins for what cannot be.
    pub fn parts(&self, turn: u32) -> Vec<Part> {
        let spoken = self.0.iter().zip(0u32..);
        spoken
            .filter_map(|(bytes, index)| Some((bytes.clone()?, PartId::new(turn, index))))
            .map(|(bytes, id)| {
                let (head, bytes) = storable(bytes);
                Part {
                    id,
                    head,
                    bytes,
                    spoken_at: None,
                }
            })
            .collect()
    }
}

impl Transcript {
    /// Whether its last stored part is an error that clients understand: then the stream ends in it.
    pub fn ends_in_error(&self) -> bool {
        let newest = self.turns.len() as u32;
        let last = self
            .turns
            .last()
            .and_then(|turn| turn.parts(newest).pop())
            .map(|part| part.head);
        last.is_some_and(|head| head.kind == ChunkKind::Error && head.form != Form::Broken)
    }
}
