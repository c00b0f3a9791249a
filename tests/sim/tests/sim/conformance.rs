//! The model is held to PostgreSQL: the same random operations, and after each of them the same answer and the same rows.

use std::time::Duration;

use bex_proto::{Generation, SessionId, TurnNo};
use bex_store::dispatch::DispatchClaim;
use bex_store::leases::Lease;
use bex_store::{Db, DbConfig};
use bex_testpg::Database;

/// Both answers, printed: the same, or the model is wrong.
macro_rules! same {
    ($pair:ident, $what:expr, $real:expr, $model:expr) => {{
        let real = format!("{:?}", $real.expect("the server answers"));
        let model = format!("{:?}", $model);
        $pair.log.push(format!("{} -> {real}", $what));
        assert_eq!(model, real, "{}", $pair.told());
    }};
}

mod rows;
mod speech;
mod work;

use crate::failpoints::new_session;
use crate::rng::Rng;
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
