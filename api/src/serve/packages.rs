//! Replay packages, where the configuration has a place for them.

use std::sync::Arc;

use anyhow::Context;
use bex_redact::Redactor;
use bex_store::Db;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{PackageStore, PackagesConfig};
use crate::metrics::PackageMetrics;
use crate::package::{
    Bounds, Builder, BuilderDeps, LocalObjects, Objects, Packager, S3Objects, Shares, keep,
};

/// Opens the store and lets the gate find what is planted; a gate that misses it lets nothing start.
pub(super) fn start(
    config: Option<PackagesConfig>,
    db: &Db,
    metrics: &PackageMetrics,
    loops: &TaskTracker,
    stop: &CancellationToken,
) -> anyhow::Result<Option<Arc<Packager>>> {
    let Some(config) = config else {
        return Ok(None);
    };
    let objects = match config.store {
        PackageStore::Local {
            dir,
            public_url,
            keys,
        } => {
            let local = LocalObjects::open(dir, public_url, keys);
            Objects::Local(local.context("the directory of packages cannot be used")?)
        }
        PackageStore::S3(s3) => {
            let s3 = S3Objects::new(s3).context("the bucket of packages cannot be used")?;
            Objects::S3(Box::new(s3))
        }
    };
    let builder = Builder::new(BuilderDeps {
        db: db.clone(),
        secret: config.secret,
        profile: config.profile,
        redactor: Redactor::new,
        spool_dir: config.spool_dir,
        commit: config.commit,
        bounds: Bounds::default(),
    })
    .context("no package may be made")?;
    let packager = Packager::new(
        builder,
        objects,
        config.ttl,
        Shares::default(),
        metrics.clone(),
    );
    tracing::info!(?packager, "replay packages are made");
    let packager = Arc::new(packager);
    loops.spawn(keep(Arc::clone(&packager), stop.clone()));
    Ok(Some(packager))
}
