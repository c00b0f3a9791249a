//! Housekeeping: whether what has expired is forgotten.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::TickResult;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// See the module's text.
#[derive(Debug, Clone, Default)]
pub struct HousekeepingMetrics {
    ticks: Family<ResultLabel, Counter>,
}

impl HousekeepingMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "housekeeping_ticks",
            "Looks for what has expired",
            metrics.ticks.clone(),
        );
        metrics
    }

    /// A look ended.
    pub fn ticked(&self, result: TickResult) {
        let label = ResultLabel {
            result: result.as_str(),
        };
        self.ticks.get_or_create(&label).inc();
    }
}
