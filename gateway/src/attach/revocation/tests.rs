//! A scripted store, notices by hand, and a clock that stands still.

use std::sync::atomic::{AtomicUsize, Ordering};

use bex_proto::SessionId;
use futures::SinkExt;
use futures::channel::mpsc;
use jiff::Timestamp;

use super::*;

/// A store that fails as often as it is told, then answers the same for everybody.
#[derive(Default)]
struct Script {
    answer: Mutex<Option<Standing>>,
    failures: AtomicUsize,
    asked: AtomicUsize,
}

#[async_trait]
impl Standings for Arc<Script> {
    async fn standings(&self, keys: &[StreamKey]) -> Result<Vec<Standing>, StoreError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let failing = |left: usize| left.checked_sub(1);
        if self
            .failures
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, failing)
            .is_ok()
        {
            return Err(StoreError::Missing { what: "standings" });
        }
        let answer = *self.answer.lock().expect("no panic");
        Ok(vec![answer.unwrap_or(Standing::Good); keys.len()])
    }
}

/// A watch over one stream.
struct Rig {
    script: Arc<Script>,
    notices: mpsc::Sender<Event>,
    rooms: Arc<Rooms>,
    session: SessionId,
    stream: Registration,
    begun: Instant,
}

impl Rig {
    fn new() -> Self {
        let script = Arc::new(Script::default());
        let (rooms, streams) = (Arc::new(Rooms::default()), Arc::new(Streams::default()));
        let (sender, notices) = mpsc::channel(1024);
        let session = SessionId::random();
        let stream = streams.register(StreamKey {
            workspace: "acme".parse().expect("an id"),
            subject: "u".into(),
            session: session.to_string(),
            issued_at: Timestamp::UNIX_EPOCH,
        });
        let stop = CancellationToken::new();
        tokio::spawn(watch(
            Arc::clone(&script),
            notices,
            Arc::clone(&rooms),
            streams,
            stop,
        ));
        Self {
            script,
            notices: sender,
            rooms,
            session,
            stream,
            begun: Instant::now(),
        }
    }

    fn answer(&self, standing: Standing) {
        *self.script.answer.lock().expect("no panic") = Some(standing);
    }

    async fn notify(&mut self, channel: Channel) {
        let payload = self.session.to_string();
        let event = Event::Notified { channel, payload };
        self.notices.send(event).await.expect("it is heard");
    }

    /// After how long the stream was ended.
    async fn ended(&self) -> Duration {
        self.stream.revoked.cancelled().await;
        self.begun.elapsed()
    }

    fn asked(&self) -> usize {
        self.script.asked.load(Ordering::Relaxed)
    }
}

#[tokio::test(start_paused = true)]
async fn every_stream_is_asked_about_every_minute_without_any_notice() {
    for standing in [Standing::Revoked, Standing::SessionGone] {
        let rig = Rig::new();
        rig.answer(standing);
        assert_eq!(rig.ended().await, limits::REAUTHORIZE, "{standing:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_notice_and_a_gap_in_the_notices_are_followed_at_once() {
    let mut rig = Rig::new();
    rig.answer(Standing::Revoked);
    rig.notify(Channel::Revoked).await;
    assert_eq!(rig.ended().await, Duration::ZERO);

    let mut rig = Rig::new();
    let mut seat = rig.rooms.enter(rig.session.as_str());
    rig.answer(Standing::Revoked);
    rig.notices.send(Event::Resumed).await.expect("it is heard");
    assert_eq!(rig.ended().await, Duration::ZERO);
    assert!(seat.take_change(), "viewers look again too");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_ends_nobody_and_is_asked_again_each_second() {
    let mut rig = Rig::new();
    rig.script.failures.store(3, Ordering::Relaxed);
    rig.answer(Standing::Revoked);
    rig.notify(Channel::Revoked).await;
    assert_eq!(rig.ended().await, CHECK_AGAIN * 3);
    assert_eq!(rig.asked(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_revocations_is_one_question_and_other_notices_are_none() {
    let mut rig = Rig::new();
    let mut seat = rig.rooms.enter(rig.session.as_str());
    for channel in [Channel::Wake, Channel::Dispatch, Channel::Machine] {
        rig.notify(channel).await;
    }
    rig.notify(Channel::Settled).await;
    seat.changed().await;
    for channel in [Channel::Ready, Channel::Remote] {
        rig.notify(channel).await;
        seat.changed().await;
    }
    assert_eq!(rig.asked(), 0);
    for _ in 0..500 {
        rig.notify(Channel::Revoked).await;
    }
    rig.notify(Channel::Settled).await;
    seat.changed().await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!((1..=2).contains(&rig.asked()), "{} questions", rig.asked());
    assert!(!rig.stream.revoked.is_cancelled(), "good streams go on");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_unasked_ends_the_process() {
    for how in ["notices end", "panic"] {
        let (drain, lost) = (CancellationToken::new(), CancellationToken::new());
        let (rooms, streams) = (Arc::new(Rooms::default()), Arc::new(Streams::default()));
        let (sender, notices) = mpsc::channel::<Event>(1);
        let watching = watch(
            Arc::new(Script::default()),
            notices,
            rooms,
            streams,
            drain.clone(),
        );
        spawn(
            async move {
                watching.await;
                assert_ne!(how, "panic", "as the test wants it");
            },
            drain.clone(),
            lost.clone(),
        );
        drop(sender);
        timeout(Duration::from_secs(1), lost.cancelled())
            .await
            .expect("it is told");
        assert!(drain.is_cancelled(), "viewers are sent elsewhere: {how}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_was_asked_to_end_is_not_missed() {
    let (drain, lost) = (CancellationToken::new(), CancellationToken::new());
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    let told = drain.clone();
    let watching = async move {
        told.cancelled().await;
        drop(ended);
    };
    spawn(watching, drain.clone(), lost.clone());
    drain.cancel();
    assert!(end.await.is_err(), "it ended");
    tokio::task::yield_now().await;
    assert!(!lost.is_cancelled());
}
