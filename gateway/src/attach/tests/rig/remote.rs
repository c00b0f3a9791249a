//! Remote sessions: a machine that reports, and the builder's rows.

use bex_proto::message::{MessageSource, TerminalReason};
use bex_proto::remote::{Activity, OutputEvent, OutputStream, RemoteState};
use bex_proto::session::SessionKind;
use bex_proto::ticket::{ATTACH_HEADER, RemoteClaims};
use bex_proto::{MachineId, RemoteSessionId};
use bex_store::remote::{
    BuiltRow, Ending, EventsAppended, Moved, NewMachine, NewRemoteSession, RemoteAppend,
    RemoteTurnRow, WriteBuilt, Written,
};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use jiff::Timestamp;

use super::{Rig, Stream, keys};

/// A session and who reports it.
pub(in crate::attach::tests) struct Remote {
    pub(in crate::attach::tests) session: RemoteSessionId,
    machine: MachineId,
}

/// A ticket and how it is used.
#[derive(Clone)]
pub(in crate::attach::tests) struct RemoteTicket {
    pub(in crate::attach::tests) claims: RemoteClaims,
    pub(in crate::attach::tests) query: String,
    pub(in crate::attach::tests) method: Method,
}

pub(in crate::attach::tests) fn remote_ticket(session: &RemoteSessionId) -> RemoteTicket {
    let now = Timestamp::now().as_second();
    RemoteTicket {
        claims: RemoteClaims::to_read(session, "acme".parse().expect("an id"), "u", now),
        query: String::new(),
        method: Method::GET,
    }
}

impl RemoteTicket {
    pub(in crate::attach::tests) fn after(mut self, event: u64) -> Self {
        self.query = format!("?after={event}");
        self
    }

    pub(in crate::attach::tests) fn request(&self) -> Request<Full<Bytes>> {
        Request::builder()
            .method(self.method.clone())
            .uri(format!(
                "/v1/agent-sessions/{}/stream{}",
                self.claims.ses, self.query
            ))
            .header(ATTACH_HEADER, self.claims.sign(&keys()))
            .body(Full::default())
            .expect("a request")
    }
}

pub(in crate::attach::tests) fn said(index: u64) -> OutputEvent {
    OutputEvent {
        event_index: index,
        stream: OutputStream::Stdout,
        data: format!("line {index}\n"),
        is_complete: false,
        at: None,
    }
}

/// Event `index` as a viewer gets it, without its time.
pub(in crate::attach::tests) fn shown(index: u64) -> String {
    format!(r#"{index} {{"type":"stdout","data":"line {index}\n"}}"#)
}

/// What a viewer got, without times.
pub(in crate::attach::tests) fn timeless(events: Vec<String>) -> Vec<String> {
    let strip = |event: String| match event.split_once(r#","at":""#) {
        Some((before, rest)) => {
            let (_, after) = rest.split_once('"').expect("a time");
            format!("{before}{after}")
        }
        None => event,
    };
    events.into_iter().map(strip).collect()
}

impl Rig {
    pub(in crate::attach::tests) async fn remote(&self) -> Remote {
        let machine = MachineId::random();
        let workspace = "acme".parse().expect("an id");
        let new = NewMachine {
            id: &machine,
            workspace: &workspace,
            name: "builder",
            created_by: "ada",
            token_sha256: machine.as_str(),
        };
        self.db.create_machine(&new).await.expect("a machine");
        let new = NewRemoteSession {
            id: RemoteSessionId::random(),
            workspace,
            machine: machine.clone(),
            kind: SessionKind::Interactive,
            activity: Activity::Chat,
            workflow_id: None,
            title: None,
            project_path: None,
            cli_tool: None,
            model: None,
            created_by: "ada".into(),
            idempotency: None,
        };
        self.db
            .create_remote_session(&new)
            .await
            .expect("a session");
        Remote {
            session: new.id,
            machine,
        }
    }

    /// Reports, and tells every gateway as an api does.
    pub(in crate::attach::tests) async fn report(&self, to: &Remote, events: &[OutputEvent]) {
        let report = RemoteAppend {
            session: &to.session,
            machine: &to.machine,
            events,
        };
        let appended = self.db.append_events(report).await.expect("an answer");
        assert!(
            matches!(appended, EventsAppended::Stored { .. }),
            "{appended:?}"
        );
        self.wake(to).await;
    }

    pub(in crate::attach::tests) async fn wake(&self, to: &Remote) {
        let sessions = [to.session.to_string()];
        self.db.notify_remote(&sessions).await.expect("told");
    }

    /// Gives up the first gap.
    pub(in crate::attach::tests) async fn give_up(&self, of: &Remote) {
        self.db.ping().await.expect("there");
        self.sql("UPDATE remote_heads SET gap_since = gap_since - interval '31 seconds'");
        let decided = self.db.decide_gap(&of.session).await.expect("decided");
        assert_ne!(decided, bex_store::remote::Decided::Waiting);
    }

    /// The builder has read everything, and writes these turns: id and last event.
    pub(in crate::attach::tests) async fn build(&self, of: &Remote, turns: &[(&str, u64)]) {
        self.write(of, turns, false).await;
    }

    /// The same, and the session ends.
    pub(in crate::attach::tests) async fn complete(&self, of: &Remote, turns: &[(&str, u64)]) {
        let ending = Ending {
            as_: RemoteState::Completed,
            events: None,
            error: None,
        };
        let moved = self.db.end_remote_session(&of.session, ending).await;
        assert!(matches!(moved.expect("moved"), Moved::Done(_)));
        self.write(of, turns, true).await;
    }

    async fn write(&self, of: &Remote, turns: &[(&str, u64)], finish: bool) {
        let row = self.db.remote_session(&of.session).await.expect("a row");
        let head = row.expect("a session").head;
        let rows: Vec<BuiltRow> = turns
            .iter()
            .map(|(id, last)| turn(&of.session, id, *last))
            .collect();
        let built = head.built + rows.len() as u64;
        let write = WriteBuilt {
            session: &of.session,
            revision: head.revision,
            rows: &rows,
            built,
            cursor: (head.next_index, 0, built),
            seen: (head.next_index, 0),
            cli_session: None,
            import: None,
            finish,
        };
        let written = self.db.write_built(&write).await.expect("written");
        assert_eq!(written, Written::Done);
    }

    pub(in crate::attach::tests) async fn watch(&self, remote: &Remote) -> Stream {
        Stream::of(self.send(remote_ticket(&remote.session).request()).await)
    }
}

fn turn(session: &RemoteSessionId, id: &str, last: u64) -> BuiltRow {
    let at = Timestamp::UNIX_EPOCH;
    BuiltRow::Turn(Box::new(RemoteTurnRow {
        turn_id: id.to_owned(),
        visible_text: String::new(),
        content_blocks: "[]".into(),
        tool_call_ids: "[]".into(),
        evidence_ids: "[]".into(),
        terminal: TerminalReason::Result,
        gaps: "[]".into(),
        overflow: false,
        source: MessageSource::RemoteLive,
        model: None,
        events: Some((0, last)),
        started_at: at,
        completed_at: at,
        text_sha256: None,
        origins: vec![format!("{session}-{id}")],
        message: None,
    }))
}
