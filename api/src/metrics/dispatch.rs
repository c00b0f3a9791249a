//! The dispatcher: what became of claimed turns.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::TickResult;

/// What became of one claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DispatchResult {
    /// The driver has the turn, or may have it.
    Delivered,
    /// It is tried again.
    Retried,
    /// No sandbox can be made.
    Failed,
    /// Somebody else moved the turn.
    Left,
    /// The store did not answer; it is tried again.
    Error,
    /// A fault of ours.
    Panicked,
}

impl DispatchResult {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Retried => "retried",
            Self::Failed => "failed",
            Self::Left => "left",
            Self::Error => "error",
            Self::Panicked => "panicked",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// See the module's text.
#[derive(Debug, Clone)]
pub struct DispatchMetrics {
    ticks: Family<ResultLabel, Counter>,
    ended: Family<ResultLabel, Counter>,
    active: Gauge,
}

impl DispatchMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            ticks: Family::default(),
            ended: Family::default(),
            active: Gauge::default(),
        };
        registry.register(
            "dispatcher_ticks",
            "Looks for turns to dispatch",
            metrics.ticks.clone(),
        );
        registry.register("dispatches", "Ended dispatches", metrics.ended.clone());
        registry.register(
            "dispatches_active",
            "Dispatches that run",
            metrics.active.clone(),
        );
        metrics
    }

    /// Turns were looked for.
    pub fn ticked(&self, result: TickResult) {
        let result = result.as_str();
        self.ticks.get_or_create(&ResultLabel { result }).inc();
    }

    /// So many dispatches run.
    pub fn set_active(&self, dispatches: usize) {
        self.active
            .set(i64::try_from(dispatches).unwrap_or(i64::MAX));
    }

    /// A claim was worked on.
    pub fn ended(&self, result: DispatchResult) {
        let result = result.as_str();
        self.ended.get_or_create(&ResultLabel { result }).inc();
    }
}
