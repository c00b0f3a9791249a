//! The process's metrics: one registry, one struct per area, passed in and never global. No label is unbounded.

mod attach;
mod exec;
mod levels;

pub use attach::{Appended, AttachMetrics, HubMetrics, ResultLabel};
pub use exec::{ExecLabels, ExecMetrics, OpLabel};
pub use levels::Level;

use bex_telemetry::SpanMetrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Every metric of the gateway.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// The attach listener.
    pub attach: AttachMetrics,
    /// The exec listener.
    pub exec: ExecMetrics,
    /// The accept loops.
    pub serve: ServeMetrics,
    /// Spans of traces.
    pub spans: SpanMetrics,
}

/// What the accept loops hold.
#[derive(Debug, Clone, Default)]
pub struct ServeMetrics {
    /// Open connections.
    pub connections: Family<ListenerLabel, Gauge>,
    /// Connections, and streams of HTTP/2, ended because nothing could be written for too long.
    pub write_stalls: Family<ListenerLabel, Counter>,
    /// Handshakes of the exec listener, where it proves its clients.
    pub handshakes: Family<ResultLabel, Counter>,
}

/// One more of what a gauge counts, for as long as it lives; also when its task panics.
#[derive(Debug)]
pub struct Counted(Gauge);

impl Counted {
    /// Counts.
    pub fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
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
        let attach = AttachMetrics::register(&mut registry);
        let exec = ExecMetrics::register(&mut registry);
        let serve = ServeMetrics::register(&mut registry);
        let spans = SpanMetrics::register(&mut registry);
        Self {
            registry,
            attach,
            exec,
            serve,
            spans,
        }
    }

    /// Shows these levels too, looked up at every scrape.
    pub fn watch(&mut self, levels: impl Fn() -> Vec<Level> + Send + Sync + 'static) {
        let levels = levels::Levels(Box::new(levels));
        self.registry.register_collector(Box::new(levels));
    }

    /// The OpenMetrics text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string never fails");
        text
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
            "Connections and HTTP/2 streams ended because nothing could be written",
            metrics.write_stalls.clone(),
        );
        registry.register(
            "exec_handshakes",
            "Clients of the exec listener that were proved, or why not",
            metrics.handshakes.clone(),
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
        let mut metrics = Metrics::new();
        metrics.attach.streams.inc();
        metrics.attach.stream_ended("left");
        metrics.attach.hub.reconnects.inc();
        metrics.attach.hub.tee_ended("flushed");
        let batch = Appended {
            parts: 32,
            bytes: 4096,
        };
        metrics.attach.hub.stored(batch);
        let labels = ExecLabels {
            op: OperationName::Observe.as_str(),
            result: ExecCode::ExecTransport.as_str(),
        };
        metrics.exec.total.get_or_create(&labels).inc();
        metrics.watch(|| {
            vec![Level {
                name: "sources",
                help: "Live turns being read",
                value: 7,
            }]
        });
        let text = metrics.text();
        for line in [
            "streams 1",
            "streams_ended_total{result=\"left\"} 1",
            "source_reconnects_total 1",
            "tee_batches_total 1",
            "tee_parts_total 32",
            "tee_bytes_total 4096",
            "tee_ends_total{result=\"flushed\"} 1",
            "exec_total{op=\"observe\",result=\"exec_transport\"} 1",
            "sources 7",
        ] {
            assert!(
                text.contains(&format!("bex_gateway_{line}\n")),
                "{line}: {text}"
            );
        }
    }
}
