//! Taking in a session that was exported elsewhere: all of it in one transaction, or nothing. Nothing is made up: rows, seqs, times
//! and statements are those of the export.

use bex_proto::transcript::Part;
use bex_proto::{Generation, Seq, SessionId, limits};
use jiff::Timestamp;

use crate::error::StoreError;
use crate::pool::{Db, Tx};
use crate::proof::StatementRow;
use crate::sessions::SessionRow;
use crate::sql::{
    boolean, get, int4, int4s, int8, int8s, number, text, texts, time, times, turn_no,
};
use crate::turns::TurnRow;

/// Parts of one insert; one large part more is bounded by a part's own limit.
const BATCH_PARTS: usize = 1000;
/// Bytes of one insert.
const BATCH_BYTES: usize = limits::PART_BYTES;

/// What an export holds beside its session.
#[derive(Debug, Clone)]
pub enum ImportRecord {
    /// A settled turn.
    Turn {
        /// Its row.
        row: Box<TurnRow>,
        /// Whether a statement says exactly this of it.
        stated: bool,
    },
    /// A part of the turn before it.
    Part {
        /// The part.
        part: Part,
        /// Its place in the feed.
        seq: Seq,
        /// When it was stored first.
        created_at: Timestamp,
    },
    /// A statement of the chain.
    Statement(StatementRow),
}

/// What became of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Imported {
    /// The session is here now.
    Done,
    /// A session of this id is here already.
    Exists,
    /// One of this id was deleted and its parts are still being removed.
    BeingDeleted,
}

/// Why an import stopped; nothing was kept.
#[derive(Debug, thiserror::Error)]
pub enum ImportError<E> {
    /// Reading the export failed.
    #[error("the export cannot be read")]
    Read(#[source] E),
    /// Store trouble.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Db {
    /// Takes in a session with its records in the order of an export.
    ///
    /// # Errors
    /// See [`ImportError`].
    pub async fn import_session<E>(
        &self,
        session: &SessionRow,
        generation: Generation,
        records: impl Iterator<Item = Result<ImportRecord, E>>,
    ) -> Result<Imported, ImportError<E>> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        let sql = "SELECT EXISTS (SELECT 1 FROM deletions WHERE session_id = $1) AS deleting";
        let row = tx
            .query_one("import", sql, &[text(&session.id.as_str())])
            .await?;
        if get(&row, "deleting").map_err(ImportError::Store)? {
            return Ok(Imported::BeingDeleted);
        }
        if !tx.import_session_row(session, generation).await? {
            return Ok(Imported::Exists);
        }
        let mut batch = Batch::default();
        let mut counters = Counters::default();
        for record in records {
            let record = record.map_err(ImportError::Read)?;
            match record {
                ImportRecord::Part {
                    part,
                    seq,
                    created_at,
                } => {
                    counters.add(seq, part.bytes.len());
                    batch.push(part, seq, created_at);
                    if batch.is_full() {
                        tx.import_parts(&session.id, &mut batch).await?;
                    }
                }
                ImportRecord::Turn { row, stated } => tx.import_turn(&row, stated).await?,
                ImportRecord::Statement(row) => tx.import_statement(&session.id, &row).await?,
            }
        }
        tx.import_parts(&session.id, &mut batch).await?;
        tx.import_head(session, counters).await?;
        tx.commit().await?;
        Ok(Imported::Done)
    }
}

/// What a transcript's head counts.
#[derive(Default)]
struct Counters {
    next_seq: i64,
    bytes: i64,
    parts: i64,
}

impl Counters {
    fn add(&mut self, seq: Seq, length: usize) {
        self.next_seq = self.next_seq.max(seq.0.saturating_add(1));
        self.bytes += i64::try_from(length + limits::PART_CHARGE).unwrap_or(i64::MAX);
        self.parts += 1;
    }
}

/// Parts waiting for one insert.
#[derive(Default)]
struct Batch {
    bytes: usize,
    parts: Vec<(Part, Seq, Timestamp)>,
}

impl Batch {
    fn push(&mut self, part: Part, seq: Seq, created_at: Timestamp) {
        self.bytes += part.bytes.len();
        self.parts.push((part, seq, created_at));
    }

    fn is_full(&self) -> bool {
        self.parts.len() >= BATCH_PARTS || self.bytes >= BATCH_BYTES
    }
}

impl Tx<'_> {
    /// False when there is one of this id.
    async fn import_session_row(
        &self,
        s: &SessionRow,
        generation: Generation,
    ) -> Result<bool, StoreError> {
        let agent =
            serde_json::to_string(&s.agent).map_err(|_| StoreError::Corrupt { what: "agent" })?;
        let rows = self
            .execute(
                "import_session",
                "WITH s AS (
                     INSERT INTO sessions (id, workspace_id, kind, workflow_id, title, repo, branch, agent, created_by, phase,
                         failure_reason, turns, prompt_bytes, generation, legal_hold, created_at, updated_at, archived_at,
                         cancel_requested_at, canceled_at)
                     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
                     ON CONFLICT (id) DO NOTHING RETURNING id)
                 INSERT INTO leases (session_id) SELECT id FROM s",
                &[
                    text(&s.id.as_str()),
                    text(&s.workspace.as_str()),
                    text(&s.kind.as_str()),
                    text(&s.workflow_id),
                    text(&s.title),
                    text(&s.repo),
                    text(&s.branch),
                    text(&agent),
                    text(&s.created_by),
                    text(&s.phase.as_str()),
                    text(&s.failure_reason),
                    int4(&turn_no(s.turns)),
                    int8(&i64::try_from(s.prompt_bytes).unwrap_or(i64::MAX)),
                    int4(&number(generation.0)),
                    boolean(&s.legal_hold),
                    time(&s.created_at),
                    time(&s.updated_at),
                    time(&s.archived_at),
                    time(&s.cancel_requested_at),
                    time(&s.canceled_at),
                ],
            )
            .await?;
        Ok(rows == 1)
    }

    async fn import_turn(&self, t: &TurnRow, stated: bool) -> Result<(), StoreError> {
        let dropped = t.dropped;
        self.execute(
            "import_turn",
            "INSERT INTO turns (session_id, turn, prompt, delivery_mode, generation, delivery_started_at, delivered_at,
                 stop_requested_at, verdict, reason, ended_by, driver_state, expected_parts, expected_sha256,
                 dropped_first, dropped_last, dropped_count, unstorable, mismatch_index, stored_parts, stored_bytes,
                 created_at, started_at, last_part_at, settled_at, healed_at, statement_due)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
                     $23, $24, $25, $26, $27)",
            &[
                text(&t.session.as_str()),
                int4(&turn_no(t.turn)),
                text(&t.prompt),
                text(&t.delivery_mode.as_str()),
                int4(&number(t.generation.0)),
                time(&t.delivery_started_at),
                time(&t.delivered_at),
                time(&t.stop_requested_at),
                text(&t.verdict.as_str()),
                text(&t.reason.map(|r| r.as_str())),
                text(&t.ended_by.map(|e| e.as_str())),
                text(&t.driver_state.map(|s| s.as_str())),
                int4(&t.expected_parts.map(number)),
                text(&t.expected_sha256),
                int4(&dropped.map(|d| number(d.first.0))),
                int4(&dropped.map(|d| number(d.last.0))),
                int4(&dropped.map(|d| number(d.count))),
                boolean(&t.unstorable),
                int4(&t.mismatch.map(|i| number(i.0))),
                int4(&number(t.stored_parts)),
                int8(&i64::try_from(t.stored_bytes).unwrap_or(i64::MAX)),
                time(&t.created_at),
                time(&t.started_at),
                time(&t.last_part_at),
                time(&t.settled_at),
                time(&t.healed_at),
                boolean(&!stated),
            ],
        )
        .await
        .map(drop)
    }

    async fn import_parts(&self, session: &SessionId, batch: &mut Batch) -> Result<(), StoreError> {
        let Batch { parts, .. } = std::mem::take(batch);
        if parts.is_empty() {
            return Ok(());
        }
        let mut bodies = Vec::with_capacity(parts.len());
        for (part, _, _) in &parts {
            let body = std::str::from_utf8(&part.bytes);
            bodies.push(body.map_err(|_| StoreError::Corrupt { what: "part" })?);
        }
        let turns: Vec<i32> = parts.iter().map(|(p, _, _)| turn_no(p.id.turn)).collect();
        let indexes: Vec<i32> = parts.iter().map(|(p, _, _)| number(p.id.index.0)).collect();
        let seqs: Vec<i64> = parts.iter().map(|(_, seq, _)| seq.0).collect();
        // as append keeps them: a column holds no NUL
        let kinds: Vec<_> = parts.iter().map(|(p, _, _)| p.head.kind_column()).collect();
        let kinds: Vec<&str> = kinds
            .iter()
            .map(|k| {
                if k.contains('\0') {
                    "unknown"
                } else {
                    k.as_ref()
                }
            })
            .collect();
        let chunk_ids: Vec<Option<&str>> = parts
            .iter()
            .map(|(p, _, _)| p.head.chunk_id.as_deref().filter(|id| !id.contains('\0')))
            .collect();
        let spoken: Vec<Option<Timestamp>> = parts.iter().map(|(p, _, _)| p.spoken_at).collect();
        let created: Vec<Option<Timestamp>> = parts.iter().map(|(_, _, at)| Some(*at)).collect();
        self.execute(
            "import_parts",
            "INSERT INTO transcript_parts (session_id, turn, part_index, seq, kind, chunk_id, part, spoken_at, created_at)
             SELECT $1, * FROM unnest($2, $3, $4, $5, $6, $7, $8, $9)",
            &[
                text(&session.as_str()),
                int4s(&turns),
                int4s(&indexes),
                int8s(&seqs),
                texts(&kinds),
                texts(&chunk_ids),
                texts(&bodies),
                times(&spoken),
                times(&created),
            ],
        )
        .await
        .map(drop)
    }

    async fn import_statement(
        &self,
        session: &SessionId,
        row: &StatementRow,
    ) -> Result<(), StoreError> {
        self.execute(
            "import_statement",
            "INSERT INTO turn_statements (session_id, number, turn, statement, created_at) VALUES ($1, $2, $3, $4, $5)",
            &[
                text(&session.as_str()),
                int4(&number(row.number)),
                int4(&turn_no(row.turn)),
                text(&row.statement),
                time(&row.created_at),
            ],
        )
        .await
        .map(drop)
    }

    async fn import_head(&self, s: &SessionRow, counters: Counters) -> Result<(), StoreError> {
        let mark = s.transcript.quota_mark;
        self.execute(
            "import_head",
            "INSERT INTO transcript_heads (session_id, next_seq, bytes, parts, quota_turn, quota_index, byte_limit, part_limit)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            &[
                text(&s.id.as_str()),
                int8(&counters.next_seq),
                int8(&counters.bytes),
                int8(&counters.parts),
                int4(&mark.map(|m| turn_no(m.turn))),
                int4(&mark.map(|m| number(m.index.0))),
                int8(&i64::try_from(limits::SESSION_BYTES).unwrap_or(i64::MAX)),
                int8(&i64::from(limits::SESSION_PARTS)),
            ],
        )
        .await
        .map(drop)
    }
}
