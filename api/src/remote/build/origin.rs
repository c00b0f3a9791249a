//! What a block is called wherever it is told: by a program that resumes, by its own record, by a report that is sent again. A name must
//! never be another block's, or that one is lost; so what may be a mere counter is named together with what it names.

use bex_proto::message::Block;
use bex_proto::transcript::sha256_hex;

use super::BuiltBlock;
use super::provider::{Message, Names};

/// Bytes of an id in a name; a longer one is named by its hash. Names stand in an index.
const LONG: usize = 80;
/// An id that is shorter may be a counter.
const SHORT: usize = 16;
/// Characters of a hash.
const HASH: usize = 32;

/// The name of a block of this message; none where its provider gives it none that lasts.
pub fn of(message: &Message, block: &Block) -> Option<String> {
    if message.names == Names::OfRun {
        return None;
    }
    let of_message = |kind: &str, text: &str| {
        let id = message.id.as_deref().filter(|id| !id.is_empty())?;
        Some(format!("{}:{kind}:{}", bounded(id), hash(text)))
    };
    let own = |kind: &str, id: &str, content: &str| match id.len() {
        0 => None,
        1..SHORT => Some(format!("{kind}:{id}:{}", hash(content))),
        _ => Some(format!("{kind}:{}", bounded(id))),
    };
    match block {
        Block::Text { text, .. } => of_message("text", text),
        Block::Thinking { thinking, .. } => of_message("thinking", thinking),
        Block::Reasoning { text } => of_message("reasoning", text),
        Block::ToolUse {
            id, name, input, ..
        } => own("call", id, &[name, "\n", input.get()].concat()),
        Block::ToolResult {
            tool_use_id,
            content,
            ..
        } => own("result", tool_use_id, content.get()),
    }
}

/// The name of a prompt in a program's record.
pub fn of_prompt(id: &str) -> String {
    format!("user:{}", bounded(id))
}

/// The one name of all blocks of a turn that have none of their own: its conversation, what it cost and all that was said. What a turn costs
/// grows with its conversation, so no two are the same.
pub fn of_turn(conversation: &str, cost: &str, blocks: &[BuiltBlock]) -> String {
    let said = blocks
        .iter()
        .map(|built| serde_json::to_string(&built.block).expect("a block always serialises"));
    let said = said.collect::<Vec<_>>().join("\n");
    format!("turn:{}", hash(&format!("{conversation}\n{cost}\n{said}")))
}

fn bounded(id: &str) -> String {
    match id.len() {
        0..=LONG => id.to_owned(),
        _ => hash(id),
    }
}

fn hash(text: &str) -> String {
    let mut hash = sha256_hex(text.as_bytes());
    hash.truncate(HASH);
    hash
}
