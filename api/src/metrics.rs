//! Metrics of this process. The registry is passed in, never global; labels are bounded.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Upper bounds in seconds: the store's milliseconds up to the turns verb's wait.
const BUCKETS: [f64; 10] = [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0, 10.0, 30.0];

/// One route's answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    /// The method.
    pub method: &'static str,
    /// The route's pattern, never the path.
    pub route: String,
    /// The status.
    pub status: u16,
}

/// What the api counts.
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    seconds: Histogram,
    connections: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("bex_api");
        let requests = Family::default();
        registry.register("http_requests", "Answered requests", requests.clone());
        let seconds = Histogram::new(BUCKETS);
        registry.register_with_unit(
            "http_request_duration",
            "Time from a request to its answer's head",
            Unit::Seconds,
            seconds.clone(),
        );
        let connections = Gauge::default();
        registry.register("http_connections", "Open connections", connections.clone());
        Self {
            registry,
            requests,
            seconds,
            connections,
        }
    }
}

impl Metrics {
    /// A request was answered.
    pub fn answered(&self, labels: RequestLabels, took: Duration) {
        self.requests.get_or_create(&labels).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// Counts a connection while the guard lives.
    pub fn connection(&self) -> ConnectionGuard {
        self.connections.inc();
        ConnectionGuard(self.connections.clone())
    }

    /// The text that `/metrics` answers.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a text does not fail");
        text
    }
}

/// See [`Metrics::connection`].
#[derive(Debug)]
pub struct ConnectionGuard(Gauge);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
