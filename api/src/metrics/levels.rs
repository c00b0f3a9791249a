//! Levels that are looked up when somebody scrapes: the outbox, which is the database's, this process's connections, and the
//! certificate it shows to the gateway.

use std::sync::atomic::AtomicU64;

use bex_store::dispatch::Backlog;
use bex_store::pool::PoolLevels;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

type Seconds = Gauge<f64, AtomicU64>;

/// See the module's text.
#[derive(Debug, Clone)]
pub struct LevelsMetrics {
    outbox: Gauge,
    oldest: Seconds,
    connections: Gauge,
    free: Gauge,
    waiting: Gauge,
    exec_tls_not_after: Gauge,
    exec_tls_reload_failures: Gauge,
}

impl LevelsMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            outbox: Gauge::default(),
            oldest: Seconds::default(),
            connections: Gauge::default(),
            free: Gauge::default(),
            waiting: Gauge::default(),
            exec_tls_not_after: Gauge::default(),
            exec_tls_reload_failures: Gauge::default(),
        };
        let m = &metrics;
        registry.register(
            "dispatch_outbox",
            "Turns that wait for their driver",
            m.outbox.clone(),
        );
        registry.register_with_unit(
            "dispatch_outbox_oldest",
            "How long the oldest of them has waited",
            Unit::Seconds,
            m.oldest.clone(),
        );
        registry.register(
            "db_connections",
            "Open database connections",
            m.connections.clone(),
        );
        registry.register(
            "db_connections_free",
            "Open database connections that nobody uses",
            m.free.clone(),
        );
        registry.register(
            "db_waiting",
            "Statements that wait for a connection",
            m.waiting.clone(),
        );
        registry.register_with_unit(
            "exec_tls_not_after",
            "When the certificate for the gateway expires, Unix time; 0 without TLS",
            Unit::Seconds,
            m.exec_tls_not_after.clone(),
        );
        registry.register(
            "exec_tls_reload_failures",
            "Changed TLS files for the gateway that could not be used",
            m.exec_tls_reload_failures.clone(),
        );
        metrics
    }

    /// The outbox as the database has it.
    pub fn set_outbox(&self, backlog: Backlog) {
        self.outbox.set(number(backlog.turns));
        self.oldest.set(backlog.oldest.as_secs_f64());
    }

    /// The pool of this process.
    pub fn set_pool(&self, pool: PoolLevels) {
        self.connections.set(number(pool.connections as u64));
        self.free.set(number(pool.free as u64));
        self.waiting.set(number(pool.waiting as u64));
    }

    /// The certificate that proves this process to the gateway.
    pub fn set_exec_tls(&self, not_after: i64, reload_failures: u64) {
        self.exec_tls_not_after.set(not_after);
        self.exec_tls_reload_failures.set(number(reload_failures));
    }
}

fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
