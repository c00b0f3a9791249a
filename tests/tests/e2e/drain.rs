//! A gateway that is asked to end: its viewers go on at another one, with nothing lost and nothing twice.

use std::time::Duration;

use bex_proto::{PartId, SessionId};
use bex_tests::client::{ApiClient, Ending, NewSession, Viewer};
use bex_tests::scenario::{saw_everything, settled, stored};
use bex_tests::stack::WORKSPACE;
use bex_tests::tally::Parts;
use bex_tests::{Stack, StackOptions};
use futures::future::{join_all, try_join_all};

/// Streams that read, half of them from the start and half behind a cursor.
const READING: usize = 40;
/// Streams that take nothing until the gateway is gone.
const IDLE: usize = 10;
/// What the contract gives a process to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(25);
/// More than the kernel takes for a reader that does not read.
const HISTORY: &str = "long history parts=1600 size=4000";
/// Half of it is spoken before the gate is opened: five seconds long, in which everybody arrives and the gateway goes.
const LIVE: &str = "live parts=1000 pace=100 size=60 gate=go";

/// A stream, and what came before it.
struct Reader {
    api: ApiClient,
    start: Option<PartId>,
    viewer: Viewer,
    before: Parts,
}

impl Reader {
    /// At most 50 streams of one subject: operator and viewer take turns.
    async fn begin(stack: &Stack, n: usize, session: &SessionId, start: Option<PartId>) -> Self {
        let api = if n.is_multiple_of(2) {
            stack.operator()
        } else {
            stack.viewer()
        };
        let viewer = open(&api, stack.addresses.attach, session, start).await;
        Self {
            api,
            start,
            viewer,
            before: Parts::new(),
        }
    }

    fn cursor(&self) -> Option<PartId> {
        self.viewer.cursor().or(self.start)
    }

    /// Continues behind the last part it was given.
    async fn go_on(&mut self, at: std::net::SocketAddr, session: &SessionId) {
        let cursor = self.cursor();
        self.before = self.viewer.parts();
        self.viewer = open(&self.api, at, session, cursor).await;
    }

    /// The last event says where to resume, and that is what the viewer has.
    fn was_told(&self) {
        assert_eq!(self.viewer.ending, Some(Ending::Cut));
        let last = self.viewer.events.last().unwrap().json();
        let cursor = self.cursor().unwrap();
        let text = last["errorText"].as_str().unwrap_or_default();
        assert_eq!(last["type"], "error", "{last}");
        assert!(
            text.ends_with(&format!("resume after {cursor}")),
            "{text} at {cursor}"
        );
    }

    fn has_everything(&self, stored: &Parts) {
        let mut seen = self.before.clone();
        seen.extend(self.viewer.parts());
        let due = stored.iter().filter(|(id, _)| Some(*id) > self.start);
        let due: Parts = due.cloned().collect();
        saw_everything(&due, &seen).unwrap();
    }
}

async fn open(
    api: &ApiClient,
    at: std::net::SocketAddr,
    session: &SessionId,
    cursor: Option<PartId>,
) -> Viewer {
    let ticket = api.read_ticket(session).await.unwrap();
    let opened = Viewer::open_at(at, session, &ticket.ticket, cursor).await;
    opened.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_streams_go_on_at_another_gateway() {
    let mut stack = Stack::start(StackOptions::default()).await.unwrap();
    let second = stack.add_gateway().await.unwrap();
    let api = stack.operator();
    let new = NewSession::new(WORKSPACE, "demo", HISTORY);
    let session = api.create(&new).await.unwrap();
    settled(&api, &session, 1).await.unwrap();
    let history = stored(&api, &session).await.unwrap();
    let middle = history.last().unwrap().0;

    let mut idle = Vec::new();
    for n in 0..IDLE {
        idle.push(Reader::begin(&stack, n, &session, None).await);
    }
    let begun = api.begin_turn(&session, LIVE).await.unwrap();
    assert_eq!(begun.status, 201, "{}", begun.json());
    let mut readers = Vec::new();
    for n in 0..READING {
        let start = if n % 4 < 2 { None } else { Some(middle) };
        readers.push(Reader::begin(&stack, n, &session, start).await);
    }
    let live = readers.iter_mut().map(|reader| {
        let speaks = |id: PartId| id.turn.0 == 2 && id.index.0 > 30;
        reader.viewer.until(move |e| e.id.is_some_and(speaks))
    });
    try_join_all(live).await.unwrap();

    let ends = readers.iter_mut().map(|reader| reader.viewer.to_end());
    let (took, ends) = tokio::join!(stack.terminate_gateway(), try_join_all(ends));
    assert!(took.unwrap() < GRACE);
    ends.unwrap();
    readers.iter().for_each(Reader::was_told);
    let ahead = readers.iter().filter_map(Reader::cursor).max().unwrap();
    let flushed = stored(&api, &session).await.unwrap();
    assert!(
        flushed.iter().any(|(id, _)| *id == ahead),
        "{ahead} was shown and is not stored"
    );
    for reader in &mut idle {
        assert_eq!(reader.viewer.to_end().await.unwrap(), Ending::Cut);
        assert!(
            reader.cursor().unwrap() < middle,
            "it read on while the gateway lived"
        );
    }

    readers.append(&mut idle);
    join_all(readers.iter_mut().map(|r| r.go_on(second.attach, &session))).await;
    // the api's own questions go to the first gateway
    stack.restart_gateway().await.unwrap();
    stack.open_gate(&session, "go").unwrap();
    let ends = readers.iter_mut().map(|reader| reader.viewer.to_end());
    let ends = try_join_all(ends).await.unwrap();
    assert!(ends.iter().all(|end| *end == Ending::Done), "{ends:?}");
    let turn = settled(&api, &session, 2).await.unwrap();
    assert_eq!(turn.verdict, "complete", "{turn:?}");
    let stored = stored(&api, &session).await.unwrap();
    readers.iter().for_each(|r| r.has_everything(&stored));
    stack.stop().await.unwrap();
}
