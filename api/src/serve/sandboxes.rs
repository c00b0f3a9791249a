//! The sandboxes of the configured kind, and what runs beside them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bex_proto::Chain;
use bex_store::sandboxes::SandboxState;
use bex_store::wake::Channel;
use bex_store::{Db, StoreError};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::SandboxKind;
use crate::dispatch::Plans;
use crate::profiles::Profiles;
use crate::sandbox::{KubernetesLifecycle, Lifecycle, LocalLifecycle, SandboxName};

/// Departures that wait for the store; a watch waits for room.
const DEPARTURES: usize = 256;
/// Pauses before each wake: a driver that was told to end needs a moment to write its last line, and is read while it can be.
const WAKES: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_secs(2),
    Duration::from_secs(8),
];

/// Who makes sandboxes, and from what.
pub(super) struct Sandboxes {
    pub(super) lifecycle: Arc<dyn Lifecycle>,
    pub(super) plans: Plans,
}

pub(super) async fn start(
    kind: SandboxKind,
    profiles: &Profiles,
    db: &Db,
    loops: &TaskTracker,
    stop: &CancellationToken,
) -> anyhow::Result<Sandboxes> {
    match kind {
        SandboxKind::Local(local) => {
            tracing::info!(
                kind = "local",
                isolation = "none",
                "sandboxes are processes of this machine's user"
            );
            Ok(Sandboxes {
                lifecycle: Arc::new(LocalLifecycle::new(local.dir, local.driver)),
                plans: Plans::new(profiles.clone(), local.secrets),
            })
        }
        SandboxKind::Kubernetes(config) => {
            tracing::info!(kind = "kubernetes", namespaces = ?config.namespaces, "sandboxes are pods");
            let lifecycle = KubernetesLifecycle::new(*config)
                .await
                .context("the cluster cannot be used")?;
            let (say, left) = mpsc::channel(DEPARTURES);
            loops.spawn(lifecycle.clone().departures(say, stop.clone()));
            loops.spawn(
                stop.clone()
                    .run_until_cancelled_owned(tell_rights(lifecycle.clone())),
            );
            loops.spawn(wake(db.clone(), left, loops.clone(), stop.clone()));
            Ok(Sandboxes {
                lifecycle: Arc::new(lifecycle),
                plans: Plans::with_cluster_secrets(profiles.clone()),
            })
        }
    }
}

/// Names each right that is missing. The namespaces of other workspaces may be complete, so nothing stops for it.
async fn tell_rights(lifecycle: KubernetesLifecycle) {
    match lifecycle.lacking().await {
        Ok(lacking) => {
            for right in lacking {
                let (namespace, verb) = (right.namespace, right.verb);
                tracing::error!(namespace, verb, "the api may not do this with pods");
            }
        }
        Err(error) => tracing::warn!(error = %Chain(&error), "nobody tells what the api may do"),
    }
}

/// Wakes the Completer for sandboxes that leave though no row says that they should.
async fn wake(
    db: Db,
    mut left: mpsc::Receiver<SandboxName>,
    loops: TaskTracker,
    stop: CancellationToken,
) {
    while let Some(sandbox) = left.recv().await {
        let db = db.clone();
        loops.spawn(stop.clone().run_until_cancelled_owned(async move {
            for pause in WAKES {
                sleep(pause).await;
                if let Err(error) = wake_one(&db, &sandbox).await {
                    tracing::warn!(session = %sandbox.session, error = %Chain(&error), "a wake was lost; the next tick finds it out");
                }
            }
        }));
    }
}

async fn wake_one(db: &Db, sandbox: &SandboxName) -> Result<(), StoreError> {
    let (session, generation) = (&sandbox.session, sandbox.generation);
    let Some(row) = db.sandbox(session, generation).await? else {
        return Ok(());
    };
    let is_wanted = matches!(row.state, SandboxState::Turn | SandboxState::Idle);
    if is_wanted && row.pod_uid == sandbox.pod_uid {
        tracing::info!(%session, %generation, "a sandbox leaves that nobody here removed");
        db.notify(Channel::Wake, session).await?;
    }
    Ok(())
}
