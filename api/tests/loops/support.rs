//! A store, a world, and both loops over them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bex_api::completer::{Completer, CompleterDeps};
use bex_api::config::Timings;
use bex_api::dispatch::{Dispatcher, DispatcherDeps, Plans};
use bex_api::metrics::Metrics;
use bex_api::notices::Notices;
use bex_api::profiles::{Deployment, Profiles};
use bex_proto::driver::{
    Dropped, TurnDigest, TurnEnd, TurnState, log_record, turn_end_record, write_part_record,
};
use bex_proto::session::{Phase, SessionKind, TruncationReason, Verdict};
use bex_proto::ticket::KeyRing;
use bex_proto::{Generation, PartIndex, SessionId, TurnNo};
use bex_store::listen::{Listener, Source};
use bex_store::sessions::{AgentSpec, Created, NewSession};
use bex_store::turns::TurnRow;
use bex_store::{Db, DbConfig};
use bex_testpg::Database;
use jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::world::{Sandbox, World, eventually};

pub const T1: TurnNo = TurnNo(1);
const PROFILES: &str = r#"{"profiles":{"new":{"agent":{"kind":"acp","argv":["/bin/agent"]}},
    "old":{"agent":{"kind":"acp","argv":["/bin/agent"]},"legacy":true}}}"#;

pub struct Stack {
    pub db: Db,
    pub database: Database,
    pub world: Arc<World>,
    pub timings: Timings,
    /// What both loops count.
    pub metrics: Arc<Metrics>,
    notices: Notices,
    pump: JoinHandle<()>,
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

/// One running loop; dropped, it dies where it stands.
pub struct Loops {
    task: JoinHandle<()>,
    cancel: CancellationToken,
}

impl Loops {
    /// Lets it end what it began.
    pub async fn stop(mut self) {
        self.cancel.cancel();
        (&mut self.task).await.expect("a loop never panics");
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stack {
    pub async fn new() -> Self {
        let key = bex_store::migrate::schema_fingerprint();
        let build = |url: String| async move {
            bex_store::migrate(&DbConfig::new(url, "test"))
                .await
                .map(|_| ())
        };
        let database = bex_testpg::server()
            .expect("a server")
            .database_from(&key, build)
            .await
            .expect("a database");
        let db = Db::connect(&DbConfig::new(&database.url, "test")).expect("a pool");
        let timings = Timings {
            completer_tick: Duration::from_millis(50),
            idle_grace: Duration::from_secs(3600),
            turn_deadline: Duration::from_secs(3600),
            status_unreadable: Duration::from_millis(600),
        };
        let notices = Notices::default();
        let config = DbConfig::new(&database.url, "test");
        let listener = Listener::start(Source::Listen(config)).expect("a listener");
        let pump = tokio::spawn(notices.clone().pump(listener, CancellationToken::new()));
        Self {
            db,
            database,
            world: Arc::default(),
            timings,
            metrics: Arc::default(),
            notices,
            pump,
        }
    }

    pub fn dispatcher(&self) -> Loops {
        self.dispatcher_with(&format!("k:{}", "ab".repeat(32)))
    }

    /// With this ring of driver keys.
    pub fn dispatcher_with(&self, ring: &str) -> Loops {
        let profiles = Profiles::parse(PROFILES, Deployment::Local, None).expect("profiles");
        let dispatcher = Dispatcher::new(DispatcherDeps {
            db: self.db.clone(),
            owner: "d".into(),
            rpc: self.world.clone(),
            lifecycle: self.world.clone(),
            plans: Plans::new(profiles, BTreeMap::new()),
            driver_keys: KeyRing::parse(ring).expect("a ring"),
            timings: self.timings,
            notices: self.notices.clone(),
            metrics: self.metrics.dispatch.clone(),
        });
        let cancel = CancellationToken::new();
        let task = tokio::spawn(Arc::new(dispatcher).run(cancel.clone()));
        Loops { task, cancel }
    }

    pub fn completer(&self, owner: &str) -> Loops {
        let completer = Completer::new(CompleterDeps {
            db: Arc::new(self.db.clone()),
            owner: owner.into(),
            rpc: self.world.clone(),
            lifecycle: self.world.clone(),
            timings: self.timings,
            notices: self.notices.clone(),
            metrics: self.metrics.completer.clone(),
        });
        let cancel = CancellationToken::new();
        let task = tokio::spawn(Arc::new(completer).run(cancel.clone()));
        Loops { task, cancel }
    }

    /// A session whose first turn was delivered to generation 1.
    pub async fn delivered(&self, profile: &str) -> SessionId {
        let session = self.create(profile).await;
        let dispatcher = self.dispatcher();
        self.until_delivered(&session, T1).await;
        dispatcher.stop().await;
        session
    }

    pub async fn create(&self, profile: &str) -> SessionId {
        let agent = AgentSpec {
            profile: profile.into(),
            model: None,
            args: vec![],
            env: vec![],
        };
        let new = NewSession {
            id: SessionId::random(),
            workspace: "acme".parse().expect("an id"),
            kind: SessionKind::Interactive,
            workflow_id: None,
            title: None,
            repo: None,
            branch: None,
            agent,
            prompt: "do it".into(),
            created_by: "somebody".into(),
            live_limit: 1000,
            idempotency: None,
        };
        assert_eq!(
            self.db.create_session(&new).await.expect("stored"),
            Created::New
        );
        new.id
    }

    pub async fn until_delivered(&self, session: &SessionId, turn: TurnNo) {
        eventually("the turn is delivered", async || {
            self.turn(session, turn).await.delivered_at.is_some()
        })
        .await;
    }

    pub async fn until_settled(&self, session: &SessionId, turn: TurnNo) -> TurnRow {
        eventually("the turn is settled", async || {
            self.turn(session, turn).await.settled_at.is_some()
        })
        .await;
        self.turn(session, turn).await
    }

    pub async fn turn(&self, session: &SessionId, turn: TurnNo) -> TurnRow {
        self.db
            .turn(session, turn)
            .await
            .expect("read")
            .expect("a turn")
    }

    pub async fn phase(&self, session: &SessionId) -> Phase {
        self.db
            .session(session)
            .await
            .expect("read")
            .expect("a session")
            .phase
    }

    /// Its living sandboxes' states.
    pub fn states(&self, session: &SessionId) -> String {
        self.sql(&format!(
            "SELECT coalesce(string_agg(generation || ':' || state, ' ' ORDER BY generation), '')
               FROM sandboxes WHERE session_id = '{session}'"
        ))
    }

    /// How many of its sandboxes are not gone.
    pub fn living(&self, session: &SessionId) -> String {
        self.sql(&format!(
            "SELECT count(*) FROM sandboxes WHERE session_id = '{session}' AND state <> 'gone'"
        ))
    }

    pub fn sql(&self, sql: &str) -> String {
        self.database
            .sql(sql)
            .expect("the statement is right")
            .trim()
            .to_owned()
    }

    /// Stored parts in part-id order, one a line.
    pub fn parts(&self, session: &SessionId) -> Vec<String> {
        self.sql(&format!(
            "SELECT part FROM transcript_parts WHERE session_id = '{session}' ORDER BY turn, part_index"
        ))
        .lines()
        .map(str::to_owned)
        .collect()
    }

    /// Settle notices so far.
    pub fn settles(&self, session: &SessionId) -> String {
        self.sql(&format!(
            "SELECT count(*) FROM changes WHERE channel = 'bex_settled' AND payload = '{session}'"
        ))
    }

    /// As if a minute had passed since a process died.
    pub fn expire_leases(&self) {
        self.sql("UPDATE leases SET until = now() - interval '1 second', next_due_at = now() WHERE until IS NOT NULL");
        self.sql(
            "UPDATE dispatches SET until = now() - interval '1 second' WHERE until IS NOT NULL",
        );
    }
}

pub fn outcome(turn: &TurnRow) -> (Verdict, Option<TruncationReason>) {
    (turn.verdict, turn.reason)
}

pub fn part(n: usize) -> String {
    format!(r#"{{"type":"text-delta","id":"t","delta":"word {n}"}}"#)
}

pub fn parts(n: usize) -> Vec<String> {
    (0..n).map(part).collect()
}

/// A turn's log under construction, as a driver writes it.
pub struct Speaker {
    pub log: Vec<u8>,
    turn: TurnNo,
    digest: TurnDigest,
    next: u32,
    bytes: u64,
}

impl Speaker {
    pub fn new(generation: u32, turn: TurnNo) -> Self {
        let log = log_record(Generation(generation), &format!("log-{turn}"), turn).into_bytes();
        Self {
            log,
            turn,
            digest: TurnDigest::default(),
            next: 0,
            bytes: 0,
        }
    }

    pub fn say(&mut self, part: &[u8]) {
        write_part_record(
            &mut self.log,
            Timestamp::UNIX_EPOCH,
            self.turn,
            PartIndex(self.next),
            part,
        );
        self.count(part);
    }

    /// Spoken, but not in the log.
    pub fn drop_part(&mut self, part: &[u8]) -> Dropped {
        let index = PartIndex(self.next);
        self.log
            .extend(bex_proto::driver::dropped_record(self.turn, index).into_bytes());
        self.count(part);
        Dropped {
            first: index,
            last: index,
            count: 1,
            bytes: part.len() as u64,
        }
    }

    pub fn count(&mut self, part: &[u8]) {
        self.digest.add(part);
        self.next += 1;
        self.bytes += part.len() as u64;
    }

    pub fn end(&mut self, state: TurnState, dropped: Option<Dropped>) {
        let end = TurnEnd {
            turn: self.turn,
            parts: self.next,
            bytes: self.bytes,
            sha256: self.digest.hex(),
            state,
            dropped,
        };
        self.log
            .extend(turn_end_record(Timestamp::UNIX_EPOCH, &end).into_bytes());
    }
}

pub fn status(state: &str, generation: u32, turn: TurnNo) -> Option<String> {
    Some(format!(
        r#"{{"state":"{state}","generation":{generation},"turn":{turn}}}"#
    ))
}

/// Says `n` parts and ends well.
pub fn speaks(n: usize) -> impl Fn(&mut Sandbox, TurnNo) + Send + 'static {
    move |sandbox, turn| {
        let mut speaker = Speaker::new(sandbox.generation, turn);
        for part in parts(n) {
            speaker.say(part.as_bytes());
        }
        speaker.end(TurnState::Succeeded, None);
        sandbox.logs.insert(turn, speaker.log);
        sandbox.status = status("idle", sandbox.generation, turn);
    }
}

/// Has said `n` parts and goes on.
pub fn keeps_speaking(n: usize) -> impl Fn(&mut Sandbox, TurnNo) + Send + 'static {
    move |sandbox, turn| {
        let mut speaker = Speaker::new(sandbox.generation, turn);
        for part in parts(n) {
            speaker.say(part.as_bytes());
        }
        sandbox.logs.insert(turn, speaker.log);
        sandbox.status = status("running", sandbox.generation, turn);
    }
}

/// Ends a turn that [`keeps_speaking`] began, as a driver that is asked to stop does.
pub fn stops(n: usize) -> impl Fn(&mut Sandbox, TurnNo) + Send + 'static {
    move |sandbox, turn| {
        let mut speaker = Speaker::new(sandbox.generation, turn);
        for part in parts(n) {
            speaker.say(part.as_bytes());
        }
        speaker.end(TurnState::Stopped, None);
        sandbox.logs.insert(turn, speaker.log);
        sandbox.status = status("idle", sandbox.generation, turn);
    }
}
