//! Forgetting what has expired: used nonces, idempotency keys, old notices. Every replica does it; each statement is
//! bounded and finds less after another's.

use std::collections::BTreeSet;
use std::time::Duration;

use bex_proto::Chain;
use bex_proto::ticket::KeyRing;
use bex_store::{Db, StoreError};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::metrics::{TickMetrics, TickResult};

const EVERY: Duration = Duration::from_secs(60);

/// Sweeps until cancelled.
pub async fn run(db: Db, driver_keys: KeyRing, metrics: TickMetrics, cancel: CancellationToken) {
    let mut every = interval(EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while cancel.run_until_cancelled(every.tick()).await.is_some() {
        match cancel.run_until_cancelled(sweep(&db, &driver_keys)).await {
            Some(Ok(())) => metrics.ticked(TickResult::Ok),
            Some(Err(error)) => {
                metrics.ticked(TickResult::Error);
                tracing::warn!(error = %Chain(&error), "housekeeping failed");
            }
            None => {}
        }
    }
}

/// One round.
///
/// # Errors
/// Store trouble; the next round goes on.
pub async fn sweep(db: &Db, driver_keys: &KeyRing) -> Result<(), StoreError> {
    let nonces = db.sweep_nonces().await?;
    let keys = db.sweep_idempotency_keys().await?;
    let changes = db.trim_changes().await?;
    tracing::debug!(nonces, keys, changes, "forgot what has expired");
    let known: BTreeSet<&str> = driver_keys.kids().collect();
    for kid in db.driver_kids_in_use().await? {
        if !known.contains(kid.as_str()) {
            tracing::error!(
                kid,
                "a living sandbox needs a driver key that was removed from the ring"
            );
        }
    }
    Ok(())
}
