//! The chain of signed statements about settled turns. The store keeps the signed texts verbatim, in order and append-only; what
//! they say and who signs is the api's.
//!
//! A turn becomes due in the transaction that settles it, heals it, or gives it parts afterwards. Facts are read without a lock:
//! stored parts never change and only become more, so a turn whose count is still the same is the turn that was read.

use bex_proto::session::Verdict;
use bex_proto::{SessionId, TurnNo, WorkspaceId};
use jiff::Timestamp;

use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{get, int4, int8, number, optional_unsigned, text, turn, turn_no, unsigned, word};
use crate::turns::TurnRow;

/// One statement of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementRow {
    /// Its place in the chain.
    pub number: u32,
    /// The turn it speaks of.
    pub turn: TurnNo,
    /// The signed text.
    pub statement: String,
    /// When it was kept.
    pub created_at: Timestamp,
}

/// What a statement is made from.
#[derive(Debug, Clone)]
pub struct TurnFacts {
    /// The owner.
    pub workspace: WorkspaceId,
    /// The turn, without its prompt.
    pub turn: TurnRow,
    /// SHA-256 of the prompt, lower-case hexadecimal.
    pub prompt_sha256: String,
    /// SHA-256 over the stored parts in order, each followed by a newline.
    pub sha256: String,
    /// The newest statement of the session.
    pub previous: Option<(u32, String)>,
    /// The newest statement of this turn, which the next one supersedes.
    pub superseded: Option<u32>,
}

/// What adding a statement did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stated {
    /// It is the chain's newest.
    Now,
    /// The turn moved meanwhile, or somebody else added a statement: read the facts again.
    Moved,
}

const FACTS: &str = "
    SELECT t.session_id, t.turn, '' AS prompt, t.delivery_mode, t.generation, t.delivery_started_at, t.delivered_at,
           t.stop_requested_at, t.verdict, t.reason, t.ended_by, t.driver_state, t.expected_parts, t.expected_sha256,
           t.dropped_first, t.dropped_last, t.dropped_count, t.unstorable, t.mismatch_index, t.stored_parts,
           t.stored_bytes, t.created_at, t.started_at, t.last_part_at, t.settled_at, t.healed_at, t.run_id,
           s.workspace_id, encode(sha256(convert_to(t.prompt, 'UTF8')), 'hex') AS prompt_sha256,
           (SELECT encode(sha256(convert_to(COALESCE(string_agg(p.part || E'\\n', '' ORDER BY p.part_index), ''),
                                            'UTF8')), 'hex')
              FROM transcript_parts p WHERE p.session_id = $1 AND p.turn = $2) AS sha256,
           n.number AS previous, n.statement AS previous_statement,
           (SELECT max(o.number) FROM turn_statements o WHERE o.session_id = $1 AND o.turn = $2) AS superseded
      FROM turns t JOIN sessions s ON s.id = t.session_id
      LEFT JOIN LATERAL (SELECT number, statement FROM turn_statements
                          WHERE session_id = $1 ORDER BY number DESC LIMIT 1) n ON true
     WHERE t.session_id = $1 AND t.turn = $2 AND t.statement_due AND t.verdict <> 'open'";

impl Db {
    /// Settled turns without an up-to-date statement, at most `limit`.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn statements_due(&self, limit: u32) -> Result<Vec<(SessionId, TurnNo)>, StoreError> {
        let rows = self
            .query(
                "statements_due",
                "SELECT session_id, turn FROM turns WHERE statement_due AND verdict <> 'open'
                  ORDER BY session_id, turn LIMIT $1",
                &[int8(&i64::from(limit))],
            )
            .await?;
        rows.iter()
            .map(|row| Ok((word(row, "session_id")?, turn(row, "turn")?)))
            .collect()
    }

    /// What the turn's next statement says. `None` when none is due.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn turn_facts(
        &self,
        session: &SessionId,
        turn: TurnNo,
    ) -> Result<Option<TurnFacts>, StoreError> {
        let (session, turn) = (session.as_str(), turn_no(turn));
        let params = [text(&session), int4(&turn)];
        let Some(row) = self.query_opt("turn_facts", FACTS, &params).await? else {
            return Ok(None);
        };
        let previous = match optional_unsigned(&row, "previous")? {
            Some(number) => Some((number, get(&row, "previous_statement")?)),
            None => None,
        };
        Ok(Some(TurnFacts {
            workspace: word(&row, "workspace_id")?,
            turn: TurnRow::read(&row)?,
            prompt_sha256: get(&row, "prompt_sha256")?,
            sha256: get(&row, "sha256")?,
            previous,
            superseded: optional_unsigned(&row, "superseded")?,
        }))
    }

    /// Adds the statement that was made from `facts` to its chain, if turn and chain still are as they were.
    ///
    /// # Errors
    /// Store trouble; whether it was added is then not known, and asking for the facts tells.
    pub async fn add_statement(
        &self,
        facts: &TurnFacts,
        statement: &str,
    ) -> Result<Stated, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        let (session, turn) = (facts.turn.session.as_str(), turn_no(facts.turn.turn));
        // sessions before turns, as everywhere; the insert would take the same lock
        let sql = "SELECT 1 FROM sessions WHERE id = $1 FOR KEY SHARE";
        tx.query("add_statement", sql, &[text(&session)]).await?;
        let sql = "SELECT verdict, stored_parts, statement_due FROM turns
                    WHERE session_id = $1 AND turn = $2 FOR NO KEY UPDATE";
        let params = [text(&session), int4(&turn)];
        let Some(row) = tx.query_opt("add_statement", sql, &params).await? else {
            return Ok(Stated::Moved);
        };
        let same = get::<bool>(&row, "statement_due")?
            && word::<Verdict>(&row, "verdict")? == facts.turn.verdict
            && unsigned(&row, "stored_parts")? == facts.turn.stored_parts;
        if !same {
            return Ok(Stated::Moved);
        }
        let next = facts.previous.as_ref().map_or(0, |(n, _)| n + 1);
        let added = tx
            .execute(
                "add_statement",
                "INSERT INTO turn_statements (session_id, number, turn, statement) VALUES ($1, $2, $3, $4)
                 ON CONFLICT (session_id, number) DO NOTHING",
                &[
                    text(&session),
                    int4(&number(next)),
                    int4(&turn),
                    text(&statement),
                ],
            )
            .await?;
        if added == 0 {
            return Ok(Stated::Moved);
        }
        tx.execute(
            "add_statement",
            "UPDATE turns SET statement_due = false WHERE session_id = $1 AND turn = $2",
            &params,
        )
        .await?;
        tx.commit().await?;
        Ok(Stated::Now)
    }

    /// The chain from a number on, in order: at most `limit`.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn statements(
        &self,
        session: &SessionId,
        from: u32,
        limit: u32,
    ) -> Result<Vec<StatementRow>, StoreError> {
        let rows = self
            .query(
                "statements",
                "SELECT number, turn, statement, created_at FROM turn_statements
                  WHERE session_id = $1 AND number >= $2 ORDER BY number LIMIT $3",
                &[
                    text(&session.as_str()),
                    int4(&number(from)),
                    int8(&i64::from(limit)),
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(StatementRow {
                    number: unsigned(row, "number")?,
                    turn: turn(row, "turn")?,
                    statement: get(row, "statement")?,
                    created_at: get(row, "created_at")?,
                })
            })
            .collect()
    }

    /// Settled turns of the session that wait for their statement.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn statements_pending(&self, session: &SessionId) -> Result<u64, StoreError> {
        let row = self
            .query_one(
                "statements_pending",
                "SELECT count(*) AS pending FROM turns WHERE session_id = $1
                    AND statement_due AND verdict <> 'open'",
                &[text(&session.as_str())],
            )
            .await?;
        crate::sql::large(&row, "pending")
    }
}
