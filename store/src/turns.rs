//! Turns: what was asked, how it was delivered, how it ended, what is known of its transcript.

use bex_proto::driver::{Dropped, TurnEnd, TurnState};
use bex_proto::session::{DeliveryMode, EndedBy, TruncationReason, Verdict};
use bex_proto::{Generation, PartIndex, RunId, SessionId, TurnNo};
use jiff::Timestamp;
use tokio_postgres::Row;

use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{
    generation, get, int4, large, number, optional_unsigned, optional_word, text, turn, turn_no,
    unsigned, word,
};

/// Turns without their prompts, which may be long.
macro_rules! select_without_prompt {
    ($which:literal) => {
        concat!(
            "SELECT session_id, turn, '' AS prompt, delivery_mode, generation, delivery_started_at, delivered_at,
                    stop_requested_at, verdict, reason, ended_by, driver_state, expected_parts, expected_sha256,
                    dropped_first, dropped_last, dropped_count, unstorable, mismatch_index, stored_parts,
                    stored_bytes, created_at, started_at, last_part_at, settled_at, healed_at, run_id
               FROM turns ",
            $which
        )
    };
}

/// One turn.
#[derive(Debug, Clone)]
pub struct TurnRow {
    /// Its session.
    pub session: SessionId,
    /// Its number, from 1.
    pub turn: TurnNo,
    /// What was asked.
    pub prompt: String,
    /// How it reached its driver.
    pub delivery_mode: DeliveryMode,
    /// The sandbox life that speaks it; 0 before there is one.
    pub generation: Generation,
    /// Set before the driver is called: from here on no other generation may speak it.
    pub delivery_started_at: Option<Timestamp>,
    /// When the driver accepted it.
    pub delivered_at: Option<Timestamp>,
    /// When somebody asked to stop it.
    pub stop_requested_at: Option<Timestamp>,
    /// What is known of the transcript.
    pub verdict: Verdict,
    /// Why it is not whole.
    pub reason: Option<TruncationReason>,
    /// Who ended it.
    pub ended_by: Option<EndedBy>,
    /// The driver's word for the end.
    pub driver_state: Option<TurnState>,
    /// Parts the driver declared.
    pub expected_parts: Option<u32>,
    /// Digest the driver declared.
    pub expected_sha256: Option<String>,
    /// What the driver's log did not keep.
    pub dropped: Option<DroppedRange>,
    /// A stand-in was stored, or a line was too long to read.
    pub unstorable: bool,
    /// The lowest part whose stored bytes differ from the log's.
    pub mismatch: Option<PartIndex>,
    /// Stored parts.
    pub stored_parts: u32,
    /// Their bytes, without charges.
    pub stored_bytes: u64,
    /// When it was asked.
    pub created_at: Timestamp,
    /// Delivery or first part, whichever was first.
    pub started_at: Option<Timestamp>,
    /// The newest part's arrival.
    pub last_part_at: Option<Timestamp>,
    /// Set once.
    pub settled_at: Option<Timestamp>,
    /// When a truncated turn became complete.
    pub healed_at: Option<Timestamp>,
    /// The run it is; turns from before runs were given have none.
    pub run: Option<RunId>,
}

/// Indexes a full log dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DroppedRange {
    /// First.
    pub first: PartIndex,
    /// Last.
    pub last: PartIndex,
    /// How many.
    pub count: u32,
}

impl From<Dropped> for DroppedRange {
    fn from(dropped: Dropped) -> Self {
        Self {
            first: dropped.first,
            last: dropped.last,
            count: dropped.count,
        }
    }
}

/// What recording a turn-end did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordedEnd {
    /// It is known now, or was known already with the same content.
    Known,
    /// Another one was recorded before, or the turn is settled, or the generation is not the turn's.
    Refused,
}

impl TurnRow {
    pub(crate) fn read(row: &Row) -> Result<Self, StoreError> {
        let dropped = match optional_unsigned(row, "dropped_first")? {
            Some(first) => Some(DroppedRange {
                first: PartIndex(first),
                last: PartIndex(unsigned(row, "dropped_last")?),
                count: unsigned(row, "dropped_count")?,
            }),
            None => None,
        };
        Ok(Self {
            session: word(row, "session_id")?,
            turn: turn(row, "turn")?,
            prompt: get(row, "prompt")?,
            delivery_mode: word(row, "delivery_mode")?,
            generation: generation(row, "generation")?,
            delivery_started_at: get(row, "delivery_started_at")?,
            delivered_at: get(row, "delivered_at")?,
            stop_requested_at: get(row, "stop_requested_at")?,
            verdict: word(row, "verdict")?,
            reason: optional_word(row, "reason")?,
            ended_by: optional_word(row, "ended_by")?,
            driver_state: optional_word(row, "driver_state")?,
            expected_parts: optional_unsigned(row, "expected_parts")?,
            expected_sha256: get(row, "expected_sha256")?,
            dropped,
            unstorable: get(row, "unstorable")?,
            mismatch: optional_unsigned(row, "mismatch_index")?.map(PartIndex),
            stored_parts: unsigned(row, "stored_parts")?,
            stored_bytes: large(row, "stored_bytes")?,
            created_at: get(row, "created_at")?,
            started_at: get(row, "started_at")?,
            last_part_at: get(row, "last_part_at")?,
            settled_at: get(row, "settled_at")?,
            healed_at: get(row, "healed_at")?,
            run: optional_word(row, "run_id")?,
        })
    }
}

impl Db {
    /// One turn.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn turn(
        &self,
        session: &SessionId,
        turn: TurnNo,
    ) -> Result<Option<TurnRow>, StoreError> {
        self.query_opt(
            "turn",
            "SELECT * FROM turns WHERE session_id = $1 AND turn = $2",
            &[text(&session.as_str()), int4(&turn_no(turn))],
        )
        .await?
        .as_ref()
        .map(TurnRow::read)
        .transpose()
    }

    /// As [`Db::turn`], but `prompt` is left empty: for those who look at a turn again and again.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn turn_without_prompt(
        &self,
        session: &SessionId,
        turn: TurnNo,
    ) -> Result<Option<TurnRow>, StoreError> {
        self.query_opt(
            "turn_without_prompt",
            select_without_prompt!("WHERE session_id = $1 AND turn = $2"),
            &[text(&session.as_str()), int4(&turn_no(turn))],
        )
        .await?
        .as_ref()
        .map(TurnRow::read)
        .transpose()
    }

    /// The open turn, if there is one: at most one is.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn open_turn(&self, session: &SessionId) -> Result<Option<TurnRow>, StoreError> {
        self.query_opt(
            "open_turn",
            "SELECT * FROM turns WHERE session_id = $1 AND verdict = 'open'",
            &[text(&session.as_str())],
        )
        .await?
        .as_ref()
        .map(TurnRow::read)
        .transpose()
    }

    /// Turns from a number on, in order, prompts included: at most `limit`. All prompts of a session are 8 MiB at most.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn turns(
        &self,
        session: &SessionId,
        from: TurnNo,
        limit: u32,
    ) -> Result<Vec<TurnRow>, StoreError> {
        let rows = self
            .query(
                "turns",
                "SELECT * FROM turns WHERE session_id = $1 AND turn >= $2 ORDER BY turn LIMIT $3",
                &[
                    text(&session.as_str()),
                    int4(&turn_no(from)),
                    int4(&number(limit)),
                ],
            )
            .await?;
        rows.iter().map(TurnRow::read).collect()
    }

    /// As [`Db::turns`], but `prompt` is left empty: for views that show no prompts and should not read 8 MiB of them.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn turns_without_prompts(
        &self,
        session: &SessionId,
        from: TurnNo,
        limit: u32,
    ) -> Result<Vec<TurnRow>, StoreError> {
        let rows = self
            .query(
                "turns_without_prompts",
                select_without_prompt!(
                    "WHERE session_id = $1 AND turn >= $2 ORDER BY turn LIMIT $3"
                ),
                &[
                    text(&session.as_str()),
                    int4(&turn_no(from)),
                    int4(&number(limit)),
                ],
            )
            .await?;
        rows.iter().map(TurnRow::read).collect()
    }

    /// Keeps a turn-end record as soon as the harvest meets it: a crash before the settle then loses nothing, and append
    /// refuses indexes at or above the declared count from now on. Never overwritten.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn record_turn_end(
        &self,
        session: &SessionId,
        generation: Generation,
        end: &TurnEnd,
    ) -> Result<RecordedEnd, StoreError> {
        let dropped = end.dropped.map(DroppedRange::from);
        let rows = self
            .execute(
                "record_turn_end",
                "UPDATE turns SET expected_parts = $4, expected_sha256 = $5, driver_state = $6,
                        dropped_first = $7, dropped_last = $8, dropped_count = $9
                  WHERE session_id = $1 AND turn = $2 AND generation = $3 AND verdict = 'open'
                    AND (expected_parts IS NULL OR (expected_parts = $4 AND expected_sha256 = $5))",
                &[
                    text(&session.as_str()),
                    int4(&turn_no(end.turn)),
                    int4(&number(generation.0)),
                    int4(&number(end.parts)),
                    text(&end.sha256),
                    text(&end.state.as_str()),
                    int4(&dropped.map(|d| number(d.first.0))),
                    int4(&dropped.map(|d| number(d.last.0))),
                    int4(&dropped.map(|d| number(d.count))),
                ],
            )
            .await?;
        Ok(if rows == 1 {
            RecordedEnd::Known
        } else {
            RecordedEnd::Refused
        })
    }
}
