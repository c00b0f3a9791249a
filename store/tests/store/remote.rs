//! Remote sessions: events once each, rows once each, whatever is repeated, reordered or raced.

mod hostile;
mod machines;

use bex_proto::message::{MessageRole, MessageSource, TerminalReason};
use bex_proto::problem::Code;
use bex_proto::remote::{Activity, Answer, CommandKind, OutputEvent, OutputStream, RemoteState};
use bex_proto::session::SessionKind;
use bex_proto::{CommandId, MachineId, RemoteSessionId, WorkspaceId};
use bex_store::Db;
use bex_store::remote::{
    BuiltRow, CommandState, Decided, Ending, EventsAppended, Import, Imported, MessageText, Moved,
    NewCommand, NewMachine, NewRemoteSession, RemoteAppend, RemoteCreated, RemoteTurnRow, Reported,
    Told, UsageReport, WriteBuilt, Written,
};
use jiff::Timestamp;
use proptest::prelude::*;

use crate::support::Store;

pub struct Remote {
    pub store: Store,
    pub machine: MachineId,
    pub session: RemoteSessionId,
    workspace: WorkspaceId,
}

impl Remote {
    pub async fn new() -> Self {
        let store = Store::new().await;
        let workspace: WorkspaceId = "acme".parse().unwrap();
        let machine = MachineId::random();
        store
            .db
            .create_machine(&NewMachine {
                id: &machine,
                workspace: &workspace,
                name: "builder",
                created_by: "ada",
                token_sha256: "first",
            })
            .await
            .unwrap();
        let mut remote = Self {
            store,
            machine,
            session: RemoteSessionId::random(),
            workspace,
        };
        remote.session = remote.another().await;
        remote
    }

    async fn another(&self) -> RemoteSessionId {
        let new = NewRemoteSession {
            id: RemoteSessionId::random(),
            workspace: self.workspace.clone(),
            machine: self.machine.clone(),
            kind: SessionKind::Interactive,
            activity: Activity::Chat,
            workflow_id: None,
            title: None,
            project_path: None,
            cli_tool: None,
            model: None,
            created_by: "ada".to_owned(),
            idempotency: None,
        };
        let made = self.db().create_remote_session(&new).await.unwrap();
        assert_eq!(made, RemoteCreated::New);
        new.id
    }

    fn db(&self) -> &Db {
        &self.store.db
    }

    async fn append(&self, events: &[OutputEvent]) -> EventsAppended {
        let report = RemoteAppend {
            session: &self.session,
            machine: &self.machine,
            events,
        };
        self.db().append_events(report).await.unwrap()
    }

    async fn head(&self) -> bex_store::remote::RemoteHead {
        let row = self.db().remote_session(&self.session).await.unwrap();
        row.unwrap().head
    }

    async fn state(&self) -> RemoteState {
        let row = self.db().remote_session(&self.session).await.unwrap();
        row.unwrap().state
    }

    async fn tell(&self, kind: CommandKind, says: Option<&str>) -> Told {
        let payload = serde_json::json!({ "content": says }).to_string();
        let command = NewCommand {
            id: CommandId::random(),
            workspace: &self.workspace,
            session: &self.session,
            kind,
            payload: &payload,
            says,
            subject: "ada",
            idempotency: None,
        };
        self.db().tell_machine(&command).await.unwrap()
    }

    /// Makes the gap's time pass.
    async fn age_gap(&self) {
        self.change("UPDATE remote_heads SET gap_since = gap_since - interval '31 seconds'")
            .await;
    }

    /// A change as the superuser, once what the pool gave up is rolled back: the statement blocks this thread.
    async fn change(&self, sql: &str) {
        self.db().ping().await.unwrap();
        self.store.sql(sql);
    }
}

fn event(index: u64) -> OutputEvent {
    OutputEvent {
        event_index: index,
        stream: OutputStream::Stdout,
        data: format!("line {index}\n"),
        is_complete: false,
        at: None,
    }
}

fn events(indexes: impl IntoIterator<Item = u64>) -> Vec<OutputEvent> {
    indexes.into_iter().map(event).collect()
}

fn stored(stored: u64, duplicates: u64, next_index: u64) -> EventsAppended {
    EventsAppended::Stored {
        stored,
        duplicates,
        next_index,
    }
}

#[tokio::test]
async fn events_are_stored_once_under_their_index() {
    let remote = Remote::new().await;
    assert_eq!(remote.append(&events(0..3)).await, stored(3, 0, 3));
    assert_eq!(remote.append(&events(0..5)).await, stored(2, 3, 5));
    assert_eq!(remote.append(&events([7, 6])).await, stored(2, 0, 5));
    assert_eq!(remote.append(&events([5])).await, stored(1, 0, 8));
    assert_eq!(remote.append(&events([9, 9, 8])).await, stored(2, 1, 10));
    assert_eq!(remote.append(&[]).await, stored(0, 0, 10));
    let rows = remote.db().remote_events(&remote.session, 0, 100).await;
    let rows: Vec<_> = rows
        .unwrap()
        .into_iter()
        .map(|r| (r.index, r.data))
        .collect();
    let wanted: Vec<_> = (0..10).map(|n| (n, format!("line {n}\n"))).collect();
    assert_eq!(rows, wanted);
}

#[tokio::test]
async fn another_event_under_a_used_index_changes_nothing() {
    let remote = Remote::new().await;
    remote.append(&events(0..3)).await;
    let mut other = events(2..5);
    other[0].data = "other".to_owned();
    assert_eq!(remote.append(&other).await, EventsAppended::Conflict(2));
    let mut other = events(2..3);
    other[0].stream = OutputStream::Stderr;
    assert_eq!(remote.append(&other).await, EventsAppended::Conflict(2));
    let mut twice = events([3, 3]);
    twice[1].data = "other".to_owned();
    assert_eq!(remote.append(&twice).await, EventsAppended::Conflict(3));
    assert_eq!(remote.head().await.next_index, 3);
}

#[tokio::test]
async fn a_session_does_not_exist_for_another_machine() {
    let remote = Remote::new().await;
    let stranger = MachineId::random();
    let all = events(0..1);
    let report = RemoteAppend {
        session: &remote.session,
        machine: &stranger,
        events: &all,
    };
    let answer = remote.db().append_events(report).await.unwrap();
    assert_eq!(answer, EventsAppended::Unknown);
}

#[tokio::test]
async fn an_event_far_ahead_and_a_full_log_are_refused() {
    let remote = Remote::new().await;
    let far = remote.append(&events([20_000])).await;
    assert_eq!(
        far,
        EventsAppended::TooFar {
            index: 20_000,
            next_index: 0
        }
    );
    remote
        .change("UPDATE remote_heads SET byte_limit = 200")
        .await;
    assert_eq!(remote.append(&events(0..2)).await, stored(2, 0, 2));
    assert_eq!(remote.append(&events(2..4)).await, EventsAppended::Full);
    assert_eq!(remote.append(&events(1..2)).await, stored(0, 1, 2));
    remote
        .change("UPDATE remote_heads SET byte_limit = 1000000000, bytes = 100000000")
        .await;
    assert_eq!(remote.append(&events(2..4)).await, EventsAppended::Backlog);
}

#[tokio::test]
async fn a_gap_is_given_up_when_its_time_is_over_and_late_events_stay_in_the_log() {
    let remote = Remote::new().await;
    remote.append(&events([0, 1, 5, 6, 9])).await;
    let decide = async || remote.db().decide_gap(&remote.session).await.unwrap();
    assert_eq!(decide().await, Decided::Waiting);
    remote.age_gap().await;
    let gap = bex_proto::message::Gap { from: 2, to: 4 };
    assert_eq!(decide().await, Decided::GivenUp(gap));
    assert_eq!(remote.head().await.next_index, 7);
    assert_eq!(
        decide().await,
        Decided::Waiting,
        "the next gap has its own time"
    );
    assert_eq!(remote.append(&events([3])).await, stored(1, 0, 7));
    let gaps = remote.db().remote_gaps(&remote.session, 0).await.unwrap();
    assert_eq!(gaps, [gap]);
    assert_eq!(remote.append(&events([7, 8])).await, stored(2, 0, 10));
    remote.age_gap().await;
    assert_eq!(decide().await, Decided::Waiting, "nothing is missing");
}

#[tokio::test]
async fn what_was_declared_and_never_came_is_a_gap_at_the_end() {
    let remote = Remote::new().await;
    remote.append(&events(0..2)).await;
    let ending = Ending {
        as_: RemoteState::Completed,
        events: Some(5),
        error: None,
    };
    let moved = remote
        .db()
        .end_remote_session(&remote.session, ending)
        .await;
    assert_eq!(moved.unwrap(), Moved::Done(Answer::Does));
    assert_eq!(remote.state().await, RemoteState::Ending);
    assert_eq!(
        remote.db().decide_gap(&remote.session).await.unwrap(),
        Decided::Waiting
    );
    remote
        .change("UPDATE remote_sessions SET ending_since = ending_since - interval '31 seconds'")
        .await;
    let gap = bex_proto::message::Gap { from: 2, to: 4 };
    assert_eq!(
        remote.db().decide_gap(&remote.session).await.unwrap(),
        Decided::GivenUp(gap)
    );
    assert_eq!(remote.head().await.next_index, 5);
}

fn turn(id: &str, origin: &str) -> BuiltRow {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    BuiltRow::Turn(Box::new(RemoteTurnRow {
        turn_id: id.to_owned(),
        visible_text: "hello".to_owned(),
        content_blocks: "[]".to_owned(),
        tool_call_ids: "[]".to_owned(),
        evidence_ids: "[]".to_owned(),
        terminal: TerminalReason::Result,
        gaps: "[]".to_owned(),
        overflow: false,
        source: MessageSource::RemoteLive,
        model: None,
        events: Some((0, 2)),
        started_at: now,
        completed_at: now,
        text_sha256: Some("digest".to_owned()),
        origins: vec![origin.to_owned()],
        message: Some(MessageText {
            id: format!("msg-{id}"),
            content: "hello".to_owned(),
            content_blocks: None,
        }),
    }))
}

fn write<'a>(
    session: &'a RemoteSessionId,
    revision: u64,
    rows: &'a [BuiltRow],
    built: u64,
) -> WriteBuilt<'a> {
    WriteBuilt {
        session,
        revision,
        rows,
        built,
        cursor: (3, 0, built),
        seen: (3, 100),
        cli_session: Some("cli"),
        import: None,
        finish: false,
    }
}

#[tokio::test]
async fn of_two_builders_one_writes() {
    let remote = Remote::new().await;
    remote.append(&events(0..3)).await;
    let rows = [turn("trn-a", "o1")];
    let first = write(&remote.session, 0, &rows, 1);
    let (a, b) = tokio::join!(
        remote.db().write_built(&first),
        remote.db().write_built(&first)
    );
    let mut outcomes = [a.unwrap(), b.unwrap()];
    outcomes.sort_by_key(|outcome| *outcome == Written::Stale);
    assert_eq!(outcomes, [Written::Done, Written::Stale]);
    let messages = remote
        .db()
        .messages(&remote.session, None, 10)
        .await
        .unwrap();
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].turn_id.as_deref(), Some("trn-a"));
    assert_eq!(messages[0].terminal, Some(TerminalReason::Result));
    let head = remote.head().await;
    assert_eq!(
        (head.message_count, head.turn_count, head.next_position),
        (1, 1, 1)
    );
    let known = ["o1".to_owned(), "o2".to_owned()];
    let known = remote.db().known_origins(&remote.session, &known).await;
    assert_eq!(known.unwrap(), ["o1"]);
    let session = remote.db().remote_session(&remote.session).await.unwrap();
    assert_eq!(session.unwrap().cli_session_id.as_deref(), Some("cli"));
    let again = write(&remote.session, 1, &rows, 2);
    assert!(
        remote.db().write_built(&again).await.is_err(),
        "a turn's id is written once"
    );
    assert_eq!(remote.head().await.message_count, 1);
}

#[tokio::test]
async fn a_session_ends_when_everything_was_read() {
    let remote = Remote::new().await;
    remote.append(&events(0..4)).await;
    assert!(matches!(
        remote.tell(CommandKind::Stop, None).await,
        Told::Queued(_)
    ));
    let mut last = write(&remote.session, 0, &[], 0);
    last.finish = true;
    assert_eq!(
        remote.db().write_built(&last).await.unwrap(),
        Written::Stale,
        "event 3 is not read"
    );
    last.seen.0 = 4;
    assert_eq!(remote.db().write_built(&last).await.unwrap(), Written::Done);
    assert_eq!(remote.state().await, RemoteState::Stopped);
    assert_eq!(remote.append(&events(3..5)).await, EventsAppended::Ended);
    assert_eq!(remote.append(&events(3..4)).await, stored(0, 1, 4));
    let mine = remote.db().take_commands(&remote.machine, None, 10).await;
    assert_eq!(
        mine.unwrap().len(),
        0,
        "commands of an ended session are void"
    );
}

#[tokio::test]
async fn a_chat_writes_its_row_with_its_command_and_rows_can_be_made_again() {
    let remote = Remote::new().await;
    remote.append(&events(0..3)).await;
    remote.tell(CommandKind::Chat, Some("one")).await;
    let rows = [turn("trn-a", "o1")];
    let first = write(&remote.session, 0, &rows, 1);
    assert_eq!(
        remote.db().write_built(&first).await.unwrap(),
        Written::Done
    );
    remote.tell(CommandKind::Chat, Some("two")).await;
    let before = remote
        .store
        .sql("SELECT string_agg(m::text, ';' ORDER BY position) FROM messages m");
    let page = remote
        .db()
        .messages(&remote.session, None, 10)
        .await
        .unwrap();
    let roles: Vec<_> = page.iter().map(|m| (m.position, m.role)).collect();
    assert_eq!(
        roles,
        [
            (0, MessageRole::User),
            (1, MessageRole::Assistant),
            (2, MessageRole::User)
        ]
    );
    assert_eq!(remote.head().await.message_count, 3);
    assert!(remote.db().reset_built(&remote.session).await.unwrap());
    assert_eq!(remote.head().await.message_count, 2);
    let revision = remote.head().await.revision;
    // a chat in the middle of it stands behind every row there was
    let again = write(&remote.session, revision, &rows, 1);
    assert_eq!(
        remote.db().write_built(&again).await.unwrap(),
        Written::Done
    );
    let after = remote
        .store
        .sql("SELECT string_agg(m::text, ';' ORDER BY position) FROM messages m");
    assert_eq!(before, after);
    assert_eq!(remote.head().await.message_count, 3);
    remote.tell(CommandKind::Chat, Some("three")).await;
    let last = remote
        .db()
        .messages(&remote.session, Some(2), 10)
        .await
        .unwrap();
    assert_eq!(last.len(), 1);
    assert_eq!(last[0].position, 3);
}

#[tokio::test]
async fn an_import_is_kept_once() {
    let remote = Remote::new().await;
    let import = Import {
        session: &remote.session,
        sha256: "s",
        lines: "{}",
        subject: "ada",
    };
    let db = remote.db();
    assert_eq!(db.keep_import(&import).await.unwrap(), Imported::Kept);
    assert_eq!(db.keep_import(&import).await.unwrap(), Imported::Known);
    assert_eq!(remote.head().await.imports_waiting, 1);
    let waiting = db.waiting_import(&remote.session).await.unwrap().unwrap();
    assert_eq!((waiting.lines.as_str(), waiting.after_built), ("{}", None));
    let revision = remote.head().await.revision;
    let place = async |revision, after| {
        let placed = db.place_import(&remote.session, revision, "s", after);
        placed.await.unwrap()
    };
    assert!(!place(revision + 1, 1).await, "somebody was first");
    assert!(place(revision, 1).await);
    assert!(!place(revision + 1, 2).await, "it has its place");
    let waiting = db.waiting_import(&remote.session).await.unwrap().unwrap();
    assert_eq!(waiting.after_built, Some(1));
    let revision = remote.head().await.revision;
    let rows = [BuiltRow::Message {
        role: MessageRole::User,
        source: MessageSource::RemoteImport,
        message: MessageText {
            id: "msg-u".to_owned(),
            content: "asked".to_owned(),
            content_blocks: None,
        },
        at: Timestamp::UNIX_EPOCH,
        origins: vec!["u1".to_owned()],
    }];
    let mut applied = write(&remote.session, revision, &rows, 0);
    applied.import = Some("s");
    assert_eq!(db.write_built(&applied).await.unwrap(), Written::Done);
    assert_eq!(remote.head().await.imports_waiting, 0);
    assert!(db.waiting_import(&remote.session).await.unwrap().is_none());
    let below = async |n| {
        let said = db.user_rows_saying(&remote.session, &["asked", "other"], n);
        said.await.unwrap().get("asked").copied()
    };
    assert_eq!((below(1).await, below(0).await), (Some(1), None));
}

#[tokio::test]
async fn the_retention_removes_what_rows_were_made_from() {
    let remote = Remote::new().await;
    remote.append(&events(0..6)).await;
    remote
        .change(
            "UPDATE remote_events SET created_at = created_at - interval '40 days';
             UPDATE remote_heads SET first_at = first_at - interval '40 days'",
        )
        .await;
    assert_eq!(remote.db().purge_remote_events(30, 100).await.unwrap(), 0);
    let first = write(&remote.session, 0, &[], 0);
    remote.db().write_built(&first).await.unwrap();
    assert_eq!(remote.db().purge_remote_events(30, 2).await.unwrap(), 2);
    assert_eq!(remote.db().purge_remote_events(30, 100).await.unwrap(), 1);
    let head = remote.head().await;
    assert_eq!((head.first_index, head.next_index), (3, 6));
    assert_eq!(
        remote.append(&events(0..4)).await,
        stored(0, 4, 6),
        "what was removed is not new"
    );
    assert!(!remote.db().reset_built(&remote.session).await.unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Batches in any order, overlapping, repeated, raced by two writers: every event once, and `next_index` is the first that is missing.
    #[test]
    fn any_order_of_batches_stores_each_event_once(
        batches in proptest::collection::vec((0u64..60, 1u64..15, any::<bool>()), 1..25)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let remote = Remote::new().await;
            let mut known = std::collections::BTreeSet::new();
            for (from, count, backwards) in batches {
                let mut batch = events(from..from + count);
                if backwards {
                    batch.reverse();
                }
                let (a, b) = tokio::join!(remote.append(&batch), remote.append(&batch));
                let before = known.len() as u64;
                known.extend(from..from + count);
                let new = known.len() as u64 - before;
                let missing = (0..).find(|n| !known.contains(n)).unwrap();
                let mut answers = [a, b];
                answers.sort_by_key(|a| matches!(a, EventsAppended::Stored { stored: 0, .. }));
                if new > 0 {
                    assert_eq!(answers, [stored(new, count - new, missing), stored(0, count, missing)]);
                }
                let head = remote.head().await;
                assert_eq!(head.next_index, missing);
                assert_eq!(head.high_index, known.last().unwrap() + 1);
            }
            let rows = remote.db().remote_events(&remote.session, 0, 1000).await.unwrap();
            let rows: Vec<_> = rows.into_iter().map(|row| row.index).collect();
            assert_eq!(rows, known.into_iter().collect::<Vec<_>>());
        });
    }
}
