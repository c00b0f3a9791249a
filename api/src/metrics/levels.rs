//! Levels that are looked up when somebody scrapes: the outbox, which is the database's, and this process's connections.

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
}

impl LevelsMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            outbox: Gauge::default(),
            oldest: Seconds::default(),
            connections: Gauge::default(),
            free: Gauge::default(),
            waiting: Gauge::default(),
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
}

fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
