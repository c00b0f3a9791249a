//! Numbers that are looked up when somebody asks, because what they count is counted already.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;

/// One number now.
#[derive(Debug, Clone, Copy)]
pub struct Level {
    /// The metric's name, without the process's prefix.
    pub name: &'static str,
    /// What it is, without a full stop.
    pub help: &'static str,
    /// How much.
    pub value: usize,
}

/// Who can be asked for levels; answers at once and never waits.
pub(super) struct Levels(pub(super) Box<dyn Fn() -> Vec<Level> + Send + Sync>);

impl fmt::Debug for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((self.0)()).finish()
    }
}

impl Collector for Levels {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for level in (self.0)() {
            let gauge = ConstGauge::new(i64::try_from(level.value).unwrap_or(i64::MAX));
            let kind = gauge.metric_type();
            gauge.encode(encoder.encode_descriptor(level.name, level.help, None, kind)?)?;
        }
        Ok(())
    }
}
