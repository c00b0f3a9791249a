//! A source and a driver that does everything wrong that a driver can do.

mod driver;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bex_proto::exec::SandboxRequest;
use bex_proto::ids::PartId;
use bex_proto::limits::SOURCE_RETRY;
use bex_proto::ticket::KeyRing;
use bex_proto::transcript::Part;
use bex_proto::{Generation, SessionId, TurnNo};
use bex_store::transcript::AppendError;
use proptest::prelude::*;
use tokio::net::TcpListener;

use super::super::store::{SpeechStore, Stored};
use super::super::tail::TailRead;
use super::super::{HubDeps, TeeMode};
use super::*;
use crate::sandbox::{ExecPipe, ExecStartError, Targets};
pub(crate) use driver::{Answer, Driver, KEYS};

/// A target that is seen as the script says.
pub(crate) struct Seen(pub(crate) Mutex<Look>);

#[async_trait]
impl Targets for Seen {
    async fn look(&self, _: &TargetRef) -> Look {
        *self.0.lock().expect("no panic")
    }

    async fn exec(&self, _: &TargetRef, _: SandboxRequest) -> Result<ExecPipe, ExecStartError> {
        Err(ExecStartError::Gone)
    }
}

/// A store that knows where the turn's prefix ends, and whether it is settled.
struct Prefix(u32, bool);

#[async_trait]
impl SpeechStore for Prefix {
    async fn contiguous_end(&self, _: &Speech) -> Result<PartIndex, StoreError> {
        Ok(PartIndex(self.0))
    }

    async fn is_settled(&self, _: &Speech) -> Result<bool, StoreError> {
        Ok(self.1)
    }

    async fn append(&self, _: &Speech, _: &[Part]) -> Result<Stored, AppendError> {
        Ok(Stored::All)
    }
}

fn target() -> TargetRef {
    TargetRef {
        session: SessionId::random(),
        generation: Generation(1),
        namespace: "n".into(),
        pod: "p".into(),
        pod_uid: "u".into(),
        container: "c".into(),
        legacy: false,
        driver_kid: "a".into(),
    }
}

struct Heard {
    indexes: Vec<u32>,
    end: Option<SourceEnd>,
    asked: Vec<String>,
}

/// Reads turn 1 from the scripted driver until the source ends, or until `enough` parts are there.
async fn hear(prefix: u32, script: Vec<Answer>, enough: usize) -> Heard {
    let target = target();
    let driver = Driver::start(&target, script).await;
    let look = Look::Running {
        address: driver.address,
        terminating: false,
    };
    let (tail, end) = read_from(
        &target,
        Arc::new(Seen(Mutex::new(look))),
        Prefix(prefix, false),
        enough,
    )
    .await;
    Heard {
        indexes: indexes(&tail),
        end,
        asked: driver.asked(),
    }
}

async fn read_from(
    target: &TargetRef,
    seen: Arc<Seen>,
    store: Prefix,
    enough: usize,
) -> (Tail, Option<SourceEnd>) {
    let deps = HubDeps {
        store: Arc::new(store),
        targets: seen,
        driver_keys: Arc::new(KeyRing::parse(KEYS).expect("a ring")),
        tee: TeeMode::Off,
        retry: SOURCE_RETRY,
        metrics: Default::default(),
    };
    let speech = Speech {
        session: target.session.clone(),
        turn: TurnNo(1),
        generation: Generation(1),
    };
    let (tail, stop) = (Tail::default(), CancellationToken::new());
    let mut changed = tail.watch();
    tokio::select! {
        () = read(&deps, target, &speech, &tail, &stop) => {}
        () = async { while indexes(&tail).len() < enough { changed.changed().await.expect("the tail lives"); } } => {}
    }
    let end = tail.end();
    (tail, end)
}

fn indexes(tail: &Tail) -> Vec<u32> {
    let mut at = tail.base().unwrap_or(PartIndex(0));
    let mut all = Vec::new();
    loop {
        match tail.read(at, 4096) {
            TailRead::Parts(parts) => {
                all.extend(parts.iter().map(|p| p.id.index.0));
                at = parts.last().map_or(at, |p| p.id.index.next());
            }
            TailRead::Jump { to } => at = to,
            TailRead::Behind { floor } => at = floor,
            TailRead::Wait | TailRead::Ended(_) => return all,
        }
    }
}

const TEXT: &str = r#"{"type":"text-delta","id":"t","delta":"x"}"#;

fn events(ids: impl IntoIterator<Item = u32>) -> String {
    ids.into_iter()
        .map(|i| format!("id: {}\ndata: {TEXT}\n\n", PartId::new(1, i)))
        .collect()
}

fn done(ids: impl IntoIterator<Item = u32>) -> Answer {
    Answer::Events(events(ids) + "data: [DONE]\n\n")
}

const ALL: usize = usize::MAX;

#[tokio::test]
async fn a_turn_is_read_from_its_stored_prefix_to_its_end() {
    let heard = hear(2, vec![done(0..5)], ALL).await;
    assert_eq!(
        (heard.indexes, heard.end),
        (vec![2, 3, 4], Some(SourceEnd::Done))
    );
    assert_eq!(heard.asked, ["/stream?turn=1&from=2"]);
}

#[tokio::test]
async fn a_stream_without_its_end_mark_is_dialled_again_where_it_broke() {
    let script = vec![
        Answer::Events(events(0..3) + "id: 1.3\ndata: {\"type\":\"text-de"),
        Answer::Events(events(1..5)),
        done(5..6),
    ];
    let heard = hear(0, script, ALL).await;
    assert_eq!(
        (heard.indexes, heard.end),
        (vec![0, 1, 2, 3, 4, 5], Some(SourceEnd::Done))
    );
    assert_eq!(
        heard.asked,
        [
            "/stream?turn=1&from=0",
            "/stream?turn=1&from=3",
            "/stream?turn=1&from=5"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_long_thought_between_two_losses_is_no_loss() {
    let minute = Duration::from_secs(60);
    let script = vec![
        Answer::Silent(events(0..2), minute),
        Answer::Silent(String::new(), minute),
        Answer::Silent(String::new(), minute),
        done(2..3),
    ];
    let heard = hear(0, script, ALL).await;
    assert_eq!(
        (heard.indexes, heard.end),
        (vec![0, 1, 2], Some(SourceEnd::Done))
    );
    assert_eq!(heard.asked.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_only_ever_hangs_up_is_lost() {
    let heard = hear(
        0,
        vec![Answer::Events(events(0..2)), Answer::Events(String::new())],
        ALL,
    )
    .await;
    assert_eq!(
        (heard.indexes, heard.end),
        (vec![0, 1], Some(SourceEnd::Lost))
    );
}

#[tokio::test]
async fn a_redirect_is_never_followed_and_other_refusals_are_asked_again() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let to = elsewhere.local_addr().expect("an address");
    let script = vec![
        Answer::Redirect(to),
        Answer::Status(404),
        Answer::Status(500),
        done(0..1),
    ];
    let heard = hear(0, script, ALL).await;
    assert_eq!(
        (heard.indexes, heard.end, heard.asked.len()),
        (vec![0], Some(SourceEnd::Done), 4)
    );
    let visited = futures::poll!(std::pin::pin!(elsewhere.accept()));
    assert!(visited.is_pending(), "nobody went there");
}

#[tokio::test]
async fn a_two_mebibyte_event_is_a_named_stand_in_and_its_neighbours_are_whole() {
    let big = "x".repeat(2 << 20);
    let script = vec![Answer::Events(format!(
        "{}id: 1.1\ndata: {big}\n\n{}data: [DONE]\n\n",
        events(0..1),
        events(2..3)
    ))];
    let target = target();
    let driver = Driver::start(&target, script).await;
    let look = Look::Running {
        address: driver.address,
        terminating: false,
    };
    let (tail, end) = read_from(
        &target,
        Arc::new(Seen(Mutex::new(look))),
        Prefix(0, false),
        ALL,
    )
    .await;
    assert_eq!(
        (indexes(&tail), end),
        (vec![0, 1, 2], Some(SourceEnd::Done))
    );
    match tail.read(PartIndex(1), 1) {
        TailRead::Parts(parts) => {
            let text = std::str::from_utf8(&parts[0].bytes).expect("text");
            assert!(
                text.contains(r#""reason":"too_large","bytes":2097152"#),
                "{text}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_stream_that_never_ends_is_read_as_it_comes() {
    let heard = hear(0, vec![Answer::Open(events(0..7))], 7).await;
    assert_eq!((heard.indexes, heard.end), ((0..7).collect(), None));
}

#[tokio::test]
async fn a_target_that_is_gone_is_never_dialled() {
    let target = target();
    let driver = Driver::start(&target, vec![done(0..1)]).await;
    let (_, end) = read_from(
        &target,
        Arc::new(Seen(Mutex::new(Look::Gone))),
        Prefix(0, false),
        ALL,
    )
    .await;
    assert_eq!((end, driver.asked().len()), (Some(SourceEnd::Gone), 0));
}

#[tokio::test]
async fn a_settled_turn_is_not_dialled_again() {
    let target = target();
    let driver = Driver::start(&target, vec![Answer::Events(events(0..2))]).await;
    let look = Look::Running {
        address: driver.address,
        terminating: false,
    };
    let seen = Arc::new(Seen(Mutex::new(look)));
    let (tail, end) = read_from(&target, seen, Prefix(0, true), ALL).await;
    assert_eq!((indexes(&tail), end), (vec![0, 1], Some(SourceEnd::Gone)));
    assert_eq!(driver.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_cannot_be_seen_is_lost_after_thirty_seconds_and_not_before() {
    let start = Instant::now();
    let (_, end) = read_from(
        &target(),
        Arc::new(Seen(Mutex::new(Look::Unknown))),
        Prefix(0, false),
        ALL,
    )
    .await;
    assert_eq!(end, Some(SourceEnd::Lost));
    let waited = start.elapsed();
    assert!(
        waited >= SOURCE_RETRY && waited <= SOURCE_RETRY + REDIAL.1,
        "{waited:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(15))]

    /// A live stream that begins anywhere, repeats, reorders, leaves out and breaks off.
    #[test]
    fn whatever_a_driver_streams_ids_come_once_and_in_order(
        prefix in 0u32..4,
        streams in proptest::collection::vec(proptest::collection::vec(0u32..20, 0..30), 1..4),
    ) {
        let mut script: Vec<Answer> = streams.iter().map(|ids| Answer::Events(events(ids.iter().copied()))).collect();
        script.push(done([]));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let heard = runtime.block_on(hear(prefix, script, ALL));
        let mut next = prefix;
        let mut expected = Vec::new();
        for id in streams.concat() {
            if id >= next {
                expected.push(id);
                next = id + 1;
            }
        }
        prop_assert_eq!(heard.indexes, expected);
        prop_assert_eq!(heard.end, Some(SourceEnd::Done));
    }
}
