//! Remote sessions: what machines report, and how the builders keep up.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::TickResult;

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportResult {
    /// Each event is there.
    Stored,
    /// More than is worked off, or too many reports at once.
    Backlog,
    /// The log is full.
    Full,
    /// Anything else that is the reporter's.
    Refused,
}

impl ReportResult {
    const ALL: [Self; 4] = [Self::Stored, Self::Backlog, Self::Full, Self::Refused];

    fn as_str(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Backlog => "backlog",
            Self::Full => "full",
            Self::Refused => "refused",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// See the module's text. Its default counts what nobody is shown.
#[derive(Debug, Clone, Default)]
pub struct RemoteMetrics {
    reports: Family<ResultLabel, Counter>,
    events: Counter,
    duplicates: Counter,
    looks: Family<ResultLabel, Counter>,
    held: Gauge,
    held_bytes: Gauge,
}

impl RemoteMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let m = &metrics;
        registry.register(
            "remote_reports",
            "Reports of machines, by what became of them",
            m.reports.clone(),
        );
        registry.register(
            "remote_events",
            "Events of remote sessions that were stored",
            m.events.clone(),
        );
        registry.register(
            "remote_duplicates",
            "Reported events that were stored before",
            m.duplicates.clone(),
        );
        registry.register(
            "remote_looks",
            "Looks of builders at a session",
            m.looks.clone(),
        );
        registry.register(
            "remote_builders",
            "Builders that are kept between looks",
            m.held.clone(),
        );
        registry.register(
            "remote_builder_bytes",
            "Log bytes that these hold, about",
            m.held_bytes.clone(),
        );
        for result in ReportResult::ALL {
            m.reports(result);
        }
        for result in [TickResult::Ok, TickResult::Error] {
            m.looks(result);
        }
        metrics
    }

    fn reports(&self, result: ReportResult) -> Counter {
        let result = result.as_str();
        self.reports.get_or_create_owned(&ResultLabel { result })
    }

    fn looks(&self, result: TickResult) -> Counter {
        let result = match result {
            TickResult::Ok => "ok",
            TickResult::Error => "error",
        };
        self.looks.get_or_create_owned(&ResultLabel { result })
    }

    /// A report was answered.
    pub fn reported(&self, result: ReportResult) {
        self.reports(result).inc();
    }

    /// Events of a report were stored, or had been.
    pub fn stored(&self, events: u64, duplicates: u64) {
        self.events.inc_by(events);
        self.duplicates.inc_by(duplicates);
    }

    /// A builder looked.
    pub fn looked(&self, result: TickResult) {
        self.looks(result).inc();
    }

    /// What is kept between looks.
    pub fn held(&self, builders: usize, bytes: usize) {
        self.held.set(i64::try_from(builders).unwrap_or(i64::MAX));
        self.held_bytes
            .set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}
