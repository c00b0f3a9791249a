//! What a machine reports: NDJSON in, an answer that says where to go on; and the same events out again for those who may read.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use bex_proto::problem::Code;
use bex_proto::remote::{OutputEvent, OutputStream};
use bex_proto::transcript::sha256_hex;
use bex_proto::{RemoteSessionId, limits, time};
use bex_store::remote::{EventsAppended, Import, Imported, LogRow, RemoteAppend};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::machine::Machine;
use crate::auth::Caller;
use crate::http::extract::{Params, Payload, Segments};
use crate::http::{Api, ApiError};
use crate::metrics::ReportResult;

/// The answer to a report.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = OutputAccepted)]
pub struct OutputAnswer {
    /// Events stored now.
    accepted: u64,
    /// Events that were there before.
    duplicates: u64,
    /// The first event that is missing.
    next_event_index: u64,
}

/// `POST /v1/remote-sessions/{id}/output`
pub async fn report(
    State(api): State<Arc<Api>>,
    machine: Machine,
    Segments(id): Segments<String>,
    payload: Payload,
) -> Result<Json<OutputAnswer>, ApiError> {
    let session = id.parse().map_err(|_| Code::NotFound)?;
    let answer = take(&api, &machine, &session, payload).await;
    api.remote_metrics.reported(match &answer {
        Ok(_) => ReportResult::Stored,
        Err(fault) if fault.code() == Code::Backlog => ReportResult::Backlog,
        Err(fault) if fault.code() == Code::LogFull => ReportResult::Full,
        Err(_) => ReportResult::Refused,
    });
    answer.map(Json)
}

async fn take(
    api: &Api,
    machine: &Machine,
    session: &RemoteSessionId,
    payload: Payload,
) -> Result<OutputAnswer, ApiError> {
    let _place = api
        .reports
        .begin(&machine.row.workspace)
        .ok_or_else(backlog)?;
    let body = payload.bytes(limits::REMOTE_BODY).await?;
    let events = events(&body)?;
    let report = RemoteAppend {
        session,
        machine: &machine.row.id,
        events: &events,
    };
    match api.db.append_events(report).await? {
        EventsAppended::Stored {
            stored,
            duplicates,
            next_index,
        } => {
            api.remote_metrics.stored(stored, duplicates);
            if stored > 0 {
                api.announcer.announce(session);
                api.builders.wake(session);
            }
            Ok(OutputAnswer {
                accepted: stored,
                duplicates,
                next_event_index: next_index,
            })
        }
        EventsAppended::Unknown => Err(Code::NotFound.into()),
        EventsAppended::Revoked => Err(Code::Unauthenticated.into()),
        EventsAppended::Ended => Err(Code::SessionEnded.into()),
        EventsAppended::Conflict(index) => {
            Err(ApiError::from(Code::EventConflict).with("eventIndex", index))
        }
        EventsAppended::TooFar { index, next_index } => Err(ApiError::from(Code::EventTooFar)
            .with("eventIndex", index)
            .with("nextEventIndex", next_index)),
        EventsAppended::Full => {
            Err(ApiError::from(Code::LogFull).with("limit", limits::REMOTE_LOG_BYTES))
        }
        EventsAppended::Backlog => {
            // whoever reads may have been killed
            api.builders.wake(session);
            Err(backlog())
        }
    }
}

fn backlog() -> ApiError {
    ApiError::from(Code::Backlog).retry_after(limits::REMOTE_RETRY_SECONDS)
}

/// The events of a body. One that is wrong refuses all of it, by its line.
fn events(body: &[u8]) -> Result<Vec<OutputEvent>, ApiError> {
    let mut events = Vec::new();
    for (number, line) in body.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let at = |fault: ApiError| fault.with("line", number + 1);
        if events.len() == limits::REMOTE_BATCH_EVENTS {
            let most = limits::REMOTE_BATCH_EVENTS;
            return Err(ApiError::from(Code::BodyTooLarge)
                .detail(format!("at most {most} events at once"))
                .with("limit", most));
        }
        let mut event: OutputEvent = serde_json::from_slice(line)
            .map_err(|error| at(crate::http::extract::json_fault(&error)))?;
        if event.data.len() > limits::REMOTE_LINE_BYTES {
            let most = limits::REMOTE_LINE_BYTES;
            return Err(at(ApiError::from(Code::BodyTooLarge).with("limit", most)));
        }
        if event.event_index >= 1 << 53 {
            return Err(at(ApiError::invalid("eventIndex is too large")));
        }
        if event.at.is_some_and(|at| at < Timestamp::UNIX_EPOCH) {
            return Err(at(ApiError::invalid("at is before 1970")));
        }
        // the store's text cannot hold it, and programs do print it
        if event.data.contains('\0') {
            event.data = event.data.replace('\0', "\u{fffd}");
        }
        events.push(event);
    }
    Ok(events)
}

/// One page of the log.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputPage {
    events: Vec<EventView>,
    /// The `from` of the next page.
    next_from: u64,
    /// Nothing stood behind this page when it was read.
    caught_up: bool,
    /// Events below were removed by the retention.
    first_event_index: u64,
}

/// One event as it was reported.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = OutputEvent)]
pub struct EventView {
    event_index: u64,
    #[schema(value_type = String)]
    stream: OutputStream,
    data: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_complete: bool,
    #[serde(with = "time")]
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

impl From<LogRow> for EventView {
    fn from(row: LogRow) -> Self {
        Self {
            event_index: row.index,
            stream: row.stream,
            data: row.data,
            is_complete: row.complete,
            at: row.at,
        }
    }
}

/// `GET /v1/remote-sessions/{id}/output`
pub async fn read(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Segments(id): Segments<String>,
    mut params: Params,
) -> Result<Json<OutputPage>, ApiError> {
    let session = api.remote_of(&caller, &id).await?;
    let from = params.read::<u64>("from", "an event index")?.unwrap_or(0);
    let limit = params.limit(limits::FEED_DEFAULT, limits::FEED_LIMIT)?;
    params.done()?;
    let until = session.head.next_index;
    let rows = api
        .db
        .remote_events_page(&session.id, from, until, limit)
        .await?;
    let next_from = rows.last().map_or(from.max(until), |row| row.index + 1);
    Ok(Json(OutputPage {
        caught_up: next_from >= until,
        events: rows.into_iter().map(EventView::from).collect(),
        next_from,
        first_event_index: session.head.first_index,
    }))
}

/// What became of an import.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportAnswer {
    /// The same record was handed in before.
    duplicate: bool,
}

/// `POST /v1/remote-sessions/{id}/import`: a program's own record of the conversation. What was seen live adds nothing.
pub async fn import(
    State(api): State<Arc<Api>>,
    machine: Machine,
    Segments(id): Segments<String>,
    payload: Payload,
) -> Result<Json<ImportAnswer>, ApiError> {
    let session = api.session_of_machine(&machine, &id).await?;
    let _place = api
        .reports
        .begin(&machine.row.workspace)
        .ok_or_else(backlog)?;
    let body = payload.bytes(limits::REMOTE_BODY).await?;
    api.is_still(&machine).await?;
    let lines =
        std::str::from_utf8(&body).map_err(|_| ApiError::invalid("the body is not UTF-8"))?;
    let lines = lines.replace('\0', "\u{fffd}");
    let import = Import {
        session: &session.id,
        sha256: &sha256_hex(lines.as_bytes()),
        lines: &lines,
        subject: &machine.subject(),
    };
    let duplicate = match api.db.keep_import(&import).await? {
        Imported::Kept => false,
        Imported::Known => true,
        Imported::Full => {
            return Err(ApiError::from(Code::LogFull).with("limit", limits::REMOTE_LOG_BYTES));
        }
        Imported::NotFound => return Err(Code::NotFound.into()),
    };
    api.builders.wake(&session.id);
    api.audit_remote(&machine.subject(), &session, "remote.import")
        .await;
    Ok(Json(ImportAnswer { duplicate }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_line_is_named_and_refuses_all_of_the_body() {
        let good = r#"{"eventIndex":0,"stream":"stdout","data":"a\u0000b"}"#;
        let read = events(format!("{good}\n\n{good}\r\n").as_bytes()).expect("two events");
        assert_eq!(read.len(), 2);
        assert_eq!(read[0].data, "a\u{fffd}b");
        for (bad, code) in [
            ("{", Code::InvalidJson),
            (
                r#"{"eventIndex":-1,"stream":"stdout","data":""}"#,
                Code::InvalidRequest,
            ),
            (
                r#"{"eventIndex":1,"stream":"other","data":""}"#,
                Code::InvalidRequest,
            ),
            (
                r#"{"eventIndex":1,"stream":"stdout","data":"","x":1}"#,
                Code::UnknownField,
            ),
            (
                r#"{"eventIndex":1,"stream":"stdout","data":"","at":"-009999-01-02T01:59:59Z"}"#,
                Code::InvalidRequest,
            ),
            (
                r#"{"eventIndex":9007199254740992,"stream":"stdout","data":""}"#,
                Code::InvalidRequest,
            ),
        ] {
            let fault = events(format!("{good}\n{bad}").as_bytes()).expect_err(bad);
            assert_eq!(fault.code(), code, "{bad}");
        }
        let long = "x".repeat(limits::REMOTE_LINE_BYTES + 1);
        let long = format!(r#"{{"eventIndex":1,"stream":"stdout","data":"{long}"}}"#);
        assert_eq!(
            events(long.as_bytes()).expect_err("too long").code(),
            Code::BodyTooLarge
        );
    }
}
