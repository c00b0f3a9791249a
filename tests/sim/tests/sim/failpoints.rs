//! A Completer that dies between any two steps, over the model and over PostgreSQL: the next one comes to the same end.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bex_api::completer::store::CompleterStore;
use bex_api::config::Timings;
use bex_proto::SessionId;
use bex_proto::driver::TurnState;
use bex_proto::session::{Phase, SessionKind, TruncationReason, Verdict};
use bex_store::dispatch::{BeginGeneration, Delivery};
use bex_store::sessions::{AgentSpec, NewSession};
use bex_store::{Db, DbConfig};
use bex_testpg::Database;
use tokio::time::{sleep, timeout};

use crate::process::{Fate, Fates, Peer};
use crate::rng::Rng;
use crate::sandbox::{World, part};
use crate::scenario::NEW_SANDBOX;
use crate::setup::{G1, T1, completer, delivered};
use crate::store::Model;

const PARTS: usize = 30;
/// Everything at once, but for what must not run out in a slow test.
const TIMINGS: Timings = Timings {
    completer_tick: Duration::from_millis(20),
    idle_grace: Duration::ZERO,
    turn_deadline: Duration::from_secs(3600),
    status_unreadable: Duration::from_secs(600),
};
/// One run to its end, whatever the machine is doing.
const PATIENCE: Duration = Duration::from_secs(150);

/// How a session stands at its end.
#[derive(Debug, PartialEq, Eq)]
struct End {
    verdict: Verdict,
    reason: Option<TruncationReason>,
    phase: Phase,
    parts: Vec<String>,
    settles: usize,
    living: usize,
}

/// A store under test.
#[async_trait]
trait Backend: Send + Sync {
    fn store(&self) -> Arc<dyn CompleterStore>;
    /// A session whose turn is being spoken by its first sandbox.
    async fn deliver(&self, world: &World, id: &SessionId);
    /// As if every lease of a dead process had run out.
    async fn expire(&self);
    /// Its sandboxes that are not gone.
    async fn living(&self, id: &SessionId) -> usize;
    async fn end(&self, id: &SessionId) -> End;
}

#[async_trait]
impl Backend for Arc<Model> {
    fn store(&self) -> Arc<dyn CompleterStore> {
        self.clone()
    }
    async fn deliver(&self, world: &World, id: &SessionId) {
        delivered(self, world, id);
    }
    async fn expire(&self) {
        Model::expire(self);
    }
    async fn living(&self, id: &SessionId) -> usize {
        Model::living(self, id).len()
    }
    async fn end(&self, id: &SessionId) -> End {
        let living = Backend::living(self, id).await;
        self.with(id, |session| {
            let row = &session.turns[&T1].row;
            let parts = session.parts.values();
            End {
                verdict: row.verdict,
                reason: row.reason,
                phase: session.row.phase,
                parts: parts
                    .map(|p| String::from_utf8_lossy(&p.bytes).into_owned())
                    .collect(),
                settles: session.verdicts.len(),
                living,
            }
        })
        .expect("it exists")
    }
}

struct Postgres {
    db: Db,
    database: Database,
}

impl Postgres {
    async fn new() -> Self {
        let key = bex_store::migrate::schema_fingerprint();
        let build = |url: String| async move {
            let config = DbConfig::new(url, "test");
            bex_store::migrate(&config).await.map(|_| ())
        };
        let server = bex_testpg::server().expect("a server");
        let database = server.database_from(&key, build).await.expect("a database");
        let db = Db::connect(&DbConfig::new(&database.url, "test")).expect("a pool");
        Self { db, database }
    }
}

#[async_trait]
impl Backend for Postgres {
    fn store(&self) -> Arc<dyn CompleterStore> {
        Arc::new(self.db.clone())
    }
    async fn deliver(&self, world: &World, id: &SessionId) {
        let new = new_session(id);
        self.db.create_session(&new).await.expect("created");
        let claims = self.db.claim_dispatches("d", 100).await.expect("claimed");
        let claim = claims
            .iter()
            .find(|claim| claim.session == *id)
            .expect("due");
        let begun = self.db.begin_generation(claim, &NEW_SANDBOX).await;
        assert_eq!(
            begun.expect("begun"),
            BeginGeneration::Begun { generation: G1 }
        );
        let uid = world.create(id, G1);
        self.db.sandbox_ready(claim, G1, &uid).await.expect("ready");
        self.db.begin_delivery(claim, G1).await.expect("begun");
        assert!(world.begin(id, G1, T1));
        self.db
            .delivered(claim, Delivery::Accepted)
            .await
            .expect("delivered");
    }
    async fn expire(&self) {
        let past = "UPDATE leases SET until = now() - interval '1 second', next_due_at = now() WHERE until IS NOT NULL";
        self.database.sql(past).expect("the statement is right");
    }
    async fn living(&self, id: &SessionId) -> usize {
        self.db.living_sandboxes_of(id).await.expect("read").len()
    }
    async fn end(&self, id: &SessionId) -> End {
        let row = self.db.turn(id, T1).await.expect("read").expect("a turn");
        let session = self.db.session(id).await.expect("read").expect("a session");
        let sql = |sql: String| self.database.sql(&sql).expect("the statement is right");
        let parts = sql(format!(
            "SELECT part FROM transcript_parts WHERE session_id = '{id}' ORDER BY part_index"
        ));
        let settles = sql(format!(
            "SELECT count(*) FROM changes WHERE channel = 'bex_settled' AND payload = '{id}'"
        ));
        End {
            verdict: row.verdict,
            reason: row.reason,
            phase: session.phase,
            parts: parts.lines().map(str::to_owned).collect(),
            settles: settles.trim().parse().expect("a number"),
            living: self.living(id).await,
        }
    }
}

/// A session to create.
pub fn new_session(id: &SessionId) -> NewSession {
    NewSession {
        id: id.clone(),
        workspace: "acme".parse().expect("an id"),
        kind: SessionKind::Interactive,
        workflow_id: None,
        title: None,
        repo: None,
        branch: None,
        agent: AgentSpec {
            profile: "p".into(),
            model: None,
            args: vec![],
            env: vec![],
        },
        prompt: "do it".into(),
        created_by: "somebody".into(),
        live_limit: 1000,
        idempotency: None,
    }
}

/// One call, counted from the first, has this fate; all others are well.
struct At {
    call: usize,
    fate: Fate,
    calls: AtomicUsize,
    /// What was called, in order.
    names: Mutex<Vec<&'static str>>,
}

impl At {
    fn new(call: usize, fate: Fate) -> Arc<Self> {
        Arc::new(Self {
            call,
            fate,
            calls: AtomicUsize::new(0),
            names: Mutex::default(),
        })
    }

    fn reached(&self) -> Option<&'static str> {
        self.names.lock().expect("no panic").get(self.call).copied()
    }
}

impl Fates for At {
    fn fate(&self, _: &str, _: Peer, call: &'static str) -> (Duration, Fate) {
        // polls and the sweep come as often as they like: they are no steps
        if matches!(
            call,
            "claim_leases" | "renew_lease" | "living_sandboxes" | "list" | "look"
        ) {
            return (Duration::ZERO, Fate::Well);
        }
        self.names.lock().expect("no panic").push(call);
        let fate = match self.calls.fetch_add(1, Ordering::Relaxed) {
            at if at == self.call => self.fate,
            _ => Fate::Well,
        };
        (Duration::ZERO, fate)
    }
}

/// Runs one session to its end, a Completer meeting its fate on the way. Answers which call it was; none when the end came
/// first.
async fn finalize(
    backend: &dyn Backend,
    rng: &Rng,
    call: usize,
    fate: Fate,
) -> Option<&'static str> {
    let world = Arc::new(World::default());
    let id: SessionId = rng.id("ags").parse().expect("an id");
    backend.deliver(&world, &id).await;
    let spoken: Vec<String> = (0..PARTS).map(|n| part(n, "")).collect();
    for part in &spoken {
        world.say(&id, G1, T1, part.clone());
    }
    world.end(&id, G1, T1, TurnState::Succeeded);
    let (fates, store) = (At::new(call, fate), backend.store());
    let what = format!("{fate:?} at call {call}");
    let over = async || {
        while backend.living(&id).await > 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let first = completer("a", store.clone(), &world, TIMINGS, fates.clone());
    let ended = async {
        tokio::select! {
            () = first.process.died() => {}
            () = over() => {}
        }
    };
    timeout(PATIENCE, ended).await.expect(&what);
    drop(first);
    backend.expire().await;
    let _next = completer("b", store, &world, TIMINGS, At::new(usize::MAX, Fate::Well));
    timeout(PATIENCE, over()).await.expect(&what);
    // what was late comes now, and changes nothing
    sleep(Duration::from_millis(60)).await;
    let expected = End {
        verdict: Verdict::Complete,
        reason: None,
        phase: Phase::Completed,
        parts: spoken,
        settles: 1,
        living: 0,
    };
    let met = fates.reached();
    assert_eq!(backend.end(&id).await, expected, "{what} ({met:?})");
    let removals = world.with_pod(&id, G1, |pod| pod.removals);
    assert_eq!(removals, Some(1), "{what} ({met:?})");
    met
}

/// Every fate at every call of a whole way; answers what the calls were.
async fn everywhere(backend: &dyn Backend, fates: &[Fate]) -> BTreeSet<&'static str> {
    let rng = Rng::new(1);
    let mut met = BTreeSet::new();
    for fate in fates {
        let mut call = 0;
        while let Some(name) = finalize(backend, &rng, call, *fate).await {
            met.insert(name);
            call += 1;
        }
        eprintln!("{fate:?} at each of {call} calls");
        assert!(call >= STEPS.len(), "{call} calls");
    }
    met
}

/// Steps of a whole way that must have been interrupted.
const STEPS: [&str; 13] = [
    "append",
    "begin_stopping",
    "delete",
    "last_harvest",
    "living_sandboxes_of",
    "mark_gone",
    "observe",
    "open_turn",
    "record_turn_end",
    "release_lease",
    "session",
    "settle",
    "turns_to_rejudge",
];

#[tokio::test(start_paused = true)]
async fn a_death_at_any_step_over_the_model_changes_nothing() {
    let late = Duration::from_millis(45);
    let fates = [
        Fate::DiesBefore,
        Fate::DiesAfter,
        Fate::DiesAndLate(late),
        Fate::Refused,
        Fate::AnswerLost,
        Fate::Late(late),
        Fate::Twice,
    ];
    let met = everywhere(&Arc::new(Model::new()), &fates).await;
    for step in STEPS {
        assert!(met.contains(step), "{step} was never interrupted: {met:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_at_any_step_over_postgresql_changes_nothing() {
    let late = Duration::from_millis(45);
    let fates = [Fate::DiesAfter, Fate::DiesAndLate(late)];
    let met = everywhere(&Postgres::new().await, &fates).await;
    for step in STEPS {
        assert!(met.contains(step), "{step} was never interrupted: {met:?}");
    }
}
