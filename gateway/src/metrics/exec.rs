//! What the exec listener counts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::RefusedLabels;

/// What the exec listener did.
#[derive(Debug, Clone)]
pub struct ExecMetrics {
    /// Ended operations.
    pub total: Family<ExecLabels, Counter>,
    /// Running operations; the bound is [`crate::exec::EXEC_PARALLEL`].
    pub active: Gauge,
    /// Requests refused before any operation began, by code.
    pub refused: Family<RefusedLabels, Counter>,
    /// Their time, from the ticket's acceptance to the last frame.
    pub seconds: Family<OpLabel, Histogram, fn() -> Histogram>,
}

/// Labels of an ended operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ExecLabels {
    /// Which.
    pub op: &'static str,
    /// `ok` or the error code.
    pub result: &'static str,
}

/// Label of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OpLabel {
    /// Which.
    pub op: &'static str,
}

impl ExecMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        // from a status read to the longest user's command
        fn seconds() -> Histogram {
            Histogram::new([0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0])
        }
        let metrics = Self {
            total: Family::default(),
            active: Gauge::default(),
            refused: Family::default(),
            seconds: Family::new_with_constructor(seconds),
        };
        registry.register("exec", "Ended exec operations", metrics.total.clone());
        registry.register(
            "exec_active",
            "Running exec operations",
            metrics.active.clone(),
        );
        registry.register(
            "exec_refused",
            "Refused exec requests",
            metrics.refused.clone(),
        );
        registry.register(
            "exec_seconds",
            "Time of exec operations",
            metrics.seconds.clone(),
        );
        metrics
    }
}
