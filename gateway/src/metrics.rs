//! The process's metrics: one registry, one struct per area, passed in and never global. No label is unbounded.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Every metric of the gateway.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Open viewers' streams.
    pub streams: Gauge,
    /// The exec listener.
    pub exec: ExecMetrics,
    /// The accept loops.
    pub serve: ServeMetrics,
}

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

/// What the accept loops hold.
#[derive(Debug, Clone, Default)]
pub struct ServeMetrics {
    /// Open connections.
    pub connections: Family<ListenerLabel, Gauge>,
    /// Connections ended because nothing could be written for too long.
    pub write_stalls: Family<ListenerLabel, Counter>,
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

/// Label of a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RefusedLabels {
    /// The problem's code.
    pub code: &'static str,
}

/// Label of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ListenerLabel {
    /// Its name.
    pub listener: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All metrics, registered.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("bex_gateway");
        let streams = Gauge::default();
        registry.register("streams", "Open viewers' streams", streams.clone());
        let exec = ExecMetrics::register(&mut registry);
        let serve = ServeMetrics::register(&mut registry);
        Self {
            registry,
            streams,
            exec,
            serve,
        }
    }

    /// The OpenMetrics text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string never fails");
        text
    }
}

impl ExecMetrics {
    fn register(registry: &mut Registry) -> Self {
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

impl ServeMetrics {
    fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "connections",
            "Open connections",
            metrics.connections.clone(),
        );
        registry.register(
            "write_stalls",
            "Connections ended because nothing could be written",
            metrics.write_stalls.clone(),
        );
        metrics
    }
}

#[cfg(test)]
mod tests {
    use bex_proto::exec::{ExecCode, OperationName};

    use super::*;

    #[test]
    fn the_text_names_what_was_counted() {
        let metrics = Metrics::new();
        metrics.streams.inc();
        let labels = ExecLabels {
            op: OperationName::Observe.as_str(),
            result: ExecCode::ExecTransport.as_str(),
        };
        metrics.exec.total.get_or_create(&labels).inc();
        let text = metrics.text();
        assert!(text.contains("bex_gateway_streams 1\n"), "{text}");
        assert!(
            text.contains("bex_gateway_exec_total{op=\"observe\",result=\"exec_transport\"} 1\n"),
            "{text}"
        );
    }
}
