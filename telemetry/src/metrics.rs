//! What became of ended spans.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Counts of spans; all zero where none are sent.
#[derive(Debug, Clone, Default)]
pub struct SpanMetrics {
    /// The collector took them.
    pub sent: Counter,
    /// The queue was full.
    pub dropped: Counter,
    /// The collector was away or refused them; they are not tried again.
    pub failed: Counter,
}

impl SpanMetrics {
    /// As `otlp_spans{result}` of `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let family = Family::<ResultLabel, Counter>::default();
        let of = |result| family.get_or_create_owned(&ResultLabel { result });
        let metrics = Self {
            sent: of("sent"),
            dropped: of("dropped"),
            failed: of("failed"),
        };
        registry.register(
            "otlp_spans",
            "Spans of traces, by what became of them",
            family,
        );
        metrics
    }
}
