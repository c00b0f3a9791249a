//! The retention sweep: sessions and executions that have been quiet for longer than their workspace keeps them, audit rows as old, and
//! whatever a workspace has that is being deleted.
//!
//! Every replica may sweep: each deletion looks again under its session's lock, and a session that is live, held, or was touched
//! since is left alone. Work is done in small transactions; a crash between two leaves a state from which any replica goes on.

use std::time::Duration;

use bex_proto::remote::Answer;
use bex_proto::{Chain, WorkspaceId};
use bex_store::executions::Removed;
use bex_store::remote::Moved;
use bex_store::retention::{KeptWorkspace, Purged, Removal};
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
/// Executions of one workspace deleted in one round.
const EXECUTIONS: u32 = 100;
/// Records that are of no execution, of one batch.
const RECORDS: u32 = 1000;
/// Batches of them of one workspace in one round.
const RECORD_BATCHES: u32 = 10;
/// Log events of one batch.
const EVENTS: u32 = 5000;
/// Batches of parts, and of log events, removed in one round.
const PURGES: u32 = 1000;
/// Batches of audit rows of one workspace forgotten in one round.
const AUDIT_BATCHES: u32 = 10;
/// Failures before a round gives up: each costs its time.
const FAILURES: u64 = 8;
const SUBJECT: &str = "system:retention";

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Sessions deleted.
    pub sessions: u64,
    /// Parts of deleted sessions removed.
    pub parts: u64,
    /// Executions deleted.
    pub executions: u64,
    /// Findings, usage entries and versions removed that were of no execution.
    pub records: u64,
    /// Events of remote sessions' logs removed.
    pub events: u64,
    /// Audit rows forgotten.
    pub audit_rows: u64,
    /// Audit rows closed because nobody else will.
    pub lost_streams: u64,
    /// Workspaces that are being deleted and still have something.
    pub winding_down: u64,
    /// What was tried and could not be done.
    pub failed: u64,
}

impl Swept {
    /// One workspace's or session's trouble keeps no other waiting; much of it is the store's.
    fn failed(&mut self, workspace: &WorkspaceId, error: StoreError) -> Result<(), StoreError> {
        self.failed += 1;
        if self.failed == FAILURES {
            return Err(error);
        }
        tracing::warn!(%workspace, error = %Chain(&error), "something of a workspace could not be swept");
        Ok(())
    }
}

/// How a deployment keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keeping {
    /// Counts where a workspace has no policy of its own; 0 keeps everything.
    pub default_days: u32,
    /// Days that remote sessions' logs are kept once rows were made from them; 0 keeps them.
    pub log_days: u32,
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
    let tick = keeping.tick;
    let mut pause = Duration::ZERO;
    while cancel.run_until_cancelled(sleep(pause)).await.is_some() {
        let Some(round) = cancel.run_until_cancelled(sweep(&db, keeping)).await else {
            break;
        };
        if let Ok(swept) = &round {
            metrics.removed(swept);
        }
        let is_well = round.as_ref().is_ok_and(|swept| swept.failed == 0);
        ticks.ticked(if is_well {
            TickResult::Ok
        } else {
            TickResult::Error
        });
        pause = match round {
            Ok(swept) if swept == Swept::default() || swept.failed > 0 => tick,
            Ok(swept) => {
                tracing::info!(
                    sessions = swept.sessions,
                    parts = swept.parts,
                    executions = swept.executions,
                    records = swept.records,
                    events = swept.events,
                    audit_rows = swept.audit_rows,
                    lost_streams = swept.lost_streams,
                    winding_down = swept.winding_down,
                    failed = swept.failed,
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
pub async fn sweep(db: &Db, keeping: Keeping) -> Result<Swept, StoreError> {
    let mut swept = Swept {
        lost_streams: db.close_lost_streams().await?,
        ..Swept::default()
    };
    for kept in db.kept_workspaces().await? {
        if let Err(error) = sweep_one(db, &kept, keeping.default_days, &mut swept).await {
            swept.failed(&kept.workspace, error)?;
        }
    }
    for _ in 0..PURGES {
        match db.purge().await? {
            Purged::Parts(parts) => swept.parts += parts,
            Purged::Nothing => break,
        }
    }
    for _ in 0..PURGES {
        let events = match keeping.log_days {
            0 => 0,
            days => db.purge_remote_events(days, EVENTS).await?,
        };
        swept.events += events;
        if events == 0 {
            break;
        }
    }
    Ok(swept)
}

async fn sweep_one(
    db: &Db,
    kept: &KeptWorkspace,
    default_days: u32,
    swept: &mut Swept,
) -> Result<(), StoreError> {
    let policy = kept.policy.as_ref();
    let days = policy.and_then(|p| p.retention_days);
    let days = days.unwrap_or(default_days);
    if policy.is_some_and(|p| p.deleting_since.is_some()) {
        swept.winding_down += 1;
        delete_all(db, &kept.workspace, swept).await?;
    } else if days > 0 {
        delete_quiet(db, &kept.workspace, days, "session.expire", swept).await?;
        forget_executions(db, &kept.workspace, days, "execution.expire", swept).await?;
    }
    if days > 0 {
        swept.audit_rows += forget_audit(db, &kept.workspace, days).await?;
    }
    Ok(())
}

async fn delete_all(db: &Db, workspace: &WorkspaceId, swept: &mut Swept) -> Result<(), StoreError> {
    for session in db.wind_down(workspace, SESSIONS).await? {
        match db.request_cancel(&session).await? {
            Cancel::Canceling => {
                tracing::info!(%session, "canceled: its workspace is being deleted");
            }
            Cancel::AlreadyCanceling | Cancel::Terminal(_) | Cancel::NotFound => {}
        }
    }
    db.wind_down_remote(workspace).await?;
    delete_quiet(db, workspace, 0, "session.delete", swept).await?;
    forget_executions(db, workspace, 0, "execution.delete", swept).await?;
    db.end_workspace_deletion(workspace).await
}

async fn delete_quiet(
    db: &Db,
    workspace: &WorkspaceId,
    days: u32,
    action: &str,
    swept: &mut Swept,
) -> Result<(), StoreError> {
    let removal = Removal {
        subject: SUBJECT,
        action,
        quiet_days: Some(days),
    };
    for session in db.expired_sessions(workspace, days, SESSIONS).await? {
        match db.remove_session(&session, removal).await {
            Ok(Delete::Deleted) => swept.sessions += 1,
            // it moved since it was found
            Ok(Delete::Live | Delete::LegalHold | Delete::NotFound) => {}
            Err(error) => swept.failed(workspace, error)?,
        }
    }
    for session in db
        .expired_remote_sessions(workspace, days, SESSIONS)
        .await?
    {
        match db.delete_remote_session(&session).await {
            Ok(Moved::Done(Answer::Does)) => swept.sessions += 1,
            Ok(Moved::Done(_) | Moved::NotFound) => {}
            Err(error) => swept.failed(workspace, error)?,
        }
    }
    Ok(())
}

async fn forget_executions(
    db: &Db,
    workspace: &WorkspaceId,
    days: u32,
    action: &str,
    swept: &mut Swept,
) -> Result<(), StoreError> {
    let removal = Removal {
        subject: SUBJECT,
        action,
        quiet_days: Some(days),
    };
    for execution in db.expired_executions(workspace, days, EXECUTIONS).await? {
        match db.remove_execution(workspace, &execution, removal).await {
            Ok(Removed::Removed) => swept.executions += 1,
            // it moved since it was found
            Ok(Removed::LegalHold | Removed::Young | Removed::NotFound) => {}
            Err(error) => swept.failed(workspace, error)?,
        }
    }
    for _ in 0..RECORD_BATCHES {
        let rows = db.forget_records(workspace, days, RECORDS).await?.rows();
        swept.records += rows;
        if rows == 0 {
            break;
        }
    }
    Ok(())
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
