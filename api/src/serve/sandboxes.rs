//! The sandboxes of the configured kind, and what runs beside them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bex_proto::Chain;
use bex_store::sandboxes::SandboxState;
use bex_store::wake::Channel;
use bex_store::{ClusterRights, Db, StoreError};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::SandboxKind;
use crate::dispatch::Plans;
use crate::profiles::Profiles;
use crate::sandbox::{KubernetesLifecycle, Lifecycle, LocalLifecycle, Look, SandboxName};

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
    /// What the cluster lets this process do; of the local kind nobody asks.
    pub(super) rights: Option<watch::Receiver<ClusterRights>>,
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
                rights: None,
            })
        }
        SandboxKind::Kubernetes(config) => {
            tracing::info!(kind = "kubernetes", namespaces = ?config.namespaces, "sandboxes are pods");
            let lifecycle = KubernetesLifecycle::new(*config)
                .await
                .context("the cluster cannot be used")?;
            let (say, left) = mpsc::channel(DEPARTURES);
            loops.spawn(lifecycle.clone().departures(say, stop.clone()));
            let (say_rights, rights) = watch::channel(ClusterRights::Unasked);
            loops.spawn(
                stop.clone()
                    .run_until_cancelled_owned(lifecycle.rights().tell(say_rights)),
            );
            loops.spawn(wake(
                db.clone(),
                lifecycle.clone(),
                left,
                loops.clone(),
                stop.clone(),
            ));
            Ok(Sandboxes {
                lifecycle: Arc::new(lifecycle),
                plans: Plans::with_cluster_secrets(profiles.clone()),
                rights: Some(rights),
            })
        }
    }
}

/// Wakes the Completer for sandboxes that leave though no row says that they should.
async fn wake(
    db: Db,
    lifecycle: KubernetesLifecycle,
    mut left: mpsc::Receiver<SandboxName>,
    loops: TaskTracker,
    stop: CancellationToken,
) {
    while let Some(sandbox) = left.recv().await {
        let (db, lifecycle) = (db.clone(), lifecycle.clone());
        loops.spawn(stop.clone().run_until_cancelled_owned(async move {
            for pause in WAKES {
                sleep(pause).await;
                if let Err(error) = wake_one(&db, &lifecycle, &sandbox).await {
                    tracing::warn!(session = %sandbox.session, error = %Chain(&error), "a wake was lost; the next tick finds it out");
                }
            }
        }));
    }
}

/// A sandbox that speaks is read once more; an idle one has said all it had to say, and is cleared up once it is gone.
async fn wake_one(
    db: &Db,
    lifecycle: &dyn Lifecycle,
    sandbox: &SandboxName,
) -> Result<(), StoreError> {
    let (session, generation) = (&sandbox.session, sandbox.generation);
    let row = db.sandbox(session, generation).await?;
    let Some(row) = row.filter(|row| row.pod_uid == sandbox.pod_uid) else {
        return Ok(());
    };
    match row.state {
        SandboxState::Turn => {
            tracing::info!(%session, %generation, "a sandbox leaves that nobody here removed");
            db.notify(Channel::Wake, session).await
        }
        SandboxState::Idle if lifecycle.look(sandbox).await == Look::Gone => {
            tracing::info!(%session, %generation, "an idle sandbox left that nobody here removed");
            db.lose_idle(session, generation).await.map(drop)
        }
        SandboxState::Idle
        | SandboxState::Creating
        | SandboxState::Stopping
        | SandboxState::Gone => Ok(()),
    }
}
