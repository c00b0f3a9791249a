//! A database of one's own, and short words for what tests say often.

use std::time::Duration;

use bex_proto::driver::{TurnDigest, TurnEnd, TurnState};
use bex_proto::ids::PartId;
use bex_proto::session::SessionKind;
use bex_proto::transcript::{Part, inspect};
use bex_proto::{Generation, SessionId, TurnNo, WorkspaceId, limits};
use bex_store::dispatch::{
    BeginDelivery, BeginGeneration, Delivery, DispatchClaim, NewSandbox, Step,
};
use bex_store::leases::Lease;
use bex_store::retention::Removal;
use bex_store::sessions::{AgentSpec, Created, NewSession};
use bex_store::settle::{Cause, SandboxAfter, Settle, Settled};
use bex_store::transcript::{Append, AppendOutcome, Appended, HarvestStep, Marks};
use bex_store::{Db, DbConfig};
use bex_testpg::Database;
use bytes::Bytes;

pub const G1: Generation = Generation(1);
pub const T1: TurnNo = TurnNo(1);

pub struct Store {
    pub db: Db,
    pub database: Database,
}

impl Store {
    pub async fn new() -> Self {
        let key = bex_store::migrate::schema_fingerprint();
        let build = |url: String| async move {
            bex_store::migrate(&DbConfig::new(url, "test"))
                .await
                .map(|_| ())
        };
        let database = bex_testpg::server()
            .unwrap()
            .database_from(&key, build)
            .await
            .unwrap();
        let db = Db::connect(&DbConfig::new(database.pooled_url(), "test")).unwrap();
        Self { db, database }
    }

    /// One value, read as the superuser.
    pub fn sql(&self, sql: &str) -> String {
        self.database.sql(sql).unwrap().trim().to_owned()
    }

    pub async fn create(&self) -> SessionId {
        let new = new_session();
        assert_eq!(self.db.create_session(&new).await.unwrap(), Created::New);
        new.id
    }

    /// A session whose first turn is being spoken by generation 1.
    pub async fn running(&self) -> SessionId {
        let session = self.create().await;
        let claim = self.claim_dispatch(&session).await;
        self.deliver(&claim).await;
        session
    }

    pub async fn claim_dispatch(&self, session: &SessionId) -> DispatchClaim {
        let claims = self.db.claim_dispatches("test", 100).await.unwrap();
        claims
            .into_iter()
            .find(|claim| claim.session == *session)
            .unwrap()
    }

    /// Makes the sandbox and delivers the turn.
    pub async fn deliver(&self, claim: &DispatchClaim) -> Generation {
        let begun = self
            .db
            .begin_generation(claim, &new_sandbox())
            .await
            .unwrap();
        let BeginGeneration::Begun { generation, .. } = begun else {
            panic!("{begun:?}")
        };
        assert_eq!(
            self.db
                .sandbox_ready(claim, generation, "uid")
                .await
                .unwrap(),
            Step::Done
        );
        assert_eq!(
            self.db.begin_delivery(claim, generation).await.unwrap(),
            BeginDelivery::Begun
        );
        assert_eq!(
            self.db.delivered(claim, Delivery::Accepted).await.unwrap(),
            Step::Done
        );
        generation
    }

    pub async fn append(&self, session: &SessionId, parts: &[Part]) -> Appended {
        stored(self.append_at(session, T1, G1, parts, None).await)
    }

    pub async fn append_at(
        &self,
        session: &SessionId,
        turn: TurnNo,
        generation: Generation,
        parts: &[Part],
        harvest: Option<HarvestStep<'_>>,
    ) -> AppendOutcome {
        let batch = Append {
            session,
            turn,
            generation,
            parts,
            marks: Marks::Clean,
            harvest,
        };
        self.db.append(batch).await.unwrap()
    }

    pub async fn lease(&self, session: &SessionId) -> Lease {
        self.db.make_due(session).await.unwrap();
        let leases = self
            .db
            .claim_leases("test", 1000, limits::IDLE_GRACE)
            .await
            .unwrap();
        leases
            .into_iter()
            .find(|lease| lease.session == *session)
            .unwrap()
    }

    /// A sandbox that is to stop is gone then.
    pub async fn settle(
        &self,
        session: &SessionId,
        end: Option<&TurnEnd>,
        sandbox: SandboxAfter,
    ) -> Settled {
        let lease = self.lease(session).await;
        let cause = if end.is_some() {
            Cause::DriverEnded
        } else {
            Cause::Lost
        };
        if let Some(end) = end {
            self.db.record_turn_end(session, G1, end).await.unwrap();
        }
        let settled = self
            .db
            .settle(&lease, &settle(T1, cause, sandbox))
            .await
            .unwrap();
        if sandbox == SandboxAfter::Stopping {
            // as after its teardown
            assert!(self.db.mark_gone(&lease, G1).await.unwrap());
        }
        assert!(
            self.db
                .release_lease(&lease, Duration::ZERO, bex_store::leases::Round::Done)
                .await
                .unwrap()
        );
        settled
    }

    /// `index:seq` of every stored part of a turn, in part-id order.
    pub fn seqs(&self, session: &SessionId) -> String {
        self.sql(&format!(
            "SELECT string_agg(part_index || ':' || seq, ' ' ORDER BY turn, part_index) FROM transcript_parts
              WHERE session_id = '{session}'"
        ))
    }
}

/// By somebody who may.
pub fn removal() -> Removal<'static> {
    Removal {
        subject: "admin",
        action: "session.delete",
        quiet_days: None,
    }
}

pub fn settle(turn: TurnNo, cause: Cause, sandbox: SandboxAfter) -> Settle {
    Settle {
        turn,
        generation: G1,
        cause,
        legacy: None,
        sandbox,
        failure: None,
    }
}

pub fn stored(outcome: AppendOutcome) -> Appended {
    match outcome {
        AppendOutcome::Stored(appended) => appended,
        other => panic!("{other:?}"),
    }
}

pub fn workspace() -> WorkspaceId {
    "acme".parse().unwrap()
}

pub fn new_session() -> NewSession {
    NewSession {
        id: SessionId::random(),
        workspace: workspace(),
        kind: SessionKind::Interactive,
        workflow_id: None,
        title: Some("a title".into()),
        repo: None,
        branch: None,
        agent: AgentSpec {
            profile: "demo".into(),
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

pub fn new_sandbox() -> NewSandbox<'static> {
    NewSandbox {
        kind: "local",
        namespace: "ns",
        container: "driver",
        legacy: false,
        driver_kid: "k1",
    }
}

pub fn text_of(index: u32) -> String {
    format!(r#"{{"type":"text-delta","id":"1","delta":"part {index}"}}"#)
}

pub fn part(turn: u32, index: u32, text: &str) -> Part {
    let head = inspect(text.as_bytes()).unwrap();
    Part {
        id: PartId::new(turn, index),
        head,
        bytes: Bytes::from(text.to_owned()),
        spoken_at: None,
    }
}

/// Parts of turn 1 with the text that belongs to each index.
pub fn parts(indexes: impl IntoIterator<Item = u32>) -> Vec<Part> {
    indexes
        .into_iter()
        .map(|index| part(1, index, &text_of(index)))
        .collect()
}

/// The turn-end of a driver that said `count` parts of [`text_of`].
pub fn end_of(count: u32) -> TurnEnd {
    let mut digest = TurnDigest::default();
    let mut bytes = 0;
    for index in 0..count {
        digest.add(text_of(index).as_bytes());
        bytes += text_of(index).len() as u64;
    }
    TurnEnd {
        turn: T1,
        parts: count,
        bytes,
        sha256: digest.hex(),
        state: TurnState::Succeeded,
        dropped: None,
    }
}

/// A plain connection, for what the store's own interface does not do.
pub async fn tokio_postgres_client(store: &Store) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(&store.database.url, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    client
}

/// Waits for a level, 20 s at most.
pub async fn eventually(mut reached: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !reached() {
        assert!(tokio::time::Instant::now() < deadline, "never reached");
        pause().await;
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the step of a bounded poll, not a synchronisation"
)]
pub async fn pause() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}
