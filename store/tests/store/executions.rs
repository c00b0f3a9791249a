//! Recorders that repeat themselves, overtake themselves and run side by side: what is stored is what they said, once.

use std::collections::BTreeSet;

use bex_proto::execution::{ConfigKind, ExecutionStatus, NodeStatus};
use bex_proto::{ExecutionId, WorkspaceId};
use bex_store::executions::{
    Batch, ConfigKey, ExecutionFacts, Finding, FindingsOf, NodeFacts, NodeRecorded, RecordCursor,
    Recorded, UsageEntry, VersionRecorded,
};
use bex_store::retention::Removal;
use jiff::Timestamp;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio::task::JoinSet;

use crate::support::*;

const SUBJECT: &str = "svc:engine";

fn facts(status: ExecutionStatus) -> ExecutionFacts {
    ExecutionFacts {
        workflow_id: None,
        workflow_version: None,
        spec_id: None,
        spec_version: None,
        model_scope: None,
        model_version: None,
        governance_mode: None,
        status,
        error: None,
        started_at: None,
        completed_at: None,
        usage_totals: None,
    }
}

fn node(ordinal: u32) -> NodeFacts {
    NodeFacts {
        ordinal,
        agent_id: None,
        agent_version: None,
        inputs: None,
        outputs: None,
        error: None,
        status: None,
        retries: 0,
        usage: None,
        started_at: None,
        completed_at: None,
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn finding(id: &str, execution: Option<&ExecutionId>, content: &str) -> Finding {
    Finding {
        id: id.to_owned(),
        workflow_id: None,
        execution: execution.cloned(),
        node_id: None,
        run: None,
        decision: "allow".into(),
        body: "{}".into(),
        at: at(0),
        sha256: content.to_owned(),
    }
}

fn entry(id: &str, execution: &ExecutionId, tokens: u64) -> UsageEntry {
    UsageEntry {
        id: id.to_owned(),
        execution: Some(execution.clone()),
        session: None,
        node_id: None,
        run: None,
        input_tokens: tokens,
        output_tokens: 0,
        total_tokens: tokens,
        calls: 1,
        cost: Some(("0.5".into(), "EUR".into())),
        at: at(0),
        sha256: format!("of {tokens}"),
    }
}

impl Store {
    async fn record(&self, id: &ExecutionId, facts: &ExecutionFacts) -> Recorded {
        self.db
            .record_execution(&workspace(), id, facts, &[], SUBJECT)
            .await
            .unwrap()
    }
}

/// Sixteen writers, two of each outcome: one creates it, one outcome is there, and whoever said another one was told.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_of_one_execution_agree_on_one_creation_and_one_end() {
    let store = Store::new().await;
    let outcomes = [
        ExecutionStatus::Running,
        ExecutionStatus::Completed,
        ExecutionStatus::Failed,
        ExecutionStatus::Canceled,
    ];
    for _ in 0..20 {
        let id = ExecutionId::random();
        let mut writers = JoinSet::new();
        for n in 0..16 {
            let (db, id) = (store.db.clone(), id.clone());
            let mut said = facts(outcomes[n % 4]);
            // a fact that all agree on, and one that only some know
            said.workflow_id = Some("w".into());
            said.started_at = (n % 3 == 0).then(|| at(1));
            writers.spawn(async move {
                let recorded = db
                    .record_execution(&workspace(), &id, &said, &[], SUBJECT)
                    .await
                    .unwrap();
                (said.status, recorded)
            });
        }
        let (mut created, mut refused, mut accepted) = (0, BTreeSet::new(), BTreeSet::new());
        while let Some(done) = writers.join_next().await {
            let (status, recorded) = done.unwrap();
            match recorded {
                Recorded::New(_) => created += 1,
                Recorded::Known(_) => {}
                Recorded::Conflict(field) => {
                    assert_eq!(field, "status");
                    refused.insert(status);
                    continue;
                }
                other => panic!("{other:?}"),
            }
            if status.is_terminal() {
                accepted.insert(status);
            }
        }
        assert_eq!((created, accepted.len(), refused.len()), (1, 1, 2));
        let row = store
            .db
            .execution(&workspace(), &id)
            .await
            .unwrap()
            .unwrap();
        assert!(accepted.contains(&row.facts.status));
        assert_eq!(row.facts.started_at, Some(at(1)));
        // created, ended, and the one fact that some knew: at most so many changes, however many writers
        assert!((1..=3).contains(&row.revision), "{}", row.revision);
    }
}

/// Batches that overlap in every order: no deadlock, each entry once, every writer's sum is right.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn overlapping_batches_record_each_entry_once() {
    let store = Store::new().await;
    let id = ExecutionId::random();
    store.record(&id, &facts(ExecutionStatus::Running)).await;
    let mut writers = JoinSet::new();
    for n in 0..12usize {
        let (db, id) = (store.db.clone(), id.clone());
        writers.spawn(async move {
            let mut numbers: Vec<usize> = (n * 20..n * 20 + 200).collect();
            if n % 2 == 0 {
                numbers.reverse();
            }
            let findings: Vec<Finding> = numbers
                .iter()
                .map(|n| finding(&format!("f{n}"), Some(&id), "same"))
                .collect();
            let entries: Vec<UsageEntry> = numbers
                .iter()
                .map(|n| entry(&format!("e{n}"), &id, *n as u64))
                .collect();
            let of_findings = db.record_findings(&workspace(), &findings, SUBJECT).await;
            let of_usage = db.record_usage(&workspace(), &entries, SUBJECT).await;
            (of_findings.unwrap(), of_usage.unwrap())
        });
    }
    let mut new = [0; 2];
    while let Some(done) = writers.join_next().await {
        let (findings, usage) = done.unwrap();
        for (n, batch) in [findings, usage].into_iter().enumerate() {
            let Batch::Done {
                recorded,
                duplicates,
            } = batch
            else {
                panic!("{batch:?}");
            };
            assert_eq!(recorded + duplicates, 200);
            new[n] += recorded;
        }
    }
    assert_eq!(new, [420, 420]);
    let totals = store.db.usage_totals(&workspace(), &id).await.unwrap();
    assert_eq!(
        (totals.entries, totals.input_tokens, totals.calls),
        (420, (0..420).sum(), 420)
    );
}

/// Nodes of one execution side by side: its count is right.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_are_counted_once_each() {
    let store = Store::new().await;
    let id = ExecutionId::random();
    store.record(&id, &facts(ExecutionStatus::Running)).await;
    let mut writers = JoinSet::new();
    for n in 0..40u32 {
        let (db, id) = (store.db.clone(), id.clone());
        writers.spawn(async move {
            let recorded = db
                .record_node(&workspace(), &id, &format!("n{}", n % 10), &node(n % 10))
                .await;
            matches!(recorded.unwrap(), NodeRecorded::New(_))
        });
    }
    let mut new = 0;
    while let Some(done) = writers.join_next().await {
        new += u32::from(done.unwrap());
    }
    let row = store
        .db
        .execution(&workspace(), &id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((new, row.nodes), (10, 10));
    assert_eq!(store.sql("SELECT count(*) FROM execution_nodes"), "10");
}

/// Two bodies for one version at once: one is it, for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_version_has_one_body_whoever_was_first() {
    let store = Store::new().await;
    let key = ConfigKey {
        kind: ConfigKind::Workflow,
        id: "w".into(),
    };
    for n in 0..20 {
        let version = n.to_string();
        let record = async |body: &str| {
            store
                .db
                .record_version(&workspace(), &key, &version, (body, body), SUBJECT)
                .await
                .unwrap()
        };
        let (a, b) = tokio::join!(record("{}"), record("{ }"));
        let won = [&a, &b].map(|recorded| matches!(recorded, VersionRecorded::New(_)));
        assert_ne!(won[0], won[1]);
        assert!([a, b].contains(&VersionRecorded::Conflict));
        let body = if won[0] { "{}" } else { "{ }" };
        let row = store.db.config_version(&workspace(), &key, &version).await;
        assert_eq!(row.unwrap().unwrap().body.as_deref(), Some(body));
    }
}

/// What a recorder may say of an execution, of few values, so that sayings meet.
fn saying() -> impl Strategy<Value = ExecutionFacts> {
    let word = |values: &'static [&'static str]| {
        proptest::option::of(proptest::sample::select(values)).prop_map(|w| w.map(str::to_owned))
    };
    let status = proptest::sample::select(ExecutionStatus::ALL);
    (status, word(&["w", "v"]), word(&["e"]), word(&["{}", "[]"])).prop_map(
        |(status, workflow_id, error, usage_totals)| ExecutionFacts {
            workflow_id,
            error,
            usage_totals,
            ..facts(status)
        },
    )
}

/// The same as plain rules: what stands after a saying, or why it is refused.
fn told(known: Option<&ExecutionFacts>, said: &ExecutionFacts) -> Result<ExecutionFacts, ()> {
    let Some(known) = known else {
        return Ok(said.clone());
    };
    fn fact(known: &Option<String>, said: &Option<String>) -> Result<Option<String>, ()> {
        match (known, said) {
            (Some(known), Some(said)) if known != said => Err(()),
            (known, said) => Ok(known.clone().or_else(|| said.clone())),
        }
    }
    let status = match (known.status, said.status) {
        (ExecutionStatus::Running, said) => said,
        (known, ExecutionStatus::Running) => known,
        (known, said) if known == said => known,
        _ => return Err(()),
    };
    Ok(ExecutionFacts {
        workflow_id: fact(&known.workflow_id, &said.workflow_id)?,
        error: fact(&known.error, &said.error)?,
        usage_totals: fact(&known.usage_totals, &said.usage_totals)?,
        ..facts(status)
    })
}

#[test]
fn any_sequence_of_sayings_leaves_what_the_rules_say() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let store = runtime.block_on(Store::new());
    let mut runner = TestRunner::new(Config::with_cases(100));
    let sayings = proptest::collection::vec(saying(), 1..8);
    runner
        .run(&sayings, |sayings| {
            let id = ExecutionId::random();
            let mut known: Option<ExecutionFacts> = None;
            let mut revision = 0;
            for said in &sayings {
                let recorded = runtime.block_on(store.record(&id, said));
                let expected = told(known.as_ref(), said);
                let row = match (recorded, &expected) {
                    (Recorded::New(row), Ok(_)) if known.is_none() => row,
                    (Recorded::Known(row), Ok(_)) if known.is_some() => row,
                    (Recorded::Conflict(_), Err(())) => continue,
                    (recorded, _) => {
                        return Err(TestCaseError::fail(format!(
                            "{known:?} {said:?}: {recorded:?}"
                        )));
                    }
                };
                let expected = expected.unwrap();
                revision += u64::from(known.as_ref() != Some(&expected));
                prop_assert_eq!(&row.facts, &expected);
                prop_assert_eq!(row.revision, revision);
                known = Some(expected);
            }
            Ok(())
        })
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_same_ids_of_two_workspaces_are_two_things() {
    let store = Store::new().await;
    let other: WorkspaceId = "another".parse().unwrap();
    let id = ExecutionId::random();
    store.record(&id, &facts(ExecutionStatus::Completed)).await;
    assert!(store.db.execution(&other, &id).await.unwrap().is_none());
    let node = node(0);
    let nowhere = store.db.record_node(&other, &id, "n", &node).await.unwrap();
    assert_eq!(nowhere, NodeRecorded::NotFound);
    let about = [finding("f", Some(&id), "x")];
    let unknown = store.db.record_findings(&other, &about, SUBJECT).await;
    assert_eq!(unknown.unwrap(), Batch::Unknown(0));
    let free = [finding("f", None, "y")];
    for (workspace, batch) in [(workspace(), &about), (other.clone(), &free)] {
        let done = store.db.record_findings(&workspace, batch, SUBJECT).await;
        assert!(matches!(done.unwrap(), Batch::Done { recorded: 1, .. }));
        let page = store
            .db
            .findings(&workspace, &FindingsOf::Workspace, None, 10)
            .await
            .unwrap();
        assert_eq!(page.items[0].finding.sha256, batch[0].sha256);
        assert!(!page.more && page.items.len() == 1);
        let last = RecordCursor {
            at: at(0),
            id: "f".into(),
        };
        let behind = store
            .db
            .findings(&workspace, &FindingsOf::Workspace, Some(&last), 10)
            .await
            .unwrap();
        assert!(behind.items.is_empty() && !behind.more);
    }
}

/// Whoever records while an execution is removed has recorded something that is there, or is told that it is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_outlives_an_execution_that_is_removed() {
    let store = Store::new().await;
    let removal = Removal {
        subject: "admin",
        action: "execution.delete",
        quiet_days: None,
    };
    for _ in 0..20 {
        let id = ExecutionId::random();
        store.record(&id, &facts(ExecutionStatus::Running)).await;
        let mut working = node(0);
        working.status = Some(NodeStatus::Running);
        let about = [finding(&format!("f-{id}"), Some(&id), "x")];
        let used = [entry(&format!("e-{id}"), &id, 1)];
        let workspace = workspace();
        let (removed, node, findings, usage) = tokio::join!(
            store.db.remove_execution(&workspace, &id, removal),
            store.db.record_node(&workspace, &id, "n", &working),
            store.db.record_findings(&workspace, &about, SUBJECT),
            store.db.record_usage(&workspace, &used, SUBJECT),
        );
        assert_eq!(removed.unwrap(), bex_store::executions::Removed::Removed);
        assert!(!matches!(node.unwrap(), NodeRecorded::Conflict(_)));
        for batch in [findings.unwrap(), usage.unwrap()] {
            assert!(matches!(
                batch,
                Batch::Done { recorded: 1, .. } | Batch::Unknown(0)
            ));
        }
    }
    assert_eq!(
        store.sql("SELECT (SELECT count(*) FROM execution_nodes), (SELECT count(*) FROM findings), (SELECT count(*) FROM usage_ledger)"),
        "0|0|0"
    );
    assert_eq!(
        store.sql("SELECT count(*) FROM audit_events WHERE action = 'execution.delete'"),
        "20"
    );
}
