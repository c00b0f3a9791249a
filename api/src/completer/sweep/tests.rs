use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bex_proto::TurnNo;
use bex_proto::session::SessionKind;
use bex_store::dispatch::{BeginGeneration, NewSandbox};
use bex_store::sessions::{AgentSpec, NewSession};
use bex_store::{Db, DbConfig};

use super::*;
use crate::config::Timings;
use crate::exec_client::{ExecFailure, ExecTarget, ReadAnswer, Reading, Room, SandboxRpc};
use crate::notices::Notices;
use crate::sandbox::{
    CreateError, DeleteError, Deleted, Lifecycle, ListError, Made, SandboxName, SandboxPlan,
};

#[derive(Default)]
struct Listed {
    there: Mutex<Vec<SandboxName>>,
    deleted: Mutex<Vec<String>>,
}

#[async_trait]
impl Lifecycle for Listed {
    fn kind(&self) -> &'static str {
        "local"
    }
    async fn create(&self, _: &SandboxPlan) -> Result<Made, CreateError> {
        Err(CreateError::Impossible("not in this test"))
    }
    async fn look(&self, _: &SandboxName) -> Look {
        Look::Unknown
    }
    async fn delete(&self, sandbox: &SandboxName) -> Result<Deleted, DeleteError> {
        self.deleted.lock().unwrap().push(sandbox.pod.clone());
        self.there.lock().unwrap().retain(|s| s.pod != sandbox.pod);
        Ok(Deleted)
    }
    async fn list(&self) -> Result<Vec<SandboxName>, ListError> {
        Ok(self.there.lock().unwrap().clone())
    }
}

struct Silent;

#[async_trait]
impl SandboxRpc for Silent {
    async fn read(&self, _: &ExecTarget, _: Reading, _: TurnNo, _: u64, _: Room) -> ReadAnswer {
        ReadAnswer::failed(ExecFailure::Unreachable)
    }
    async fn deliver_turn(
        &self,
        _: &ExecTarget,
        _: TurnNo,
        _: Option<String>,
    ) -> Result<(), ExecFailure> {
        Err(ExecFailure::Unreachable)
    }
    async fn stop(&self, _: &ExecTarget, _: TurnNo) -> Result<(), ExecFailure> {
        Err(ExecFailure::Unreachable)
    }
}

fn sandbox(session: &SessionId, generation: u32) -> SandboxName {
    SandboxName {
        session: session.clone(),
        generation: Generation(generation),
        namespace: "ns".into(),
        pod: format!("{session}-g{generation}"),
        pod_uid: None,
    }
}

#[tokio::test]
async fn only_what_no_living_row_names_is_removed_and_only_when_seen_twice() {
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
    let db = Db::connect(&DbConfig::new(&database.url, "test")).unwrap();
    let known = SessionId::random();
    db.create_session(&NewSession {
        id: known.clone(),
        workspace: "acme".parse().unwrap(),
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
        prompt: "p".into(),
        created_by: "s".into(),
        live_limit: 9,
        idempotency: None,
    })
    .await
    .unwrap();
    let claim = db.claim_dispatches("t", 9).await.unwrap().remove(0);
    let new = NewSandbox {
        kind: "local",
        namespace: "ns",
        container: "c",
        legacy: false,
        driver_kid: "k",
    };
    assert!(matches!(
        db.begin_generation(&claim, &new).await.unwrap(),
        BeginGeneration::Begun { .. }
    ));

    let lifecycle = Arc::new(Listed::default());
    let (stray, ours, later) = (SessionId::random(), sandbox(&known, 1), sandbox(&known, 2));
    *lifecycle.there.lock().unwrap() = vec![sandbox(&stray, 1), ours.clone(), later.clone()];
    let second = std::time::Duration::from_secs(1);
    let deps = CompleterDeps {
        db: Arc::new(db),
        owner: "t".into(),
        rpc: Arc::new(Silent),
        lifecycle: lifecycle.clone(),
        timings: Timings {
            completer_tick: second,
            idle_grace: second,
            turn_deadline: second,
            status_unreadable: second,
        },
        notices: Notices::default(),
        metrics: crate::metrics::Metrics::default().completer,
    };
    let mut sweep = Sweep::default();
    sweep.orphans(&deps).await.unwrap();
    assert!(lifecycle.deleted.lock().unwrap().is_empty(), "seen once");
    sweep.orphans(&deps).await.unwrap();
    assert_eq!(
        *lifecycle.deleted.lock().unwrap(),
        [sandbox(&stray, 1).pod, later.pod]
    );
    assert_eq!(*lifecycle.there.lock().unwrap(), [ours]);
}
