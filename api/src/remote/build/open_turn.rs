//! A turn while it is told: its blocks in order, within bounds, and what has begun and not come whole.

use std::collections::HashSet;
use std::io;

use bex_proto::limits;
use bex_proto::message::{Block, Gap, TerminalReason};
use jiff::Timestamp;

use super::lines::Place;
use super::origin;
use super::provider::{Delta, End, Message};
use super::streaming::Streaming;
use super::{BuiltBlock, BuiltTurn};

/// Characters of a model's name; a longer one is none.
const MODEL: usize = 200;

/// What is known of a turn before its first line.
#[derive(Debug, Clone, Default)]
pub struct Before {
    /// Events that never arrived.
    pub gaps: Vec<Gap>,
    /// A line was too long.
    pub overflow: bool,
    /// The conversation it belongs to, where its provider's ids mean nothing beyond that.
    pub conversation: Option<String>,
    /// Who speaks.
    pub model: Option<String>,
}

impl Before {
    /// Whether there is nothing to know.
    pub fn is_empty(&self) -> bool {
        self.gaps.is_empty()
            && !self.overflow
            && self.conversation.is_none()
            && self.model.is_none()
    }

    /// Whether something of a turn is lost.
    pub fn is_lossy(&self) -> bool {
        !self.gaps.is_empty() || self.overflow
    }
}

/// A turn that is not over.
#[derive(Debug, Clone)]
pub struct OpenTurn {
    place: Place,
    about: Before,
    blocks: Vec<BuiltBlock>,
    bytes: usize,
    text_bytes: usize,
    /// Names of its blocks: what is told twice is one.
    told: HashSet<String>,
    streaming: Option<Streaming>,
    /// Messages as far as they came, each until it comes whole.
    unfinished: Vec<Message>,
}

impl OpenTurn {
    /// A turn whose first line begins at this place.
    pub fn new(place: Place, before: Before) -> Self {
        Self {
            place,
            about: before,
            blocks: Vec::new(),
            bytes: 0,
            text_bytes: 0,
            told: HashSet::new(),
            streaming: None,
            unfinished: Vec::new(),
        }
    }

    /// What is known of it beside its blocks.
    pub fn about(&mut self) -> &mut Before {
        &mut self.about
    }

    /// Hears whole blocks.
    pub fn blocks(&mut self, mut message: Message) {
        self.model(message.model.take());
        if let Some(streaming) = &mut self.streaming
            && streaming.is(message.id.as_deref())
        {
            for block in &message.blocks {
                streaming.came_whole(block);
            }
        }
        if message.id.is_some() {
            self.unfinished.retain(|begun| begun.id != message.id);
        }
        for block in std::mem::take(&mut message.blocks) {
            self.push(&message, block);
        }
    }

    /// Hears a message as far as it came.
    pub fn unfinished(&mut self, mut message: Message) {
        self.model(message.model.take());
        self.unfinished.retain(|begun| begun.id != message.id);
        let held: usize = self.unfinished.iter().map(message_bytes).sum();
        if self.unfinished.len() < limits::TURN_BLOCKS
            && held + message_bytes(&message) <= limits::TURN_BLOCK_BYTES
        {
            self.unfinished.push(message);
        } else {
            self.about.overflow = true;
        }
    }

    /// A streamed message begins.
    pub fn message(&mut self, id: String, model: Option<String>) {
        self.model(model);
        if let Some(former) = self.streaming.replace(Streaming::new(id))
            && (former.is_ended() || !self.about.gaps.is_empty())
        {
            self.keep(former);
        }
    }

    /// Hears a piece of it.
    pub fn piece(&mut self, delta: Delta) {
        if let Some(streaming) = &mut self.streaming
            && streaming.hear(delta).is_err()
        {
            self.about.overflow = true;
        }
    }

    /// Who speaks; the first who says so.
    pub fn model(&mut self, model: Option<String>) {
        if self.about.model.is_none() {
            self.about.model = model.filter(|model| model.len() <= MODEL);
        }
    }

    fn keep(&mut self, streaming: Streaming) {
        let message = Message {
            id: Some(streaming.id().to_owned()),
            ..Message::default()
        };
        for block in streaming.rest() {
            self.push(&message, block);
        }
    }

    fn push(&mut self, message: &Message, block: Block) {
        let text = match &block {
            Block::Text { text, .. } => text.len(),
            _ => 0,
        };
        if says_nothing(&block) {
            return;
        }
        let origin = origin::of(message, &block);
        if origin
            .as_ref()
            .is_some_and(|origin| self.told.contains(origin))
        {
            return;
        }
        let bytes = size(&block);
        if self.blocks.len() >= limits::TURN_BLOCKS
            || self.bytes + bytes > limits::TURN_BLOCK_BYTES
            || self.text_bytes + text > limits::TURN_TEXT_BYTES
        {
            self.about.overflow = true;
            return;
        }
        self.bytes += bytes;
        self.text_bytes += text;
        self.told.extend(origin.clone());
        self.blocks.push(BuiltBlock { block, origin });
    }

    /// The turn as a row; none where nothing was said and nothing is missing.
    pub fn close(
        mut self,
        ordinal: u64,
        last_index: u64,
        end: &End,
        at: Timestamp,
    ) -> Option<BuiltTurn> {
        for mut message in std::mem::take(&mut self.unfinished) {
            for block in std::mem::take(&mut message.blocks) {
                self.push(&message, cut(block));
            }
        }
        if let Some(streaming) = self.streaming.take() {
            self.keep(streaming);
        }
        if self.blocks.is_empty() && !self.about.is_lossy() {
            return None;
        }
        if let (Some(conversation), Some(cost)) = (&self.about.conversation, &end.cost) {
            let name = origin::of_turn(conversation, cost, &self.blocks);
            for built in &mut self.blocks {
                built.origin.get_or_insert_with(|| name.clone());
            }
        }
        let terminal = match self.about.gaps.is_empty() {
            true => end.reason,
            false => TerminalReason::Gap,
        };
        Some(BuiltTurn {
            ordinal,
            first: (self.place.index, self.place.offset),
            last_index,
            blocks: self.blocks,
            model: self.about.model,
            terminal,
            gaps: self.about.gaps,
            overflow: self.about.overflow,
            started_at: self.place.at,
            completed_at: at,
        })
    }
}

fn says_nothing(block: &Block) -> bool {
    match block {
        Block::Text { text, .. } | Block::Reasoning { text } => text.is_empty(),
        Block::Thinking { thinking, .. } => thinking.is_empty(),
        Block::ToolUse { .. } | Block::ToolResult { .. } => false,
    }
}

fn cut(mut block: Block) -> Block {
    match &mut block {
        Block::Text { partial, .. }
        | Block::Thinking { partial, .. }
        | Block::ToolUse { partial, .. } => *partial = true,
        Block::Reasoning { .. } | Block::ToolResult { .. } => {}
    }
    block
}

fn message_bytes(message: &Message) -> usize {
    message.blocks.iter().map(size).sum()
}

/// Bytes of a block as JSON, which is how it is kept.
fn size(block: &Block) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, block).expect("a block always serialises");
    count.0
}
