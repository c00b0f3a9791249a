//! The merge property: any interleaving of tee batches, harvests, replays of either, two writers, holes and restarts
//! leaves the driver's parts, one contiguous seq, a kept quota and never a false `complete`.

use std::collections::{BTreeMap, BTreeSet};

use bex_proto::driver::{TurnDigest, TurnEnd, TurnState};
use bex_proto::ids::PartId;
use bex_proto::session::{TruncationReason, Verdict};
use bex_proto::transcript::Part;
use bex_proto::{Seq, SessionId};
use bex_store::leases::Round;
use bex_store::settle::{Cause, SandboxAfter, Settled};
use bex_store::transcript::{AppendOutcome, HarvestStep};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::*;

/// What the driver said and what happened to it.
#[derive(Debug, Clone)]
struct Case {
    /// Payload lengths of the turn's parts.
    lengths: Vec<usize>,
    /// Parts that the session's quota admits, roughly.
    room: usize,
    steps: Vec<Step>,
}

#[derive(Debug, Clone)]
enum Step {
    /// A tee batch: some parts, in any order, perhaps sent by two writers at once.
    Tee {
        from: u32,
        count: u32,
        skip: u32,
        twice: bool,
    },
    /// The harvest goes on for some records; perhaps the process dies before it learns that it was stored.
    Harvest { count: u32, forget: bool },
    /// A harvest from an offset that no longer stands.
    StaleHarvest { count: u32 },
    /// A tee of a foreign generation.
    Foreign { from: u32 },
    /// The turn-end is recorded.
    End,
    /// The Completer settles, and settles again after a restart.
    Settle,
    /// The Completer looks again.
    Rejudge,
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..16u32, 1..8u32, 0..3u32, any::<bool>()).prop_map(|(from, count, skip, twice)| Step::Tee { from, count, skip, twice }),
        4 => (1..8u32, any::<bool>()).prop_map(|(count, forget)| Step::Harvest { count, forget }),
        1 => (1..4u32).prop_map(|count| Step::StaleHarvest { count }),
        1 => (0..16u32).prop_map(|from| Step::Foreign { from }),
        1 => Just(Step::End),
        1 => Just(Step::Settle),
        1 => Just(Step::Rejudge),
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    let room = prop_oneof![3 => Just(usize::MAX), 2 => 0..16usize];
    (
        prop::collection::vec(0..200usize, 0..16),
        room,
        prop::collection::vec(steps(), 1..12),
    )
        .prop_map(|(lengths, room, steps)| Case {
            lengths,
            room,
            steps,
        })
}

/// The driver's own truth and the state of its harvester.
struct World<'a> {
    store: &'a Store,
    session: SessionId,
    said: Vec<Part>,
    end: TurnEnd,
    /// Records the harvester believes to have stored; its offset counts records.
    harvested: u32,
    limit: u64,
    settled: Option<Verdict>,
    mark: Option<PartId>,
    /// Indexes that were stored when the invariants were last looked at.
    before: BTreeSet<u32>,
}

impl<'a> World<'a> {
    async fn new(store: &'a Store, case: &Case) -> World<'a> {
        let session = store.create().await;
        let said: Vec<Part> = case
            .lengths
            .iter()
            .zip(0..)
            .map(|(length, index)| {
                part(
                    1,
                    index,
                    &format!(
                        r#"{{"type":"data-{index}","data":"{}"}}"#,
                        "z".repeat(*length)
                    ),
                )
            })
            .collect();
        let mut digest = TurnDigest::default();
        said.iter().for_each(|part| digest.add(&part.bytes));
        let end = TurnEnd {
            turn: T1,
            parts: u32::try_from(said.len()).unwrap(),
            bytes: said.iter().map(|part| part.bytes.len() as u64).sum(),
            sha256: digest.hex(),
            state: TurnState::Succeeded,
            dropped: None,
        };
        let limit = if case.room == usize::MAX {
            1 << 20
        } else {
            (case.room * 190) as u64
        };
        World {
            store,
            session,
            said,
            end,
            harvested: 0,
            limit,
            settled: None,
            mark: None,
            before: BTreeSet::new(),
        }
    }

    /// Delivers the turn and sets the quota of this case.
    async fn prepare(&self, client: &tokio_postgres::Client) {
        let claim = self.store.claim_dispatch(&self.session).await;
        self.store.deliver(&claim).await;
        let sql = "UPDATE transcript_heads SET byte_limit = $2 WHERE session_id = $1";
        let limit = i64::try_from(self.limit).unwrap();
        client
            .execute(sql, &[&self.session.as_str(), &limit])
            .await
            .unwrap();
    }

    fn pick(&self, indexes: impl Iterator<Item = u32>) -> Vec<Part> {
        indexes
            .filter_map(|index| self.said.get(index as usize).cloned())
            .collect()
    }

    async fn tee(&mut self, batch: &[Part]) {
        let outcome = self
            .store
            .append_at(&self.session, T1, G1, batch, None)
            .await;
        self.check(outcome);
    }

    async fn harvest(&mut self, from: u32, count: u32) -> bool {
        let to = (from + count).min(self.end.parts);
        let batch = self.pick(from..to);
        let step = HarvestStep {
            log_id: "log",
            from: u64::from(from),
            to: u64::from(to),
        };
        let outcome = self
            .store
            .append_at(&self.session, T1, G1, &batch, Some(step))
            .await;
        let moved = matches!(outcome, AppendOutcome::Stored(_));
        self.check(outcome);
        moved
    }

    fn check(&mut self, outcome: AppendOutcome) {
        match outcome {
            AppendOutcome::Stored(appended) => {
                assert_eq!(appended.mismatch, None);
                assert_ne!(
                    self.settled,
                    Some(Verdict::Complete),
                    "a complete turn takes nothing"
                );
                if let Some(mark) = self.mark {
                    assert_eq!(appended.quota_mark, Some(mark), "the mark never moves");
                }
                self.mark = appended.quota_mark;
            }
            AppendOutcome::Complete => assert_eq!(self.settled, Some(Verdict::Complete)),
            AppendOutcome::OffsetMoved => {}
            other => panic!("{other:?}"),
        }
    }

    async fn run(&mut self, step: &Step) {
        match *step {
            Step::Tee {
                from,
                count,
                skip,
                twice,
            } => {
                let mut batch =
                    self.pick((from..from + count).filter(|i| skip == 0 || i % 3 != skip));
                if skip == 2 {
                    batch.reverse();
                }
                if twice {
                    let (a, b) = tokio::join!(
                        self.store.append_at(&self.session, T1, G1, &batch, None),
                        self.store.append_at(&self.session, T1, G1, &batch, None),
                    );
                    // which came first is not known: only the later one carries the standing mark
                    let newest = [a, b].into_iter().max_by_key(|outcome| match outcome {
                        AppendOutcome::Stored(appended) => appended.next_seq,
                        _ => Seq(-1),
                    });
                    self.check(newest.unwrap());
                } else {
                    self.tee(&batch).await;
                }
            }
            Step::Harvest { count, forget } => {
                if self.harvest(self.harvested, count).await {
                    if !forget {
                        self.harvested = (self.harvested + count).min(self.end.parts);
                    }
                } else {
                    // refused: it had forgotten, and asks the store where it stands
                    let at = self
                        .store
                        .db
                        .harvest_offset(&self.session, G1, "log")
                        .await
                        .unwrap();
                    self.harvested = u32::try_from(at).unwrap();
                }
            }
            Step::StaleHarvest { count } => {
                let at = self
                    .store
                    .db
                    .harvest_offset(&self.session, G1, "log")
                    .await
                    .unwrap();
                if at > 0 {
                    let wrong = u32::try_from(at).unwrap() + 1;
                    assert!(
                        !self.harvest(wrong, count).await,
                        "an offset that does not stand is refused"
                    );
                }
            }
            Step::Foreign { from } => {
                let batch = self.pick(from..from + 4);
                let outcome = self
                    .store
                    .append_at(&self.session, T1, bex_proto::Generation(2), &batch, None)
                    .await;
                assert_eq!(outcome, AppendOutcome::WrongGeneration);
            }
            Step::End => {
                self.store
                    .db
                    .record_turn_end(&self.session, G1, &self.end)
                    .await
                    .unwrap();
            }
            Step::Settle => self.settle().await,
            Step::Rejudge => self.rejudge().await,
        }
    }

    async fn settle(&mut self) {
        let Some(lease) = self.lease().await else {
            return;
        };
        let db = &self.store.db;
        db.record_turn_end(&self.session, G1, &self.end)
            .await
            .unwrap();
        let request = settle(T1, Cause::DriverEnded, SandboxAfter::Idle);
        let settled = self.store.db.settle(&lease, &request).await.unwrap();
        match settled {
            Settled::Now {
                verdict, reason, ..
            } => {
                assert_eq!(self.settled, None);
                if reason == Some(TruncationReason::SessionQuota) {
                    assert!(self.mark.is_some());
                }
                self.settled = Some(verdict);
            }
            Settled::Already(verdict) => assert_eq!(Some(verdict), self.settled),
            other => panic!("{other:?}"),
        }
        self.store
            .db
            .release_lease(&lease, std::time::Duration::ZERO, Round::Done)
            .await
            .unwrap();
    }

    async fn rejudge(&mut self) {
        let Some(lease) = self.lease().await else {
            return;
        };
        for turn in self.store.db.turns_to_rejudge(&self.session).await.unwrap() {
            self.store.db.rejudge(&lease, turn).await.unwrap();
        }
        self.store
            .db
            .release_lease(&lease, std::time::Duration::ZERO, Round::Done)
            .await
            .unwrap();
        let turn = self
            .store
            .db
            .turn(&self.session, T1)
            .await
            .unwrap()
            .unwrap();
        if self.settled.is_some() {
            self.settled = Some(turn.verdict);
        }
    }

    async fn lease(&self) -> Option<bex_store::leases::Lease> {
        let leases = self
            .store
            .db
            .claim_leases("merge", 1000, std::time::Duration::from_secs(3600))
            .await
            .unwrap();
        leases
            .into_iter()
            .find(|lease| lease.session == self.session)
    }

    /// The invariants, after every step.
    async fn invariants(&mut self) {
        let db = &self.store.db;
        let page = db.read_feed(&self.session, Seq(-1), 1000).await.unwrap();
        assert!(page.caught_up);
        let stored = page.parts;
        let mut seqs: Vec<i64> = stored.iter().map(|part| part.seq.0).collect();
        seqs.sort_unstable();
        assert_eq!(
            seqs,
            (0..stored.len() as i64).collect::<Vec<_>>(),
            "seq is contiguous"
        );
        let by_index: BTreeMap<u32, &[u8]> = stored
            .iter()
            .map(|part| (part.id.index.0, &part.bytes[..]))
            .collect();
        assert_eq!(by_index.len(), stored.len(), "each part once");
        for (index, bytes) in &by_index {
            assert_eq!(
                *bytes,
                &self.said[*index as usize].bytes[..],
                "the driver's bytes"
            );
        }
        let head = self
            .store
            .db
            .transcript_head(&self.session)
            .await
            .unwrap()
            .unwrap();
        let charged: u64 = stored.iter().map(|part| part.bytes.len() as u64 + 64).sum();
        assert_eq!(
            (head.parts, head.charged_bytes, head.next_seq),
            (stored.len() as u64, charged, Seq(stored.len() as i64))
        );
        assert!(charged <= self.limit, "the quota is never exceeded");
        assert_eq!(head.quota_mark, self.mark);
        let now: BTreeSet<u32> = by_index.keys().copied().collect();
        assert!(
            now.is_superset(&self.before),
            "nothing stored ever goes away"
        );
        if let Some(mark) = self.mark {
            let above = |stored: &BTreeSet<u32>| stored.range(mark.index.0..).count();
            assert_eq!(
                above(&now),
                above(&self.before),
                "nothing at or above the mark is accepted"
            );
            assert!(
                !now.contains(&mark.index.0),
                "the refused part is never stored"
            );
        }
        self.before = now;
        let turn = self
            .store
            .db
            .turn(&self.session, T1)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(turn.stored_parts as usize, stored.len());
        if turn.verdict == Verdict::Complete {
            assert_eq!(stored.len(), self.said.len(), "complete is never false");
        }
        let contiguous = (0..)
            .take_while(|index| by_index.contains_key(index))
            .count();
        assert_eq!(
            self.store
                .db
                .contiguous_end(&self.session, T1)
                .await
                .unwrap()
                .0 as usize,
            contiguous
        );
    }

    /// After all: the harvest finishes, the turn settles, and what can be whole is.
    async fn finish(&mut self) {
        let from = self
            .store
            .db
            .harvest_offset(&self.session, G1, "log")
            .await
            .unwrap();
        self.harvest(u32::try_from(from).unwrap(), self.end.parts)
            .await;
        self.settle().await;
        // a part lost after it was harvested cannot be: the offset moved with it
        self.rejudge().await;
        self.invariants().await;
        let turn = self
            .store
            .db
            .turn(&self.session, T1)
            .await
            .unwrap()
            .unwrap();
        let expected = if self.mark.is_none() {
            Verdict::Complete
        } else {
            Verdict::Truncated
        };
        assert_eq!(
            turn.verdict, expected,
            "mark {:?}, reason {:?}",
            self.mark, turn.reason
        );
    }
}

/// Workers: a case mostly waits for its database.
const AT_ONCE: u32 = 4;

#[test]
fn any_interleaving_leaves_what_the_driver_said() {
    let count = std::env::var("BEX_MERGE_CASES")
        .ok()
        .map_or(1000_u32, |text| text.parse().unwrap());
    std::thread::scope(|workers| {
        for _ in 0..AT_ONCE {
            workers.spawn(|| interleave(count.div_ceil(AT_ONCE)));
        }
    });
}

/// So many cases, each in a session of its own, in a database of this worker's own.
fn interleave(cases_of_this: u32) {
    let config = Config {
        cases: cases_of_this,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Config::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let store = runtime.block_on(Store::new());
    let client = runtime.block_on(tokio_postgres_client(&store));
    TestRunner::new(config)
        .run(&cases(), |case| {
            runtime.block_on(async {
                let mut world = World::new(&store, &case).await;
                world.prepare(&client).await;
                for step in &case.steps {
                    world.run(step).await;
                    world.invariants().await;
                }
                world.finish().await;
            });
            Ok(())
        })
        .unwrap();
}
