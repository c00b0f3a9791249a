//! What the attach listener and its hub count.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::RefusedLabels;

/// What the attach listener did.
#[derive(Debug, Clone, Default)]
pub struct AttachMetrics {
    /// Open viewers' streams: bodies that somebody still reads.
    pub streams: Gauge,
    /// Requests that got no stream, by code.
    pub refused: Family<RefusedLabels, Counter>,
    /// Streams that ended, by the word of their audit row.
    pub ended: Family<ResultLabel, Counter>,
    /// The hub.
    pub hub: HubMetrics,
}

/// What sources and tees did.
#[derive(Debug, Clone, Default)]
pub struct HubMetrics {
    /// Drivers dialled again after a connection broke.
    pub reconnects: Counter,
    batches: Counter,
    parts: Counter,
    bytes: Counter,
    ends: Family<ResultLabel, Counter>,
}

/// One append that succeeded.
#[derive(Debug, Clone, Copy)]
pub struct Appended {
    /// Parts in it.
    pub parts: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Label of an end.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ResultLabel {
    /// How it ended.
    pub result: &'static str,
}

impl AttachMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("streams", "Open viewers' streams", metrics.streams.clone());
        registry.register(
            "attach_refused",
            "Attach requests that got no stream",
            metrics.refused.clone(),
        );
        registry.register(
            "streams_ended",
            "Viewers' streams that ended",
            metrics.ended.clone(),
        );
        metrics.hub.register(registry);
        metrics
    }

    /// A stream has ended.
    pub fn stream_ended(&self, result: &'static str) {
        self.ended.get_or_create(&ResultLabel { result }).inc();
    }
}

impl HubMetrics {
    fn register(&self, registry: &mut Registry) {
        registry.register(
            "source_reconnects",
            "Drivers dialled again after a connection broke",
            self.reconnects.clone(),
        );
        registry.register(
            "tee_batches",
            "Appends of live parts that succeeded",
            self.batches.clone(),
        );
        registry.register("tee_parts", "Live parts appended", self.parts.clone());
        registry.register_with_unit(
            "tee",
            "Bytes of live parts appended",
            Unit::Bytes,
            self.bytes.clone(),
        );
        registry.register("tee_ends", "Tees that ended", self.ends.clone());
    }

    /// A batch is in the store.
    pub fn stored(&self, batch: Appended) {
        self.batches.inc();
        self.parts.inc_by(batch.parts);
        self.bytes.inc_by(batch.bytes);
    }

    /// Batches and parts stored.
    #[cfg(test)]
    pub(crate) fn tee(&self) -> (u64, u64) {
        (self.batches.get(), self.parts.get())
    }

    /// A tee has ended.
    pub fn tee_ended(&self, result: &'static str) {
        self.ends.get_or_create(&ResultLabel { result }).inc();
    }
}
