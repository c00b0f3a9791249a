//! A store, a listener, a target, and short words for what the tests say often.

mod browser;
mod remote;
mod speech;

use std::sync::Mutex;

use async_trait::async_trait;
use bex_proto::driver::{TurnDigest, TurnEnd, TurnState};
use bex_proto::exec::SandboxRequest;
use bex_proto::session::SessionKind;
use bex_proto::transcript::Part;
use bex_proto::{Generation, SessionId, TurnNo};
use bex_store::DbConfig;
use bex_store::dispatch::{
    BeginDelivery, BeginGeneration, Delivery, DispatchClaim, NewSandbox, Step,
};
use bex_store::sessions::{AgentSpec, BeginTurn, NewSession, NewTurn};
use bex_store::settle::{Cause, SandboxAfter, Settle, Settled};
use bex_store::transcript::{Append, Marks};
use bex_testpg::Database;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::time::Instant;

use super::super::*;
use crate::hub::source::tests::{Driver, KEYS};
use crate::sandbox::{ExecPipe, ExecStartError, Look, TargetRef};
use crate::serve::ResponseBody;

pub(super) use browser::{Stream, Ticket, read_ticket, turn_ticket};
pub(super) use remote::{RemoteTicket, remote_ticket, said, shown, timeless};
pub(super) use speech::{events, ids, of_parts, parts, speech, wire};

/// The longest a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// Targets that are seen as the test says, and that count the looks.
pub(super) struct Scripted {
    pub(super) look: Mutex<Look>,
    pub(super) looks: Mutex<u32>,
}

#[async_trait]
impl Targets for Scripted {
    async fn look(&self, _: &TargetRef) -> Look {
        *self.looks.lock().expect("no panic") += 1;
        *self.look.lock().expect("no panic")
    }

    async fn exec(&self, _: &TargetRef, _: SandboxRequest) -> Result<ExecPipe, ExecStartError> {
        Err(ExecStartError::Gone)
    }
}

pub(super) struct Rig {
    pub(super) db: Db,
    pub(super) database: Database,
    pub(super) attach: Arc<Attach>,
    pub(super) targets: Arc<Scripted>,
}

pub(super) fn keys() -> KeyRing {
    KeyRing::parse(KEYS).expect("a ring")
}

impl Rig {
    pub(super) async fn new() -> Self {
        Self::with_keys(Some(keys())).await
    }

    pub(super) async fn with_keys(attach_keys: Option<KeyRing>) -> Self {
        Self::with(|deps| deps.attach_keys = attach_keys).await
    }

    /// A listener that differs from the usual one.
    pub(super) async fn with(change: impl FnOnce(&mut AttachDeps)) -> Self {
        let key = bex_store::migrate::schema_fingerprint();
        let build = |url: String| async move {
            bex_store::migrate(&DbConfig::new(url, "test"))
                .await
                .map(|_| ())
        };
        let server = bex_testpg::server().expect("PostgreSQL");
        let database = server.database_from(&key, build).await.expect("a database");
        let config = DbConfig::new(&database.url, "test");
        let db = Db::connect(&config).expect("a pool");
        let targets = Arc::new(Scripted {
            look: Mutex::new(Look::NotYet),
            looks: Mutex::default(),
        });
        let mut deps = deps(&db, config, &targets);
        change(&mut deps);
        let attach = Attach::new(deps).expect("a configuration");
        Self {
            db,
            database,
            attach,
            targets,
        }
    }

    /// Another gateway beside this one.
    pub(super) fn another(&self) -> Arc<Attach> {
        let config = DbConfig::new(&self.database.url, "another");
        let db = Db::connect(&config).expect("a pool");
        Attach::new(deps(&db, config, &self.targets)).expect("a configuration")
    }

    pub(super) async fn create(&self) -> SessionId {
        let new = NewSession {
            id: SessionId::random(),
            workspace: "acme".parse().expect("an id"),
            kind: SessionKind::Interactive,
            workflow_id: None,
            title: None,
            repo: None,
            branch: None,
            agent: AgentSpec {
                profile: "demo".into(),
                model: None,
                args: vec![],
                env: vec![],
            },
            prompt: "prompt 1".into(),
            created_by: "somebody".into(),
            live_limit: 1000,
            idempotency: None,
        };
        self.db.create_session(&new).await.expect("created");
        new.id
    }

    pub(super) async fn claim(&self, session: &SessionId) -> DispatchClaim {
        let claims = self.db.claim_dispatches("test", 100).await.expect("claims");
        claims
            .into_iter()
            .find(|claim| claim.session == *session)
            .expect("an outbox row")
    }

    /// Makes the next sandbox.
    pub(super) async fn prepare(&self, claim: &DispatchClaim) -> TargetRef {
        let sandbox = NewSandbox {
            kind: "local",
            namespace: "ns",
            container: "driver",
            legacy: false,
            driver_kid: "a",
        };
        let begun = self.db.begin_generation(claim, &sandbox).await;
        let BeginGeneration::Begun { generation, .. } = begun.expect("begun") else {
            panic!("no generation")
        };
        let ready = self.db.sandbox_ready(claim, generation, "uid").await;
        assert_eq!(ready.expect("ready"), Step::Done);
        target(&claim.session, generation)
    }

    /// Delivers the open turn.
    pub(super) async fn hand_over(&self, claim: &DispatchClaim, to: &TargetRef) {
        let begun = self.db.begin_delivery(claim, to.generation).await;
        assert_eq!(begun.expect("delivering"), BeginDelivery::Begun);
        let delivered = self.db.delivered(claim, Delivery::Accepted).await;
        assert_eq!(delivered.expect("delivered"), Step::Done);
    }

    /// Makes the sandbox and delivers the open turn; gives who speaks it.
    pub(super) async fn deliver(&self, session: &SessionId) -> TargetRef {
        let claim = self.claim(session).await;
        let target = self.prepare(&claim).await;
        self.hand_over(&claim, &target).await;
        target
    }

    /// A session whose first turn is being spoken by generation 1.
    pub(super) async fn running(&self) -> (SessionId, TargetRef) {
        let session = self.create().await;
        let target = self.deliver(&session).await;
        (session, target)
    }

    pub(super) async fn next_turn(&self, session: &SessionId) -> TurnNo {
        let new = NewTurn {
            session: session.clone(),
            workspace: "acme".parse().expect("an id"),
            prompt: "prompt 2".into(),
            idempotency: None,
        };
        match self.db.begin_turn(&new).await.expect("begun") {
            BeginTurn::Redispatched { turn } => turn,
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn store(&self, session: &SessionId, generation: u32, parts: &[Part]) {
        let batch = Append {
            session,
            turn: parts[0].id.turn,
            generation: Generation(generation),
            parts,
            marks: Marks::Clean,
            harvest: None,
        };
        self.db.append(batch).await.expect("stored");
    }

    /// Settles a turn: as its driver declared it, or lost.
    pub(super) async fn settle(
        &self,
        session: &SessionId,
        turn: u32,
        generation: u32,
        said: Option<&[String]>,
    ) {
        let end = said.map(|said| {
            let mut digest = TurnDigest::default();
            said.iter().for_each(|part| digest.add(part.as_bytes()));
            TurnEnd {
                turn: TurnNo(turn),
                parts: said.len() as u32,
                bytes: said.iter().map(|part| part.len() as u64).sum(),
                sha256: digest.hex(),
                state: TurnState::Succeeded,
                dropped: None,
            }
        });
        self.db.make_due(session).await.expect("due");
        let leases = self
            .db
            .claim_leases("test", 1000, limits::IDLE_GRACE)
            .await
            .expect("leases");
        let lease = leases
            .into_iter()
            .find(|lease| lease.session == *session)
            .expect("a lease");
        if let Some(end) = &end {
            self.db
                .record_turn_end(session, Generation(generation), end)
                .await
                .expect("recorded");
        }
        let settle = Settle {
            turn: TurnNo(turn),
            generation: Generation(generation),
            cause: if end.is_some() {
                Cause::DriverEnded
            } else {
                Cause::Lost
            },
            legacy: None,
            sandbox: SandboxAfter::Stopping,
            failure: None,
        };
        let settled = self.db.settle(&lease, &settle).await.expect("settled");
        assert!(matches!(settled, Settled::Now { .. }), "{settled:?}");
        let life = Generation(generation);
        assert!(self.db.mark_gone(&lease, life).await.expect("gone"));
        let round = bex_store::leases::Round::Done;
        self.db
            .release_lease(&lease, Duration::ZERO, round)
            .await
            .expect("released");
    }

    /// From now on the sandbox is this driver's.
    pub(super) fn run(&self, driver: &Driver) {
        *self.targets.look.lock().expect("no panic") = Look::Running {
            address: driver.address,
            terminating: false,
        };
    }

    /// Waits until the store has this many parts of the session.
    pub(super) async fn until_stored(&self, session: &SessionId, parts: u64) {
        self.until(|rig| async move {
            rig.db
                .transcript_head(session)
                .await
                .expect("a head")
                .expect("a session")
                .parts
                >= parts
        })
        .await;
    }

    /// Waits for a level.
    pub(super) async fn until<'a, F: Future<Output = bool>>(
        &'a self,
        reached: impl Fn(&'a Self) -> F,
    ) {
        let deadline = Instant::now() + PATIENCE;
        while !reached(self).await {
            assert!(Instant::now() < deadline, "never reached");
            // the step of a bounded poll, not a synchronisation
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(super) fn sql(&self, sql: &str) -> String {
        self.database
            .sql(sql)
            .expect("a statement")
            .trim()
            .to_owned()
    }

    pub(super) async fn send(&self, request: Request<Full<Bytes>>) -> Response<ResponseBody> {
        Arc::clone(&self.attach)
            .handle(request, "127.0.0.1:5".parse().expect("an address"))
            .await
    }

    pub(super) async fn read(&self, session: &SessionId) -> Stream {
        Stream::of(self.send(read_ticket(session).request()).await)
    }
}

fn deps(db: &Db, config: DbConfig, targets: &Arc<Scripted>) -> AttachDeps {
    AttachDeps {
        db: db.clone(),
        notices: NoticeSource::Listen(config),
        targets: Arc::clone(targets) as Arc<dyn Targets>,
        driver_keys: Arc::new(keys()),
        attach_keys: Some(keys()),
        cors_origins: vec!["https://app.example".into()],
        trusted_proxies: vec!["127.0.0.0/8".parse().expect("a range")],
        tee: TeeMode::On,
        instance: "test".into(),
        source_retry: limits::SOURCE_RETRY,
        metrics: AttachMetrics::default(),
    }
}

pub(super) fn target(session: &SessionId, generation: Generation) -> TargetRef {
    TargetRef {
        session: session.clone(),
        generation,
        namespace: "ns".into(),
        pod: format!("{session}-g{generation}"),
        pod_uid: "uid".into(),
        container: "driver".into(),
        legacy: false,
        driver_kid: "a".into(),
    }
}
