//! The admin listener: alive, ready, metrics. Loopback or cluster-internal, no authentication, nothing of a tenant.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::get;
use bex_store::{Db, Readiness};
use bex_tls::ClientTls;
use http::{StatusCode, header};

use crate::metrics::Metrics;

/// Time for the store's answer to a scrape.
const BACKLOG_TIMEOUT: Duration = Duration::from_secs(1);
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the probes look at.
pub struct Admin {
    db: Db,
    readiness: Readiness,
    metrics: Arc<Metrics>,
    exec_tls: Option<Arc<ClientTls>>,
    draining: AtomicBool,
}

impl Admin {
    /// Ready as long as `readiness` says so.
    pub fn new(
        db: Db,
        readiness: Readiness,
        metrics: Arc<Metrics>,
        exec_tls: Option<Arc<ClientTls>>,
    ) -> Self {
        Self {
            db,
            readiness,
            metrics,
            exec_tls,
            draining: AtomicBool::new(false),
        }
    }

    /// Not ready from now on: the process shuts down.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}

/// The admin listener's routes.
pub fn router(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(admin)
}

async fn ready(State(admin): State<Arc<Admin>>) -> (StatusCode, String) {
    if admin.draining.load(Ordering::Relaxed) {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n".to_owned());
    }
    match admin.readiness.check().await {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(unready) => (StatusCode::SERVICE_UNAVAILABLE, format!("{unready}\n")),
    }
}

/// A store that does not answer leaves the outbox at its last figures; `/readyz` tells of it.
async fn metrics(State(admin): State<Arc<Admin>>) -> impl IntoResponse {
    let backlog = tokio::time::timeout(BACKLOG_TIMEOUT, admin.db.dispatch_backlog()).await;
    if let Ok(Ok(backlog)) = backlog {
        admin.metrics.levels.set_outbox(backlog);
    }
    admin.metrics.levels.set_pool(admin.db.levels());
    if let Some(tls) = &admin.exec_tls {
        let levels = &admin.metrics.levels;
        levels.set_exec_tls(tls.not_after(), tls.reload_failures());
    }
    ([(header::CONTENT_TYPE, METRICS_TYPE)], admin.metrics.text())
}
