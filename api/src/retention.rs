//! The retention sweep: sessions that have been quiet for longer than their workspace keeps them, audit rows as old, and whatever a
//! workspace has that is being deleted.
//!
//! Every replica may sweep: each deletion looks again under its session's lock, and a session that is live, held, or was touched
//! since is left alone. Work is done in small transactions; a crash between two leaves a state from which any replica goes on.

use std::time::Duration;

use bex_proto::{Chain, WorkspaceId};
use bex_store::retention::{Purged, Removal};
use bex_store::sessions::{Cancel, Delete};
use bex_store::{Db, StoreError};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::metrics::{KeepingMetrics, TickMetrics, TickResult};

/// How often is swept where nothing else is said. Retention is counted in days; a minute keeps deletions prompt.
pub const TICK: Duration = Duration::from_secs(60);
/// The same, at most, while there is more to do: what was told to end is looked at again soon.
const SOON: Duration = Duration::from_secs(2);
/// Sessions of one workspace deleted in one round, so that no workspace waits for another.
const SESSIONS: u32 = 100;
/// Batches of parts removed in one round.
const PURGES: u32 = 1000;
/// Batches of audit rows of one workspace forgotten in one round.
const AUDIT_BATCHES: u32 = 10;
const SUBJECT: &str = "system:retention";

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Sessions deleted.
    pub sessions: u64,
    /// Parts of deleted sessions removed.
    pub parts: u64,
    /// Audit rows forgotten.
    pub audit_rows: u64,
    /// Audit rows closed because nobody else will.
    pub lost_streams: u64,
    /// Workspaces that are being deleted and still have something.
    pub winding_down: u64,
}

/// How a deployment keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keeping {
    /// Counts where a workspace has no policy of its own; 0 keeps everything.
    pub default_days: u32,
    /// How often is swept.
    pub tick: Duration,
}

/// Sweeps until cancelled.
pub async fn run(
    db: Db,
    keeping: Keeping,
    (ticks, metrics): (TickMetrics, KeepingMetrics),
    cancel: CancellationToken,
) {
    let Keeping { default_days, tick } = keeping;
    let mut pause = Duration::ZERO;
    while cancel.run_until_cancelled(sleep(pause)).await.is_some() {
        let Some(round) = cancel.run_until_cancelled(sweep(&db, default_days)).await else {
            break;
        };
        if let Ok(swept) = &round {
            metrics.removed(swept);
        }
        ticks.ticked(match &round {
            Ok(_) => TickResult::Ok,
            Err(_) => TickResult::Error,
        });
        pause = match round {
            Ok(swept) if swept == Swept::default() => tick,
            Ok(swept) => {
                tracing::info!(
                    sessions = swept.sessions,
                    parts = swept.parts,
                    audit_rows = swept.audit_rows,
                    lost_streams = swept.lost_streams,
                    winding_down = swept.winding_down,
                    "forgot what is kept no longer"
                );
                SOON.min(tick)
            }
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "a retention sweep failed");
                tick
            }
        }
    }
}

/// One round.
///
/// # Errors
/// Store trouble; the next round goes on.
pub async fn sweep(db: &Db, default_days: u32) -> Result<Swept, StoreError> {
    let mut swept = Swept {
        lost_streams: db.close_lost_streams().await?,
        ..Swept::default()
    };
    for kept in db.kept_workspaces().await? {
        let policy = kept.policy.as_ref();
        let days = policy.and_then(|p| p.retention_days);
        let days = days.unwrap_or(default_days);
        if policy.is_some_and(|p| p.deleting_since.is_some()) {
            swept.sessions += delete_all(db, &kept.workspace).await?;
            swept.winding_down += 1;
        } else if days > 0 {
            swept.sessions += delete_quiet(db, &kept.workspace, days, "session.expire").await?;
        }
        if days > 0 {
            swept.audit_rows += forget_audit(db, &kept.workspace, days).await?;
        }
    }
    for _ in 0..PURGES {
        match db.purge().await? {
            Purged::Parts(parts) => swept.parts += parts,
            Purged::Nothing => break,
        }
    }
    Ok(swept)
}

async fn delete_all(db: &Db, workspace: &WorkspaceId) -> Result<u64, StoreError> {
    for session in db.wind_down(workspace, SESSIONS).await? {
        match db.request_cancel(&session).await? {
            Cancel::Canceling => {
                tracing::info!(%session, "canceled: its workspace is being deleted");
            }
            Cancel::AlreadyCanceling | Cancel::Terminal(_) | Cancel::NotFound => {}
        }
    }
    let deleted = delete_quiet(db, workspace, 0, "session.delete").await?;
    db.end_workspace_deletion(workspace).await?;
    Ok(deleted)
}

async fn delete_quiet(
    db: &Db,
    workspace: &WorkspaceId,
    days: u32,
    action: &str,
) -> Result<u64, StoreError> {
    let removal = Removal {
        subject: SUBJECT,
        action,
        quiet_days: Some(days),
    };
    let mut deleted = 0;
    for session in db.expired_sessions(workspace, days, SESSIONS).await? {
        match db.remove_session(&session, removal).await? {
            Delete::Deleted => deleted += 1,
            // it moved since it was found
            Delete::Live | Delete::LegalHold | Delete::NotFound => {}
        }
    }
    Ok(deleted)
}

async fn forget_audit(db: &Db, workspace: &WorkspaceId, days: u32) -> Result<u64, StoreError> {
    let mut forgotten = 0;
    for _ in 0..AUDIT_BATCHES {
        let rows = db.sweep_audit(workspace, days).await?;
        forgotten += rows;
        if rows == 0 {
            break;
        }
    }
    if forgotten > 0 {
        db.note_audit_sweep(workspace, forgotten, days).await?;
    }
    Ok(forgotten)
}
