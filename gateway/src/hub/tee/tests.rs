use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use bex_proto::{Generation, PartIndex, SessionId, TurnNo};
use bex_store::StoreError;
use bex_store::transcript::AppendError;
use tokio::sync::Semaphore;

use super::super::tail::tests::{part, sized};
use super::super::tail::{RingLimits, SourceEnd, TailRead};
use super::*;

/// What the scripted store does with an append.
#[derive(Debug, Clone, Copy)]
enum Answer {
    Stored,
    Quota,
    Fails,
    Never,
}

/// A store that answers as it is told and remembers what it was given, and when.
struct Scripted {
    answers: Mutex<VecDeque<Answer>>,
    batches: Mutex<Vec<(Vec<u32>, Instant)>>,
    /// An append takes one.
    tokens: Semaphore,
}

const FREE: usize = 1_000_000;

impl Scripted {
    fn new(tokens: usize, answers: &[Answer]) -> Self {
        Self {
            answers: Mutex::new(answers.iter().copied().collect()),
            batches: Mutex::default(),
            tokens: Semaphore::new(tokens),
        }
    }

    fn batches(&self) -> Vec<Vec<u32>> {
        self.batches
            .lock()
            .expect("no panic")
            .iter()
            .map(|(parts, _)| parts.clone())
            .collect()
    }

    fn sizes(&self) -> Vec<usize> {
        self.batches().iter().map(Vec::len).collect()
    }
}

#[async_trait]
impl SpeechStore for Scripted {
    async fn contiguous_end(&self, _: &Speech) -> Result<PartIndex, StoreError> {
        Ok(PartIndex(0))
    }

    async fn is_settled(&self, _: &Speech) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn append(&self, _: &Speech, batch: &[Part]) -> Result<Stored, AppendError> {
        let parts = batch.iter().map(|part| part.id.index.0).collect();
        self.batches
            .lock()
            .expect("no panic")
            .push((parts, Instant::now()));
        self.tokens.acquire().await.expect("open").forget();
        let answer = self.answers.lock().expect("no panic").pop_front();
        match answer.unwrap_or(Answer::Stored) {
            Answer::Stored => Ok(Stored::All),
            Answer::Quota => Ok(Stored::Quota),
            Answer::Fails => Err(AppendError::Store(StoreError::Missing { what: "script" })),
            Answer::Never => std::future::pending().await,
        }
    }
}

/// A tail with a running tee.
struct Rig {
    tail: Arc<Tail>,
    store: Arc<Scripted>,
    progress: watch::Receiver<TeeProgress>,
    metrics: HubMetrics,
    task: tokio::task::JoinHandle<()>,
}

impl Rig {
    fn new(store: Scripted, limits: RingLimits) -> Self {
        let (tail, store) = (Arc::new(Tail::with_limits(limits)), Arc::new(store));
        tail.begin(PartIndex(0));
        let (sender, progress) = watch::channel(TeeProgress::default());
        let metrics = HubMetrics::default();
        let task = tokio::spawn({
            let (tail, store) = (Arc::clone(&tail), Arc::clone(&store));
            let metrics = metrics.clone();
            async move {
                let speech = Speech {
                    session: SessionId::random(),
                    turn: TurnNo(1),
                    generation: Generation(1),
                };
                run(&tail, &*store, &speech, &sender, &metrics).await;
            }
        });
        Self {
            tail,
            store,
            progress,
            metrics,
            task,
        }
    }

    fn speak(&self, indexes: std::ops::Range<u32>) {
        for index in indexes {
            self.tail.push([part(1, index)]);
        }
    }

    /// Lets everything run that can run without time passing.
    async fn settle(&self) {
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }

    async fn end(mut self) -> (TeeEnd, Arc<Scripted>) {
        let end = self
            .progress
            .wait_for(|progress| progress.end.is_some())
            .await
            .expect("the tee says its end")
            .end;
        self.task.await.expect("no panic");
        (end.expect("just waited for"), self.store)
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_quick_parts_are_four_appends_and_the_last_waits_for_company() {
    let rig = Rig::new(Scripted::new(FREE, &[]), RingLimits::default());
    let start = Instant::now();
    rig.speak(0..100);
    rig.settle().await;
    assert_eq!(rig.store.sizes(), [32, 32, 32]);
    assert_eq!(start.elapsed(), Duration::ZERO);
    rig.progress
        .clone()
        .wait_for(|progress| progress.appends == 4)
        .await
        .expect("the tee lives");
    assert_eq!(rig.store.sizes(), [32, 32, 32, 4]);
    assert_eq!(start.elapsed(), limits::TEE_BATCH_AGE);
    let flat: Vec<u32> = rig.store.batches().concat();
    assert_eq!(flat, (0..100).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_lone_part_goes_after_a_tenth_of_a_second_and_a_mebibyte_at_once() {
    let rig = Rig::new(Scripted::new(FREE, &[]), RingLimits::default());
    let start = Instant::now();
    rig.speak(0..1);
    rig.progress
        .clone()
        .wait_for(|progress| progress.appends == 1)
        .await
        .expect("the tee lives");
    assert_eq!(start.elapsed(), limits::TEE_BATCH_AGE);
    rig.tail.push([sized(1, 1, limits::TEE_BATCH_BYTES)]);
    rig.settle().await;
    assert_eq!(rig.store.sizes(), [1, 1]);
    assert_eq!(start.elapsed(), limits::TEE_BATCH_AGE);
}

#[tokio::test(start_paused = true)]
async fn never_more_than_two_mebibytes_are_taken_and_the_source_is_not_held_up() {
    let rig = Rig::new(
        Scripted::new(0, &[]),
        RingLimits {
            bytes: 64 << 20,
            parts: 4096,
        },
    );
    for index in 0..30 {
        rig.tail.push([sized(1, index, 300_000)]);
    }
    assert_eq!(
        rig.tail.next(),
        Some(PartIndex(30)),
        "the source never waits"
    );
    rig.settle().await;
    // six parts are 1.8 MB, the seventh would be over; three fit a batch
    assert_eq!(rig.store.batches(), [[0, 1, 2]]);
    rig.store.tokens.add_permits(1);
    rig.settle().await;
    assert_eq!(rig.store.batches(), [[0, 1, 2], [3, 4, 5]]);
    assert_eq!(rig.progress.borrow().appends, 1);
    assert_eq!(rig.progress.borrow().end, None);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_source_flushes_what_is_queued() {
    for end in [
        SourceEnd::Done,
        SourceEnd::Drained,
        SourceEnd::Lost,
        SourceEnd::Gone,
    ] {
        let rig = Rig::new(Scripted::new(FREE, &[]), RingLimits::default());
        rig.speak(0..31);
        rig.settle().await;
        assert_eq!(rig.store.sizes(), [0; 0]);
        let start = Instant::now();
        rig.tail.finish(end);
        let (ended, store) = rig.end().await;
        assert_eq!(
            (ended, store.sizes()),
            (TeeEnd::Flushed, vec![31]),
            "{end:?}"
        );
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_never_began_leaves_nothing_to_store() {
    let (sender, progress) = watch::channel(TeeProgress::default());
    let (tail, store) = (Tail::default(), Scripted::new(FREE, &[]));
    tail.finish(SourceEnd::Gone);
    let speech = Speech {
        session: SessionId::random(),
        turn: TurnNo(1),
        generation: Generation(1),
    };
    run(&tail, &store, &speech, &sender, &HubMetrics::default()).await;
    assert_eq!(progress.borrow().end, Some(TeeEnd::Flushed));
    assert!(store.batches().is_empty());
}

#[tokio::test(start_paused = true)]
async fn after_a_failed_append_nothing_later_is_stored() {
    for (answer, expected) in [
        (Answer::Fails, TeeEnd::Failed),
        (Answer::Quota, TeeEnd::Quota),
    ] {
        let rig = Rig::new(
            Scripted::new(FREE, &[Answer::Stored, answer]),
            RingLimits::default(),
        );
        rig.speak(0..100);
        let (tail, metrics) = (Arc::clone(&rig.tail), rig.metrics.clone());
        let (end, store) = rig.end().await;
        assert_eq!((end, store.sizes()), (expected, vec![32, 32]));
        assert_eq!(metrics.tee(), (1, 32), "only what was stored counts");
        tail.push([part(1, 100)]);
        assert_eq!(
            tail.next(),
            Some(PartIndex(101)),
            "source and viewers go on"
        );
        assert_eq!(store.sizes().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn an_append_has_five_seconds() {
    let rig = Rig::new(Scripted::new(FREE, &[Answer::Never]), RingLimits::default());
    rig.speak(0..32);
    let start = Instant::now();
    let (end, _) = rig.end().await;
    assert_eq!(end, TeeEnd::Failed);
    assert_eq!(start.elapsed(), limits::TEE_APPEND_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_ends_the_tee_when_the_tail_has_moved_on() {
    let rig = Rig::new(
        Scripted::new(0, &[]),
        RingLimits {
            bytes: 1 << 20,
            parts: 40,
        },
    );
    rig.speak(0..10);
    rig.settle().await;
    let full = limits::TEE_QUEUE_SLOTS as u32 * limits::TEE_BATCH_PARTS as u32;
    // the tee takes as it is spoken until its queue is full, then the small tail moves on
    for index in 10..full + 200 {
        rig.speak(index..index + 1);
        tokio::task::yield_now().await;
    }
    rig.store.tokens.add_permits(FREE);
    let (end, store) = rig.end().await;
    assert_eq!(end, TeeEnd::Overtaken);
    let flat: Vec<u32> = store.batches().concat();
    assert_eq!(
        flat,
        (0..flat.len() as u32).collect::<Vec<_>>(),
        "what was taken is stored, without a hole"
    );
    assert!(flat.len() as u32 >= full && (flat.len() as u32) < full + 200);
    assert!(
        store
            .batches()
            .iter()
            .all(|batch| batch.len() <= limits::TEE_BATCH_PARTS)
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_takes_nothing_ends_the_tee_after_five_seconds_without_room() {
    // each append takes just under its deadline, so only the lack of room can end the tee
    let rig = Rig::new(
        Scripted::new(0, &[]),
        RingLimits {
            bytes: 64 << 20,
            parts: 4096,
        },
    );
    for index in 0..30 {
        rig.tail.push([sized(1, index, 300_000)]);
    }
    rig.settle().await;
    let start = Instant::now();
    tokio::time::advance(limits::TEE_APPEND_TIMEOUT - Duration::from_millis(1)).await;
    rig.store.tokens.add_permits(1);
    rig.settle().await;
    assert_eq!(
        rig.progress.borrow().appends,
        1,
        "room again: the clock starts over"
    );
    let (end, _) = rig.end().await;
    assert!(matches!(end, TeeEnd::Stalled | TeeEnd::Failed), "{end:?}");
    assert_eq!(
        start.elapsed(),
        limits::TEE_APPEND_TIMEOUT * 2 - Duration::from_millis(1)
    );
}

#[tokio::test(start_paused = true)]
async fn both_sides_of_a_jump_are_stored() {
    let rig = Rig::new(Scripted::new(FREE, &[]), RingLimits::default());
    rig.speak(0..3);
    rig.speak(7..9);
    rig.tail.finish(SourceEnd::Done);
    let (end, store) = rig.end().await;
    assert_eq!(
        (end, store.batches()),
        (TeeEnd::Flushed, vec![vec![0, 1, 2, 7, 8]])
    );
}

#[tokio::test(start_paused = true)]
async fn a_reader_of_the_tail_never_waits_for_the_tee() {
    let rig = Rig::new(Scripted::new(0, &[]), RingLimits::default());
    let start = Instant::now();
    rig.speak(0..64);
    match rig.tail.read(PartIndex(0), 100) {
        TailRead::Parts(parts) => assert_eq!(parts.len(), 64),
        other => panic!("{other:?}"),
    }
    rig.settle().await;
    assert_eq!(
        rig.progress.borrow().appends,
        0,
        "the store has not answered"
    );
    assert_eq!(start.elapsed(), Duration::ZERO);
}
