//! Loops that only look and tidy up: whether their looks succeed.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::TickResult;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Looks of one loop.
#[derive(Debug, Clone)]
pub struct TickMetrics {
    ok: Counter,
    error: Counter,
}

impl Default for TickMetrics {
    /// Counts that nobody is shown.
    fn default() -> Self {
        Self::register(&mut Registry::default(), "ticks", "Looks")
    }
}

impl TickMetrics {
    /// Both results are shown from the start: a loop that never succeeds is told from one that is not there.
    pub(super) fn register(registry: &mut Registry, name: &str, help: &str) -> Self {
        let family = Family::<ResultLabel, Counter>::default();
        let of = |result: TickResult| {
            let result = result.as_str();
            family.get_or_create_owned(&ResultLabel { result })
        };
        let metrics = Self {
            ok: of(TickResult::Ok),
            error: of(TickResult::Error),
        };
        registry.register(name, help, family);
        metrics
    }

    /// A look ended.
    pub fn ticked(&self, result: TickResult) {
        match result {
            TickResult::Ok => self.ok.inc(),
            TickResult::Error => self.error.inc(),
        };
    }
}
