//! What of a turn becomes a message, decided once, when the turn is over.

use bex_proto::message::Block;
use bex_proto::session::SessionKind;

/// A message row.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// Its content; empty where an autonomous turn said nothing.
    pub visible_text: String,
    /// Its blocks, in the order in which they were said.
    pub blocks: Vec<Block>,
}

/// The table: a person is told what was said, with the calls and thoughts of the whole turn beside it, and nothing where nothing was said; a
/// workflow keeps the evidence too.
pub fn told(kind: SessionKind, turn: &[Block]) -> Option<Told> {
    let visible_text = visible_text(turn);
    let kept = |block: &&Block| match kind {
        SessionKind::Interactive => !matches!(block, Block::ToolResult { .. }),
        SessionKind::Autonomous => true,
    };
    let blocks: Vec<Block> = turn.iter().filter(kept).cloned().collect();
    let is_told = match kind {
        SessionKind::Interactive => !visible_text.trim().is_empty(),
        SessionKind::Autonomous => !visible_text.trim().is_empty() || !blocks.is_empty(),
    };
    is_told.then_some(Told {
        visible_text,
        blocks,
    })
}

/// All text, with nothing between.
pub fn visible_text(blocks: &[Block]) -> String {
    let texts = blocks.iter().filter_map(|block| match block {
        Block::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// The calls of a turn, each once.
pub fn tool_call_ids(blocks: &[Block]) -> Vec<String> {
    once(blocks.iter().filter_map(|block| match block {
        Block::ToolUse { id, .. } => Some(id),
        _ => None,
    }))
}

/// The calls whose results a turn holds, each once.
pub fn evidence_ids(blocks: &[Block]) -> Vec<String> {
    once(blocks.iter().filter_map(|block| match block {
        Block::ToolResult { tool_use_id, .. } => Some(tool_use_id),
        _ => None,
    }))
}

fn once<'a>(ids: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    ids.filter(|id| !id.is_empty() && seen.insert(id.as_str()))
        .cloned()
        .collect()
}
