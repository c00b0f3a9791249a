//! From what a builder made to rows: ids, the policy, and what was told before left out.

use std::collections::{HashMap, HashSet};

use bex_proto::ids::derived_id;
use bex_proto::message::{Block, MessageRole, MessageSource};
use bex_proto::session::SessionKind;
use bex_proto::transcript::sha256_hex;
use bex_store::remote::{BuiltRow, MessageText, RemoteSessionRow, RemoteTurnRow};
use bex_store::{Db, StoreError};
use serde::Serialize;

use super::build::{
    self, Built, BuiltTurn, Imported, evidence_ids, told, tool_call_ids, visible_text,
};

/// Rows of a look.
#[derive(Debug, Default)]
pub struct Rows {
    /// In order.
    pub rows: Vec<BuiltRow>,
    /// Rows of the log that are done then, those that came to nothing included.
    pub built: u64,
    /// The program's own session id, if it was told.
    pub cli_session: Option<String>,
    /// There are more.
    pub cut: bool,
}

/// Rows of what a builder made from the log: at most `most`, and none from `until` on.
///
/// # Errors
/// Store trouble only.
pub async fn of_log(
    db: &Db,
    session: &RemoteSessionRow,
    out: Vec<Built>,
    built: u64,
    until: Option<u64>,
    most: usize,
) -> Result<Rows, StoreError> {
    let mut rows = Rows {
        built,
        ..Rows::default()
    };
    let mut fresh = Vec::new();
    for one in out {
        let ordinal = match &one {
            Built::CliSession(id) => {
                rows.cli_session.get_or_insert_with(|| id.clone());
                continue;
            }
            Built::Turn(turn) => turn.ordinal,
            Built::System(system) => system.ordinal,
        };
        if ordinal < built {
            continue;
        }
        if fresh.len() >= most || until.is_some_and(|until| ordinal >= until) {
            rows.cut = true;
            break;
        }
        rows.built = ordinal + 1;
        fresh.push(one);
    }
    let mut known = Known::of(db, session, origins_of(&fresh)).await?;
    for one in fresh {
        let row = match one {
            Built::Turn(turn) => {
                let (index, offset) = turn.first;
                let id = derived_id("trn", &format!("{}\n{index}.{offset}", session.id));
                let events = Some((index, turn.last_index));
                known
                    .turn(session.kind, id, events, MessageSource::RemoteLive, turn)
                    .map(|turn| BuiltRow::Turn(Box::new(turn)))
            }
            Built::System(system) => {
                let of = format!("{}\n{}.{}", session.id, system.index, system.line);
                Some(BuiltRow::Message {
                    role: MessageRole::System,
                    source: MessageSource::RemoteLive,
                    message: MessageText {
                        id: derived_id("msg", &of),
                        content: system.content,
                        content_blocks: None,
                    },
                    at: system.at,
                    origins: Vec::new(),
                })
            }
            Built::CliSession(_) => None,
        };
        rows.rows.extend(row);
    }
    Ok(rows)
}

/// Rows of a program's own record that were not told live: turns whose pieces or whose text are known are left out, prompts that a chat wrote
/// too.
///
/// # Errors
/// Store trouble only.
pub async fn of_import(
    db: &Db,
    session: &RemoteSessionRow,
    lines: &str,
) -> Result<Vec<BuiltRow>, StoreError> {
    let imported = build::import(lines);
    // a record may be of a hundred thousand lines: what is asked of the store is asked at once, and its text is hashed once
    let (mut origins, mut prompts, mut digests) = (Vec::new(), HashSet::new(), Vec::new());
    for one in &imported {
        match one {
            Imported::User { text, origin, .. } => {
                origins.extend(origin.clone());
                prompts.insert(text.as_str());
                digests.push(None);
            }
            Imported::Turn(turn) => {
                origins.extend(turn_origins(turn));
                digests.push(text_sha256(&said_in(turn)));
            }
        }
    }
    let mut known = Known::of(db, session, origins).await?;
    let prompts: Vec<&str> = prompts.into_iter().collect();
    let asked = db
        .user_rows_saying(&session.id, &prompts, session.head.next_position)
        .await?;
    let distinct: HashSet<&str> = digests.iter().flatten().map(String::as_str).collect();
    let distinct: Vec<&str> = distinct.into_iter().collect();
    let answered = db.turns_saying(&session.id, &distinct).await?;
    let record = sha256_hex(lines.as_bytes());
    let mut said: HashMap<String, u64> = HashMap::new();
    let mut rows = Vec::new();
    for ((place, one), digest) in imported.into_iter().enumerate().zip(digests) {
        let place = derived_id("x", &format!("{}\n{record}\n{place}", session.id));
        let id = |prefix: &str| format!("{prefix}-{}", &place["x-".len()..]);
        match one {
            Imported::User { text, origin, at } => {
                if origin.as_ref().is_some_and(|origin| known.has(origin)) {
                    continue;
                }
                let before = said.entry(format!("user\n{text}")).or_default();
                *before += 1;
                if asked.get(&text).is_some_and(|rows| rows >= before) {
                    continue;
                }
                rows.push(BuiltRow::Message {
                    role: MessageRole::User,
                    source: MessageSource::RemoteImport,
                    message: MessageText {
                        id: id("msg"),
                        content: text,
                        content_blocks: None,
                    },
                    at: at.unwrap_or(session.created_at),
                    origins: origin.into_iter().collect(),
                });
            }
            Imported::Turn(turn) => {
                if let Some(sha256) = digest {
                    let turns = answered.get(&sha256).copied().unwrap_or(0);
                    let before = said.entry(sha256).or_default();
                    *before += 1;
                    if turns >= *before {
                        continue;
                    }
                }
                let source = MessageSource::RemoteImport;
                let turn = known.turn(session.kind, id("trn"), None, source, turn);
                rows.extend(turn.map(|turn| BuiltRow::Turn(Box::new(turn))));
            }
        }
    }
    Ok(rows)
}

/// What was told in a session before.
struct Known {
    origins: HashSet<String>,
}

impl Known {
    async fn of(
        db: &Db,
        session: &RemoteSessionRow,
        origins: Vec<String>,
    ) -> Result<Self, StoreError> {
        let known = match origins.is_empty() {
            true => Vec::new(),
            false => db.known_origins(&session.id, &origins).await?,
        };
        Ok(Self {
            origins: known.into_iter().collect(),
        })
    }

    /// Whether this was told; from now on it was.
    fn has(&mut self, origin: &str) -> bool {
        !self.origins.insert(origin.to_owned())
    }

    /// A turn's row without what was told in an earlier one. `None`: nothing is left of it.
    fn turn(
        &mut self,
        kind: SessionKind,
        turn_id: String,
        events: Option<(u64, u64)>,
        source: MessageSource,
        turn: BuiltTurn,
    ) -> Option<RemoteTurnRow> {
        let had = turn.blocks.len();
        // pieces of one turn may share an origin: what counts is what other turns told
        let mut own = Vec::new();
        let mut blocks = Vec::new();
        for built in turn.blocks {
            match built.origin {
                Some(origin) if self.origins.contains(&origin) => continue,
                Some(origin) => own.push(origin),
                None => {}
            }
            blocks.push(built.block);
        }
        own.sort_unstable();
        own.dedup();
        self.origins.extend(own.iter().cloned());
        if blocks.is_empty() && had > 0 {
            return None;
        }
        let text = visible_text(&blocks);
        let message = told(kind, &blocks).map(|told| MessageText {
            id: format!("msg-{}", &turn_id["trn-".len()..]),
            content: told.visible_text,
            content_blocks: (!told.blocks.is_empty()).then(|| json(&told.blocks)),
        });
        Some(RemoteTurnRow {
            text_sha256: text_sha256(&text),
            visible_text: text,
            content_blocks: json(&blocks),
            tool_call_ids: json(&tool_call_ids(&blocks)),
            evidence_ids: json(&evidence_ids(&blocks)),
            terminal: turn.terminal,
            gaps: json(&turn.gaps),
            overflow: turn.overflow,
            source,
            model: turn.model,
            events,
            started_at: turn.started_at,
            completed_at: turn.completed_at,
            origins: own,
            message,
            turn_id,
        })
    }
}

/// All text of a turn, with nothing between.
fn said_in(turn: &BuiltTurn) -> String {
    let blocks: Vec<Block> = turn.blocks.iter().map(|b| b.block.clone()).collect();
    visible_text(&blocks)
}

fn turn_origins(turn: &BuiltTurn) -> impl Iterator<Item = String> {
    turn.blocks.iter().filter_map(|built| built.origin.clone())
}

fn origins_of(built: &[Built]) -> Vec<String> {
    let turns = built.iter().filter_map(|one| match one {
        Built::Turn(turn) => Some(turn),
        Built::System(_) | Built::CliSession(_) => None,
    });
    turns.flat_map(turn_origins).collect()
}

fn text_sha256(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| sha256_hex(text.as_bytes()))
}

fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("blocks, ids and ranges always serialise")
}
