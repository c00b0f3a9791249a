//! `append`: one round trip to the SQL function that decides identity, seq and quota under the head row's lock.

use std::borrow::Cow;

use bex_proto::ids::PartId;
use bex_proto::transcript::{Part, UNSTORABLE_KIND};
use bex_proto::{Generation, PartIndex, Seq, SessionId, TurnNo};
use jiff::Timestamp;
use tokio_postgres::Row;

use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{
    boolean, get, int4, int4s, int8, large, number, optional_unsigned, quota_mark, text, texts,
    times, turn_no, unsigned,
};

/// Parts of one turn, in any order, with holes and repeats as they come.
#[derive(Debug, Clone, Copy)]
pub struct Append<'a> {
    /// The session.
    pub session: &'a SessionId,
    /// The turn all parts belong to; a part of another turn is refused.
    pub turn: TurnNo,
    /// The sandbox life that spoke them.
    pub generation: Generation,
    /// The parts; may be empty when only the harvest moves.
    pub parts: &'a [Part],
    /// What else is known.
    pub marks: Marks,
    /// The harvest's move, made in the same transaction.
    pub harvest: Option<HarvestStep<'a>>,
}

/// What a batch says of its turn. Stand-ins (`data-bex-unstorable`) mark it by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Marks {
    /// Nothing.
    #[default]
    Clean,
    /// Something of the turn cannot be stored as it was.
    Unstorable,
}

/// Moves a log's offset, if it still stands at `from`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HarvestStep<'a> {
    /// The log file's identity.
    pub log_id: &'a str,
    /// Bytes read before.
    pub from: u64,
    /// Bytes read now.
    pub to: u64,
}

/// What append answered. Refusals are no errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendOutcome {
    /// The counts say what happened to each part.
    Stored(Appended),
    /// The turn is complete: nothing changed.
    Complete,
    /// Another generation speaks this turn: nothing changed.
    WrongGeneration,
    /// No such session or turn: nothing changed.
    UnknownTurn,
    /// The log's offset does not stand at `from`: somebody else harvests, nothing changed.
    OffsetMoved,
}

/// The counts of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Parts stored now.
    pub stored: u32,
    /// Parts that were there before.
    pub duplicates: u32,
    /// Parts the session's quota refused.
    pub refused_quota: u32,
    /// Parts at or above the count the driver declared.
    pub refused_declared: u32,
    /// The first part the quota ever refused: nothing at or above it is accepted.
    pub quota_mark: Option<PartId>,
    /// The lowest part of this batch whose stored bytes differ: they stay, the turn will settle `digest_mismatch`.
    pub mismatch: Option<PartIndex>,
    /// The seq the session's next part will get.
    pub next_seq: Seq,
}

/// Why nothing was appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The caller's mistake: not UTF-8, a NUL byte, or a part of another turn. Nothing was sent to the server.
    #[error("part {0} cannot be stored in this batch")]
    Part(PartId),
    /// Store trouble; whether the batch was stored is not known, and repeating it is safe.
    #[error(transparent)]
    Store(#[from] StoreError),
}

const APPEND: &str = "SELECT * FROM bex_append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

impl Db {
    /// Appends one batch in one round trip.
    ///
    /// # Errors
    /// See [`AppendError`].
    pub async fn append(&self, batch: Append<'_>) -> Result<AppendOutcome, AppendError> {
        let columns = Columns::of(batch.turn, batch.parts)?;
        let unstorable = batch.marks == Marks::Unstorable
            || columns.kinds.iter().any(|kind| kind == UNSTORABLE_KIND);
        let log_id = batch.harvest.map(|step| step.log_id);
        let from = batch.harvest.map(|step| offset(step.from));
        let to = batch.harvest.map(|step| offset(step.to));
        let row = self
            .query_one(
                "append",
                APPEND,
                &[
                    text(&batch.session.as_str()),
                    int4(&turn_no(batch.turn)),
                    int4(&number(batch.generation.0)),
                    int4s(&columns.indexes),
                    texts(&columns.kinds),
                    texts(&columns.chunk_ids),
                    texts(&columns.parts),
                    times(&columns.spoken_at),
                    boolean(&unstorable),
                    text(&log_id),
                    int8(&from),
                    int8(&to),
                ],
            )
            .await?;
        Ok(outcome(&row)?)
    }

    /// How far a log was harvested; 0 when nobody has.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn harvest_offset(
        &self,
        session: &SessionId,
        generation: Generation,
        log_id: &str,
    ) -> Result<u64, StoreError> {
        let row = self
            .query_opt(
                "harvest_offset",
                "SELECT byte_offset FROM harvest_offsets WHERE session_id = $1 AND generation = $2 AND log_id = $3",
                &[text(&session.as_str()), int4(&number(generation.0)), text(&log_id)],
            )
            .await?;
        row.map_or(Ok(0), |row| large(&row, "byte_offset"))
    }

    /// The log that was read last for a turn, with its offset: where a new observer goes on before it has seen the file.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn last_harvest(
        &self,
        session: &SessionId,
        generation: Generation,
        turn: TurnNo,
    ) -> Result<Option<(String, u64)>, StoreError> {
        let row = self
            .query_opt(
                "last_harvest",
                "SELECT log_id, byte_offset FROM harvest_offsets
                  WHERE session_id = $1 AND generation = $2 AND turn = $3 ORDER BY updated_at DESC LIMIT 1",
                &[text(&session.as_str()), int4(&number(generation.0)), int4(&turn_no(turn))],
            )
            .await?;
        row.map(|row| Ok((get(&row, "log_id")?, large(&row, "byte_offset")?)))
            .transpose()
    }

    /// When the harvest last read something new of a turn, stored or not; `None` when it never has.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn harvested_at(
        &self,
        session: &SessionId,
        generation: Generation,
        turn: TurnNo,
    ) -> Result<Option<Timestamp>, StoreError> {
        let row = self
            .query_one(
                "harvested_at",
                "SELECT max(updated_at) AS at FROM harvest_offsets
                  WHERE session_id = $1 AND generation = $2 AND turn = $3",
                &[
                    text(&session.as_str()),
                    int4(&number(generation.0)),
                    int4(&turn_no(turn)),
                ],
            )
            .await?;
        get(&row, "at")
    }
}

/// The batch as the function's arrays.
struct Columns<'a> {
    indexes: Vec<i32>,
    kinds: Vec<Cow<'a, str>>,
    chunk_ids: Vec<Option<&'a str>>,
    parts: Vec<&'a str>,
    spoken_at: Vec<Option<Timestamp>>,
}

impl<'a> Columns<'a> {
    fn of(turn: TurnNo, parts: &'a [Part]) -> Result<Self, AppendError> {
        let mut columns = Self {
            indexes: Vec::with_capacity(parts.len()),
            kinds: Vec::with_capacity(parts.len()),
            chunk_ids: Vec::with_capacity(parts.len()),
            parts: Vec::with_capacity(parts.len()),
            spoken_at: Vec::with_capacity(parts.len()),
        };
        for part in parts {
            let refused = || AppendError::Part(part.id);
            let bytes = std::str::from_utf8(&part.bytes).map_err(|_| refused())?;
            if part.id.turn != turn || bytes.contains('\0') {
                return Err(refused());
            }
            columns
                .indexes
                .push(i32::try_from(part.id.index.0).map_err(|_| refused())?);
            let kind = part.head.kind_column();
            let storable_kind = storable(&kind).is_some();
            columns.kinds.push(if storable_kind {
                kind
            } else {
                "unknown".into()
            });
            columns
                .chunk_ids
                .push(part.head.chunk_id.as_deref().and_then(storable));
            columns.parts.push(bytes);
            columns
                .spoken_at
                .push(part.spoken_at.filter(is_storable_time));
        }
        Ok(columns)
    }
}

/// A decoded `\u0000` in a type or id must not fail the batch; the part's own text keeps the escape.
fn storable(decoded: &str) -> Option<&str> {
    (!decoded.contains('\0')).then_some(decoded)
}

/// A driver's clock that is far off must not fail the batch: the server's calendar begins later than ours.
fn is_storable_time(at: &Timestamp) -> bool {
    *at >= Timestamp::UNIX_EPOCH
}

fn offset(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn outcome(row: &Row) -> Result<AppendOutcome, StoreError> {
    match get::<&str>(row, "status")? {
        "stored" => {}
        "complete" => return Ok(AppendOutcome::Complete),
        "wrong_generation" => return Ok(AppendOutcome::WrongGeneration),
        "unknown_turn" => return Ok(AppendOutcome::UnknownTurn),
        "offset_moved" => return Ok(AppendOutcome::OffsetMoved),
        _ => {
            return Err(StoreError::Corrupt {
                what: "append status",
            });
        }
    }
    Ok(AppendOutcome::Stored(Appended {
        stored: unsigned(row, "stored")?,
        duplicates: unsigned(row, "duplicates")?,
        refused_quota: unsigned(row, "refused_quota")?,
        refused_declared: unsigned(row, "refused_declared")?,
        quota_mark: quota_mark(row)?,
        mismatch: optional_unsigned(row, "mismatch_index")?.map(PartIndex),
        next_seq: Seq(get(row, "next_seq")?),
    }))
}
