//! What the listeners answered and hold.

use std::time::Duration;

use bex_proto::problem::Code;
use prometheus_client::encoding::EncodeLabelSet;
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

/// Label of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ListenerLabel {
    /// Its name.
    pub listener: &'static str,
}

/// Label of a problem.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProblemLabel {
    code: &'static str,
}

/// Requests and connections.
#[derive(Debug, Clone)]
pub struct HttpMetrics {
    requests: Family<RequestLabels, Counter>,
    problems: Family<ProblemLabel, Counter>,
    seconds: Histogram,
    connections: Family<ListenerLabel, Gauge>,
    write_stalls: Family<ListenerLabel, Counter>,
}

impl HttpMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            problems: Family::default(),
            seconds: Histogram::new(BUCKETS),
            connections: Family::default(),
            write_stalls: Family::default(),
        };
        registry.register(
            "http_requests",
            "Answered requests",
            metrics.requests.clone(),
        );
        registry.register(
            "http_problems",
            "Requests answered with a problem",
            metrics.problems.clone(),
        );
        registry.register_with_unit(
            "http_request_duration",
            "Time from a request to its answer's head",
            Unit::Seconds,
            metrics.seconds.clone(),
        );
        registry.register(
            "http_connections",
            "Open connections",
            metrics.connections.clone(),
        );
        registry.register(
            "http_write_stalls",
            "Connections ended because nothing could be written",
            metrics.write_stalls.clone(),
        );
        metrics
    }

    /// A request was answered.
    pub fn answered(&self, labels: RequestLabels, took: Duration) {
        self.requests.get_or_create(&labels).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// A request was answered with this problem.
    pub fn refused(&self, code: Code) {
        let code = code.as_str();
        self.problems.get_or_create(&ProblemLabel { code }).inc();
    }

    /// Counts a connection while the guard lives.
    pub fn connection(&self, listener: &'static str) -> ConnectionGuard {
        let gauge = self
            .connections
            .get_or_create_owned(&ListenerLabel { listener });
        gauge.inc();
        // shown before the first one
        drop(self.write_stalls.get_or_create(&ListenerLabel { listener }));
        ConnectionGuard(gauge)
    }

    /// A connection was ended because its peer took nothing.
    pub fn stalled(&self, listener: &'static str) {
        self.write_stalls
            .get_or_create(&ListenerLabel { listener })
            .inc();
    }
}

/// See [`HttpMetrics::connection`].
#[derive(Debug)]
pub struct ConnectionGuard(Gauge);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
