//! Idle sandboxes: nobody observes one that has nothing to say, so each is looked at every tick. One that was seen to be gone is told at
//! once and cleared up by its session's next round, and the next turn gets a fresh one instead of a dead end.

use std::hash::{DefaultHasher, Hash, Hasher};

use bex_proto::Chain;
use bex_store::StoreError;
use bex_store::sandboxes::SandboxState;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::CompleterDeps;
use crate::sandbox::{Look, SandboxName};

/// Rows of one page.
const PAGE: u32 = 500;
/// Pages of one tick; a store with more living sandboxes has the rest looked at by nobody before their grace ends.
const PAGES: usize = 40;

/// What one tick found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Looked {
    /// Idle sandboxes.
    pub idle: usize,
    /// Of these, so many were gone.
    pub lost: usize,
}

pub(super) async fn run(deps: CompleterDeps, cancel: CancellationToken) {
    let mut ticks = 0_u64;
    loop {
        // replicas part: each of them looks
        let mut hasher = DefaultHasher::new();
        (&deps.owner, ticks).hash(&mut hasher);
        let part = 0.8 + (hasher.finish() % 256) as f64 / 255.0 * 0.1;
        let tick = async {
            sleep(deps.timings.completer_tick.mul_f64(part)).await;
            if let Err(error) = look(&deps).await {
                tracing::warn!(error = %Chain(&error), "idle sandboxes could not be looked at");
            }
        };
        if cancel.run_until_cancelled(tick).await.is_none() {
            return;
        }
        ticks += 1;
    }
}

/// Looks at every idle sandbox once.
///
/// # Errors
/// Store trouble; what is left is looked at in the next tick.
pub async fn look(deps: &CompleterDeps) -> Result<Looked, StoreError> {
    let (mut looked, mut after) = (Looked::default(), None);
    for _ in 0..PAGES {
        let page = after.as_ref().map(|(session, life)| (session, *life));
        let rows = deps.db.living_sandboxes(page, PAGE).await?;
        let idle = rows.iter().filter(|row| row.state == SandboxState::Idle);
        let idle: Vec<SandboxName> = idle.map(SandboxName::from).collect();
        let looks = deps.lifecycle.look_at_all(&idle).await;
        looked.idle += idle.len();
        for (sandbox, _) in idle
            .iter()
            .zip(looks)
            .filter(|(_, look)| *look == Look::Gone)
        {
            looked.lost += usize::from(lose(deps, sandbox).await?);
        }
        match rows.last() {
            Some(row) if rows.len() == PAGE as usize => {
                after = Some((row.session.clone(), row.generation));
            }
            _ => break,
        }
    }
    Ok(looked)
}

/// Whether it was lost: it is looked at once more, alone.
async fn lose(deps: &CompleterDeps, sandbox: &SandboxName) -> Result<bool, StoreError> {
    let (session, generation) = (&sandbox.session, sandbox.generation);
    if deps.lifecycle.look(sandbox).await != Look::Gone
        || !deps.db.lose_idle(session, generation).await?
    {
        return Ok(false);
    }
    deps.metrics.idle_lost();
    tracing::info!(%session, %generation, "an idle sandbox is gone that nobody here removed");
    Ok(true)
}
