//! What is kept no longer: objects of a week ago, and the rows that say when they were first made.

use std::sync::Arc;
use std::time::Duration;

use bex_proto::Chain;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::{EXPIRY_DAYS, Packager};

/// How often is looked. Objects live for days.
const EVERY: Duration = Duration::from_secs(600);

/// Sweeps until cancelled.
pub async fn keep(packager: Arc<Packager>, cancel: CancellationToken) {
    let mut every = interval(EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while cancel.run_until_cancelled(every.tick()).await.is_some() {
        if cancel.run_until_cancelled(packager.sweep()).await.is_none() {
            return;
        }
    }
}

impl Packager {
    /// One round; what fails is tried again in the next.
    pub async fn sweep(&self) {
        match self.objects.sweep(EXPIRY_DAYS).await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "removed packages that nobody asked for"),
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "packages could not be swept");
            }
        }
        match self.builder.db().sweep_packages(EXPIRY_DAYS).await {
            Ok(rows) => tracing::debug!(rows, "forgot packages"),
            Err(error) => tracing::warn!(error = %Chain(&error), "packages could not be forgotten"),
        }
        self.metrics
            .expiry(self.objects.expiry_is_set(EXPIRY_DAYS).await);
    }
}
