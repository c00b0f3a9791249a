//! What is kept no longer: objects of a week ago, objects that tell of what was deleted, and the rows of both.

use std::sync::Arc;
use std::time::Duration;

use bex_proto::Chain;
use bex_store::packages::PackageKey;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::{EXPIRY_DAYS, ObjectKey, PackageFault, Packager, Subject};

/// How often is looked. Objects live for days, those of what was deleted for a minute and this; a URL that somebody has is good for as long.
const EVERY: Duration = Duration::from_secs(240);
/// For one removal.
const REMOVAL: Duration = Duration::from_secs(10);

/// Sweeps until cancelled; then waits for the packages that are being made.
pub async fn keep(packager: Arc<Packager>, cancel: CancellationToken) {
    let mut every = interval(EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while cancel.run_until_cancelled(every.tick()).await.is_some() {
        let _ = cancel.run_until_cancelled(packager.sweep()).await;
    }
    packager.tasks.close();
    packager.tasks.wait().await;
}

impl Packager {
    /// One round; what fails is tried again in the next.
    pub async fn sweep(&self) {
        self.remove_deleted().await;
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

    /// Removes objects that tell of what was deleted, batch after batch. One that fails is put off, and keeps no other.
    async fn remove_deleted(&self) {
        loop {
            let batch = match self.builder.db().packages_to_remove().await {
                Ok(batch) if batch.is_empty() => return,
                Ok(batch) => batch,
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "packages of what was deleted cannot be looked for");
                    return;
                }
            };
            for package in batch {
                let Err(fault) = self.remove(&package).await else {
                    continue;
                };
                tracing::error!(kind = %package.kind, id = package.id, error = %Chain(&fault), "a package of what was deleted cannot be removed");
                if let Err(error) = self.builder.db().put_off_package(&package).await {
                    tracing::warn!(error = %Chain(&error), "packages of what was deleted cannot be looked after");
                    return;
                }
            }
        }
    }

    async fn remove(&self, package: &PackageKey) -> Result<(), PackageFault> {
        if let Some(subject) = Subject::parse(package.kind, &package.id) {
            let key = ObjectKey::new(&package.workspace, &subject, &package.package);
            self.objects.remove(&key, REMOVAL).await?;
        }
        self.builder.db().forget_package(package).await?;
        tracing::info!(kind = %package.kind, id = package.id, "removed a package of what was deleted");
        Ok(())
    }
}
