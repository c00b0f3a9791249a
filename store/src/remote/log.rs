//! The event log: one way in, one order out.

use bex_proto::remote::{OutputEvent, OutputStream};
use bex_proto::{MachineId, RemoteSessionId, limits};
use jiff::Timestamp;
use tokio_postgres::Row;

use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{get, int4, int8, int8s, large, text, texts, times, word};

/// Events of one report, in any order.
#[derive(Debug, Clone, Copy)]
pub struct RemoteAppend<'a> {
    /// The session.
    pub session: &'a RemoteSessionId,
    /// Who reports: not bound to the session, it does not exist for it.
    pub machine: &'a MachineId,
    /// No NUL byte in them; the caller has looked.
    pub events: &'a [OutputEvent],
}

/// What became of a report. Only `Stored` changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// Each event is there.
    Stored {
        /// Events stored now.
        stored: u64,
        /// Events that were there.
        duplicates: u64,
        /// The first that is missing.
        next_index: u64,
    },
    /// No such session of this machine.
    Unknown,
    /// The machine was revoked, meanwhile.
    Revoked,
    /// The session has ended, and one of the events is new.
    Ended,
    /// Another event stands under this index.
    Conflict(u64),
    /// It is too far ahead of the first that is missing.
    TooFar {
        /// The event.
        index: u64,
        /// The first that is missing.
        next_index: u64,
    },
    /// The session's log takes no more.
    Full,
    /// More is stored than turns were built from.
    Backlog,
}

/// One stored event.
#[derive(Debug, Clone)]
pub struct LogRow {
    /// Its index.
    pub index: u64,
    /// Where it came from.
    pub stream: OutputStream,
    /// What it said.
    pub data: String,
    /// The stream ended with it.
    pub complete: bool,
    /// By the machine's clock, else by ours.
    pub at: Timestamp,
}

impl LogRow {
    pub(super) fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            index: large(row, "event_index")?,
            stream: word(row, "stream")?,
            data: get(row, "data")?,
            complete: get(row, "complete")?,
            at: get(row, "at")?,
        })
    }
}

/// A page by index range, so that its plan reads these rows only, cut where it grows too large.
const PAGE: &str = "
    SELECT q.event_index, q.stream, q.data, q.complete, q.at FROM (
        SELECT e.event_index, e.stream, e.data, e.complete, COALESCE(e.spoken_at, e.created_at) AS at,
               sum(octet_length(e.data)) OVER (ORDER BY e.event_index) - octet_length(e.data) AS before
          FROM (SELECT * FROM remote_events e
                 WHERE e.session_id = $1 AND e.event_index >= $2 AND e.event_index < $3
                 ORDER BY e.event_index LIMIT $4) e) q
     WHERE q.before < $5 ORDER BY q.event_index";

impl Db {
    /// Appends a report in one round trip.
    ///
    /// # Errors
    /// Store trouble: whether it was stored is not known, and repeating it is safe.
    pub async fn append_events(&self, report: RemoteAppend<'_>) -> Result<Appended, StoreError> {
        let indexes: Vec<i64> = report
            .events
            .iter()
            .map(|event| signed(event.event_index))
            .collect();
        let streams: Vec<&str> = report.events.iter().map(|e| e.stream.as_str()).collect();
        let data: Vec<&str> = report.events.iter().map(|e| e.data.as_str()).collect();
        let complete: Vec<bool> = report.events.iter().map(|e| e.is_complete).collect();
        let at: Vec<Option<Timestamp>> = report.events.iter().map(|e| e.at).collect();
        let charge = i32::try_from(limits::REMOTE_EVENT_CHARGE).unwrap_or(i32::MAX);
        let row = self
            .query_one(
                "append_events",
                "SELECT * FROM bex_remote_append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
                &[
                    text(&report.session.as_str()),
                    text(&report.machine.as_str()),
                    int8s(&indexes),
                    texts(&streams),
                    texts(&data),
                    (&complete, tokio_postgres::types::Type::BOOL_ARRAY),
                    times(&at),
                    int8(&signed(limits::REMOTE_WINDOW)),
                    int4(&charge),
                    int8(&signed(limits::REMOTE_BACKLOG_BYTES)),
                ],
            )
            .await?;
        let at = || large(&row, "at_index");
        Ok(match get::<&str>(&row, "status")? {
            "stored" => Appended::Stored {
                stored: large(&row, "stored")?,
                duplicates: large(&row, "duplicates")?,
                next_index: large(&row, "next_index")?,
            },
            "unknown" => Appended::Unknown,
            "revoked" => Appended::Revoked,
            "ended" => Appended::Ended,
            "conflict" => Appended::Conflict(at()?),
            "too_far" => Appended::TooFar {
                index: at()?,
                next_index: large(&row, "next_index")?,
            },
            "full" => Appended::Full,
            "backlog" => Appended::Backlog,
            _ => return Err(StoreError::Corrupt { what: "status" }),
        })
    }

    /// Events with `from <= index < before` in order, at most [`limits::REMOTE_PAGE_EVENTS`] and about [`limits::REMOTE_PAGE_BYTES`], one at
    /// least where there is one.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn remote_events(
        &self,
        session: &RemoteSessionId,
        from: u64,
        before: u64,
    ) -> Result<Vec<LogRow>, StoreError> {
        self.remote_events_page(session, from, before, limits::REMOTE_PAGE_EVENTS)
            .await
    }

    /// The same, at most `limit` of them.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn remote_events_page(
        &self,
        session: &RemoteSessionId,
        from: u64,
        before: u64,
        limit: u32,
    ) -> Result<Vec<LogRow>, StoreError> {
        let bytes = i64::try_from(limits::REMOTE_PAGE_BYTES).unwrap_or(i64::MAX);
        let rows = self
            .query(
                "remote_events",
                PAGE,
                &[
                    text(&session.as_str()),
                    int8(&signed(from)),
                    int8(&signed(before)),
                    int8(&i64::from(limit)),
                    int8(&bytes),
                ],
            )
            .await?;
        rows.iter().map(LogRow::read).collect()
    }
}

/// A number of the wire as a column holds it; what is larger names nothing.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
