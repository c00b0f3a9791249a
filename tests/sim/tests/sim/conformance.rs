//! The model is held to PostgreSQL: the same random operations, and after each of them the same answer and the same rows.

mod rows;

use std::time::Duration;

use bex_proto::driver::{Dropped, TurnDigest, TurnEnd, TurnState};
use bex_proto::session::FailureReason;
use bex_proto::{Generation, PartIndex, SessionId, TurnNo};
use bex_store::dispatch::{BeginGeneration, Delivery, DispatchClaim};
use bex_store::leases::{Lease, Round};
use bex_store::sessions::NewTurn;
use bex_store::settle::{Cause, Legacy, SandboxAfter, Settle};
use bex_store::transcript::{Append, HarvestStep, Marks};
use bex_store::{Db, DbConfig};
use bex_testpg::Database;
use bytes::Bytes;

use crate::failpoints::new_session;
use crate::gateway::part;
use crate::rng::Rng;
use crate::scenario::NEW_SANDBOX;
use crate::store::Model;
use rows::{sandbox_text, session_text, turn_text};

/// Sequences of operations, each in a database of its own.
const SEQUENCES: u64 = 6;
const OPERATIONS: usize = 250;
const SESSIONS: usize = 3;
const HOUR: Duration = Duration::from_secs(3600);

struct Pair {
    db: Db,
    database: Database,
    model: Model,
    rng: Rng,
    sessions: Vec<SessionId>,
    leases: Vec<Lease>,
    claims: Vec<DispatchClaim>,
    log: Vec<String>,
}

/// Both answers, printed: the same, or the model is wrong.
macro_rules! same {
    ($pair:ident, $what:expr, $real:expr, $model:expr) => {{
        let real = format!("{:?}", $real.expect("the server answers"));
        let model = format!("{:?}", $model);
        $pair.log.push(format!("{} -> {real}", $what));
        assert_eq!(model, real, "{}", $pair.told());
    }};
}

impl Pair {
    async fn new(seed: u64) -> Self {
        let key = bex_store::migrate::schema_fingerprint();
        let build = |url: String| async move {
            let config = DbConfig::new(url, "test");
            bex_store::migrate(&config).await.map(|_| ())
        };
        let server = bex_testpg::server().expect("a server");
        let database = server.database_from(&key, build).await.expect("a database");
        let db = Db::connect(&DbConfig::new(&database.url, "test")).expect("a pool");
        let mut pair = Self {
            db,
            database,
            model: Model::new(),
            rng: Rng::new(seed),
            sessions: Vec::new(),
            leases: Vec::new(),
            claims: Vec::new(),
            log: vec![format!("seed {seed}")],
        };
        for _ in 0..SESSIONS {
            pair.create().await;
        }
        pair
    }

    fn told(&self) -> String {
        let skipped = self.log.len().saturating_sub(40);
        self.log[skipped..].join("\n")
    }

    async fn create(&mut self) {
        let id: SessionId = self.rng.id("ags").parse().expect("an id");
        self.db
            .create_session(&new_session(&id))
            .await
            .expect("created");
        self.model.create(&id);
        let limit = self.rng.pick(&[7, 20, 200_000]);
        let sql =
            format!("UPDATE transcript_heads SET part_limit = {limit} WHERE session_id = '{id}'");
        self.database.sql(&sql).expect("the statement is right");
        self.model.with(&id, |session| session.part_limit = limit);
        self.sessions.push(id);
    }

    fn session(&self) -> SessionId {
        self.rng.pick(&self.sessions)
    }

    fn turn(&self, id: &SessionId) -> TurnNo {
        let last = self
            .model
            .with(id, |session| session.row.turns)
            .expect("it exists");
        TurnNo(1 + self.rng.below(u64::from(last.0) + 1) as u32)
    }

    /// Mostly the one that speaks the turn.
    fn generation(&self, id: &SessionId, turn: TurnNo) -> Generation {
        let row = self.model.turn_row(id, turn);
        match row {
            Some(row) if self.rng.chance(850) => row.generation,
            _ => Generation(self.rng.below(4) as u32),
        }
    }

    async fn step(&mut self) {
        match self.rng.below(34) {
            0..=7 => self.append().await,
            8 | 9 => self.turn_end().await,
            10..=12 => self.settle().await,
            13 | 14 => self.rejudge().await,
            15..=17 => self.claim().await,
            18..=20 => self.release().await,
            21..=24 => self.dispatch().await,
            25 => self.begin_turn().await,
            26 => self.lives().await,
            27 => self.verbs().await,
            28 => self.expire(),
            29 => {
                let id = self.session();
                self.db.make_due(&id).await.expect("done");
                self.model.make_due(&id);
            }
            _ => self.reads().await,
        }
        self.compare().await;
    }

    async fn append(&mut self) {
        let id = self.session();
        let turn = self.turn(&id);
        let generation = self.generation(&id, turn);
        let from = self.rng.below(12) as u32;
        let mut parts = Vec::new();
        for index in from..from + self.rng.below(6) as u32 {
            if self.rng.chance(150) {
                continue;
            }
            let other = if self.rng.chance(40) { "other " } else { "" };
            parts.push(part(turn, index, text(index, other)));
            if self.rng.chance(80) {
                parts.push(part(turn, index, text(index, "again ")));
            }
        }
        if self.rng.chance(200) {
            parts.reverse();
        }
        let log_id = self.rng.pick(&["one", "two"]);
        let at = self.model.harvest_offset(&id, generation, log_id);
        let begins = if self.rng.chance(850) {
            at
        } else {
            self.rng.below(3) * 10
        };
        let step = HarvestStep {
            log_id,
            from: begins,
            to: begins + self.rng.below(20),
        };
        let batch = Append {
            session: &id,
            turn,
            generation,
            parts: &parts,
            marks: if self.rng.chance(50) {
                Marks::Unstorable
            } else {
                Marks::Clean
            },
            harvest: self.rng.chance(600).then_some(step),
        };
        let (real, model) = (self.db.append(batch).await, self.model.append(batch));
        same!(
            self,
            format!("append {batch:?}"),
            real,
            model.expect("the model answers")
        );
    }

    async fn turn_end(&mut self) {
        let id = self.session();
        let turn = self.turn(&id);
        let generation = self.generation(&id, turn);
        let parts = self.rng.below(8) as u32;
        let mut digest = TurnDigest::default();
        (0..parts).for_each(|index| digest.add(&text(index, "")));
        if self.rng.chance(100) {
            digest.add(b"not said");
        }
        let dropped = self.rng.chance(200).then_some(Dropped {
            first: PartIndex(1),
            last: PartIndex(2),
            count: 2,
            bytes: 3,
        });
        let states = [TurnState::Succeeded, TurnState::Failed, TurnState::Stopped];
        let end = TurnEnd {
            turn,
            parts,
            bytes: 1,
            sha256: digest.hex(),
            state: self.rng.pick(&states),
            dropped,
        };
        let real = self.db.record_turn_end(&id, generation, &end).await;
        let model = self.model.record_turn_end(&id, generation, &end);
        same!(
            self,
            format!("record_turn_end {generation} {end:?}"),
            real,
            model
        );
    }

    /// A lease that was claimed, now or long ago.
    fn lease(&self) -> Option<Lease> {
        (!self.leases.is_empty()).then(|| {
            let newest = self.leases.len() - 1;
            let at = if self.rng.chance(700) {
                newest
            } else {
                self.rng.index(newest + 1)
            };
            self.leases[at].clone()
        })
    }

    async fn settle(&mut self) {
        let Some(lease) = self.lease() else { return };
        let turn = self.turn(&lease.session);
        let causes = [
            Cause::DriverEnded,
            Cause::StoreFailed,
            Cause::Lost,
            Cause::Deadline,
            Cause::Canceled,
        ];
        let after = [
            SandboxAfter::Idle,
            SandboxAfter::Stopping,
            SandboxAfter::Gone,
        ];
        let legacy = Legacy {
            state: self.rng.pick(&[TurnState::Succeeded, TurnState::Failed]),
            parts: self.rng.below(6) as u32,
            whole: self.rng.chance(700),
        };
        let settle = Settle {
            turn,
            generation: self.generation(&lease.session, turn),
            cause: self.rng.pick(&causes),
            legacy: self.rng.chance(150).then_some(legacy),
            sandbox: self.rng.pick(&after),
            failure: self.rng.pick(&[None, Some(FailureReason::SandboxLost)]),
        };
        let real = self.db.settle(&lease, &settle).await;
        let model = self.model.settle(&lease, &settle);
        same!(self, format!("settle {lease:?} {settle:?}"), real, model);
    }

    async fn rejudge(&mut self) {
        let Some(lease) = self.lease() else { return };
        let waiting = self.db.turns_to_rejudge(&lease.session).await;
        same!(
            self,
            "turns_to_rejudge",
            waiting,
            self.model.turns_to_rejudge(&lease.session)
        );
        let turn = self.turn(&lease.session);
        let real = self.db.rejudge(&lease, turn).await;
        same!(
            self,
            format!("rejudge {lease:?} {turn}"),
            real,
            self.model.rejudge(&lease, turn)
        );
    }

    async fn claim(&mut self) {
        let grace = self.rng.pick(&[Duration::ZERO, HOUR]);
        let mut real = self
            .db
            .claim_leases("test", 100, grace)
            .await
            .expect("claimed");
        let mut model = self.model.claim_leases(100, grace);
        real.sort_by(|a, b| a.session.cmp(&b.session));
        model.sort_by(|a, b| a.session.cmp(&b.session));
        let plain = |leases: &[Lease]| -> Vec<_> {
            let of = |l: &Lease| {
                (
                    l.session.clone(),
                    l.fence,
                    l.failures,
                    l.unclear_since.is_some(),
                )
            };
            leases.iter().map(of).collect()
        };
        self.log
            .push(format!("claim_leases {grace:?} -> {:?}", plain(&real)));
        assert_eq!(plain(&model), plain(&real), "{}", self.told());
        self.leases.extend(real);
        let claims = self
            .db
            .claim_dispatches("test", 100)
            .await
            .expect("claimed");
        let mut model = self.model.claim_dispatches();
        let mut real = claims.clone();
        real.sort_by(|a, b| a.session.cmp(&b.session));
        model.sort_by(|a, b| a.session.cmp(&b.session));
        self.log.push(format!("claim_dispatches -> {real:?}"));
        assert_eq!(model, real, "{}", self.told());
        self.claims.extend(claims);
    }

    async fn release(&mut self) {
        let Some(lease) = self.lease() else { return };
        if self.rng.chance(200) {
            let real = self.db.renew_lease(&lease).await;
            same!(
                self,
                format!("renew {lease:?}"),
                real,
                self.model.renew_lease(&lease)
            );
            return;
        }
        let next = self.rng.pick(&[Duration::ZERO, Duration::ZERO, HOUR]);
        let round = self.rng.pick(&[Round::Done, Round::Failed, Round::Unclear]);
        let real = self.db.release_lease(&lease, next, round).await;
        let model = self.model.release_lease(&lease, next, round);
        same!(
            self,
            format!("release {lease:?} {next:?} {round:?}"),
            real,
            model
        );
    }

    async fn dispatch(&mut self) {
        if self.claims.is_empty() {
            return;
        }
        let newest = self.claims.len() - 1;
        let at = if self.rng.chance(800) {
            newest
        } else {
            self.rng.index(newest + 1)
        };
        let claim = self.claims[at].clone();
        let generation = self.generation(&claim.session, claim.turn);
        match self.rng.below(4) {
            0 => {
                let real = self.db.begin_generation(&claim, &NEW_SANDBOX).await;
                let model: BeginGeneration = self.model.begin_generation(&claim, &NEW_SANDBOX);
                same!(self, format!("begin_generation {claim:?}"), real, model);
            }
            1 => {
                let real = self.db.sandbox_ready(&claim, generation, "uid").await;
                let model = self.model.sandbox_ready(&claim, generation, "uid");
                same!(
                    self,
                    format!("sandbox_ready {claim:?} {generation}"),
                    real,
                    model
                );
            }
            2 => {
                let real = self.db.begin_delivery(&claim, generation).await;
                let model = self.model.begin_delivery(&claim, generation);
                same!(
                    self,
                    format!("begin_delivery {claim:?} {generation}"),
                    real,
                    model
                );
            }
            _ => {
                let delivery =
                    self.rng
                        .pick(&[Delivery::Accepted, Delivery::Accepted, Delivery::Unknown]);
                let real = self.db.delivered(&claim, delivery).await;
                let model = self.model.delivered(&claim, delivery);
                same!(
                    self,
                    format!("delivered {claim:?} {delivery:?}"),
                    real,
                    model
                );
            }
        }
    }

    async fn begin_turn(&mut self) {
        let id = self.session();
        let new = NewTurn {
            session: id.clone(),
            workspace: "acme".parse().expect("an id"),
            prompt: "do it".into(),
            idempotency: None,
        };
        let real = self.db.begin_turn(&new).await;
        same!(
            self,
            format!("begin_turn {id}"),
            real,
            self.model.begin_turn(&id)
        );
    }

    async fn lives(&mut self) {
        let Some(lease) = self.lease() else { return };
        let life = Generation(1 + self.rng.below(3) as u32);
        match self.rng.below(4) {
            0 => {
                let session = &lease.session;
                let real = self.db.lose_idle(session, life).await;
                same!(
                    self,
                    format!("lose_idle {session} {life}"),
                    real,
                    self.model.lose_idle(session, life)
                );
            }
            2 => {
                let real = self.db.begin_stopping(&lease, life).await;
                same!(
                    self,
                    format!("begin_stopping {lease:?} {life}"),
                    real,
                    self.model.begin_stopping(&lease, life)
                );
            }
            1 => {
                let real = self.db.mark_gone(&lease, life).await;
                same!(
                    self,
                    format!("mark_gone {lease:?} {life}"),
                    real,
                    self.model.mark_gone(&lease, life)
                );
            }
            _ => {
                let delay = self.rng.pick(&[Duration::ZERO, HOUR]);
                let real = self.db.retry_teardown(&lease.session, life, delay).await;
                self.model.retry_teardown(&lease.session, life, delay);
                same!(self, format!("retry_teardown {life} {delay:?}"), real, ());
            }
        }
    }

    async fn verbs(&mut self) {
        let id = self.session();
        match self.rng.below(8) {
            0 => {
                let real = self.db.request_cancel(&id).await;
                same!(
                    self,
                    format!("request_cancel {id}"),
                    real,
                    self.model.request_cancel(&id)
                );
            }
            1 | 2 => {
                self.db.archive(&id).await.expect("done");
                self.model.archive(&id);
            }
            3..=5 => {
                self.db.unarchive(&id).await.expect("done");
                self.model.unarchive(&id);
            }
            _ => {
                let turn = self.turn(&id);
                let real = self.db.request_stop(&id, turn).await;
                same!(
                    self,
                    format!("request_stop {id} {turn}"),
                    real,
                    self.model.request_stop(&id, turn)
                );
            }
        }
    }

    fn expire(&mut self) {
        for sql in [
            "UPDATE leases SET until = now() - interval '1 second', next_due_at = now() WHERE until IS NOT NULL",
            "UPDATE dispatches SET until = now() - interval '1 second' WHERE until IS NOT NULL",
        ] {
            self.database.sql(sql).expect("the statement is right");
        }
        self.model.expire();
        self.log.push("all leases ran out".into());
    }

    async fn reads(&mut self) {
        let id = self.session();
        let turn = self.turn(&id);
        let generation = self.generation(&id, turn);
        let real = self.db.last_harvest(&id, generation, turn).await;
        same!(
            self,
            format!("last_harvest {id} {generation} {turn}"),
            real,
            self.model.last_harvest(&id, generation, turn)
        );
        let real = self.db.harvest_offset(&id, generation, "one").await;
        same!(
            self,
            "harvest_offset",
            real,
            self.model.harvest_offset(&id, generation, "one")
        );
        let real = self.db.harvested_at(&id, generation, turn).await;
        let model = self.model.harvested_at(&id, generation, turn);
        same!(
            self,
            "harvested_at",
            real.map(|at| at.is_some()),
            model.is_some()
        );
        let real = self.db.contiguous_end(&id, turn).await;
        same!(
            self,
            "contiguous_end",
            real,
            self.model.contiguous_end(&id, turn)
        );
    }

    /// Every row of every session.
    async fn compare(&mut self) {
        for id in self.sessions.clone() {
            let real = self
                .db
                .session(&id)
                .await
                .expect("read")
                .expect("it exists");
            let turns = self.db.turns(&id, TurnNo(1), 100).await.expect("read");
            let living = self.db.living_sandboxes_of(&id).await.expect("read");
            let mut rows = vec![session_text(&real)];
            rows.extend(turns.iter().map(turn_text));
            rows.extend(living.iter().map(sandbox_text));
            let model = self.model.with(&id, |session| {
                let mut rows = vec![session_text(&session.row)];
                rows.extend(session.turns.values().map(|turn| turn_text(&turn.row)));
                rows
            });
            let mut model = model.expect("it exists");
            model.extend(self.model.living(&id).iter().map(sandbox_text));
            assert_eq!(model, rows, "{}", self.told());
        }
    }

    /// Every part, and that seq has no gap.
    fn compare_parts(&self) {
        for id in &self.sessions {
            let sql = format!(
                "SELECT turn || '.' || part_index || ' ' || seq || ' ' || part FROM transcript_parts
                  WHERE session_id = '{id}' ORDER BY turn, part_index"
            );
            let real = self.database.sql(&sql).expect("the statement is right");
            let real: Vec<_> = real.lines().map(str::to_owned).collect();
            let model = self.model.with(id, |session| -> Vec<_> {
                let parts = session.parts.iter();
                parts
                    .map(|((turn, index), part)| {
                        let text = String::from_utf8_lossy(&part.bytes);
                        format!("{turn}.{index} {} {text}", part.seq)
                    })
                    .collect()
            });
            assert_eq!(model, Some(real), "{}", self.told());
        }
    }
}

fn text(index: u32, other: &str) -> Bytes {
    format!(r#"{{"type":"text-delta","id":"t","delta":"{other}{index}"}}"#).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_answers_as_postgresql_does() {
    let cases = std::env::var("BEX_SIM_SEQUENCES").ok();
    let sequences = cases.map_or(SEQUENCES, |text| text.parse().expect("a number"));
    for seed in 0..sequences {
        let mut pair = Pair::new(seed).await;
        for _ in 0..OPERATIONS {
            pair.step().await;
        }
        pair.compare_parts();
    }
}
