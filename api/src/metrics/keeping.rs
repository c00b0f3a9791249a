//! What is made of the record and what is removed of it.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::retention::Swept;

/// How an export ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportResult {
    /// Written to its end.
    Done,
    /// Its reader went away.
    Left,
    /// The store failed, or the session was deleted under it.
    Broken,
    /// There was no place for it.
    Refused,
}

impl ExportResult {
    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Left => "left",
            Self::Broken => "broken",
            Self::Refused => "refused",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhatLabel {
    what: &'static str,
}

/// See the module's text. Its default counts what nobody is shown.
#[derive(Debug, Clone, Default)]
pub struct KeepingMetrics {
    statements: Counter,
    exports: Family<ResultLabel, Counter>,
    removed: Family<WhatLabel, Counter>,
}

impl KeepingMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let m = &metrics;
        registry.register(
            "statements",
            "Signed statements about settled turns",
            m.statements.clone(),
        );
        registry.register("exports", "Ended exports", m.exports.clone());
        registry.register(
            "retention_removed",
            "What was removed because it is kept no longer",
            m.removed.clone(),
        );
        for result in [
            ExportResult::Done,
            ExportResult::Left,
            ExportResult::Broken,
            ExportResult::Refused,
        ] {
            m.of(result);
        }
        metrics.removed(&Swept::default());
        metrics
    }

    fn of(&self, result: ExportResult) -> Counter {
        let result = result.as_str();
        self.exports.get_or_create_owned(&ResultLabel { result })
    }

    /// Turns were stated.
    pub fn stated(&self, turns: u32) {
        self.statements.inc_by(u64::from(turns));
    }

    /// An export ended.
    pub fn exported(&self, result: ExportResult) {
        self.of(result).inc();
    }

    /// A retention sweep ended.
    pub fn removed(&self, swept: &Swept) {
        for (what, count) in [
            ("sessions", swept.sessions),
            ("parts", swept.parts),
            ("events", swept.events),
            ("executions", swept.executions),
            ("records", swept.records),
            ("audit_rows", swept.audit_rows),
        ] {
            let label = WhatLabel { what };
            self.removed.get_or_create_owned(&label).inc_by(count);
        }
    }
}
