//! Metrics of this process: one registry, one struct per area, passed in and never global. No label is unbounded.

mod completer;
mod dispatch;
mod housekeeping;
mod http;
mod keeping;
mod levels;
mod oidc;
mod packages;
mod remote;

use bex_telemetry::SpanMetrics;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

pub use completer::{CompleterMetrics, RoundResult, TickResult, VerdictLabels};
pub use dispatch::{DispatchMetrics, DispatchResult};
pub use housekeeping::TickMetrics;
pub use http::{ConnectionGuard, HttpMetrics, ListenerLabel, RequestLabels};
pub use keeping::{ExportResult, KeepingMetrics};
pub use levels::LevelsMetrics;
pub use oidc::OidcMetrics;
pub use packages::{Building, FetchResult, PackageMetrics};
pub use remote::{RemoteMetrics, ReportResult};

/// What the api counts.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Both listeners.
    pub http: HttpMetrics,
    /// Access tokens and the keys that prove them.
    pub oidc: OidcMetrics,
    /// Harvests and verdicts.
    pub completer: CompleterMetrics,
    /// Sandboxes made, turns delivered.
    pub dispatch: DispatchMetrics,
    /// What has expired is forgotten.
    pub housekeeping: TickMetrics,
    /// What is kept no longer is deleted.
    pub retention: TickMetrics,
    /// Settled turns are stated.
    pub proof: TickMetrics,
    /// Statements, exports, retention.
    pub keeping: KeepingMetrics,
    /// Remote sessions.
    pub remote: RemoteMetrics,
    /// Replay packages.
    pub packages: PackageMetrics,
    /// Spans of traces.
    pub spans: SpanMetrics,
    /// What is looked up at every scrape.
    pub levels: LevelsMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("bex_api");
        Self {
            http: HttpMetrics::register(&mut registry),
            oidc: OidcMetrics::register(&mut registry),
            completer: CompleterMetrics::register(&mut registry),
            dispatch: DispatchMetrics::register(&mut registry),
            housekeeping: TickMetrics::register(
                &mut registry,
                "housekeeping_ticks",
                "Looks for what has expired",
            ),
            retention: TickMetrics::register(
                &mut registry,
                "retention_ticks",
                "Looks for what is kept no longer",
            ),
            proof: TickMetrics::register(&mut registry, "proof_ticks", "Looks for turns to state"),
            keeping: KeepingMetrics::register(&mut registry),
            remote: RemoteMetrics::register(&mut registry),
            packages: PackageMetrics::register(&mut registry),
            spans: SpanMetrics::register(&mut registry),
            levels: LevelsMetrics::register(&mut registry),
            registry,
        }
    }
}

impl Metrics {
    /// The text that `/metrics` answers.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a text does not fail");
        text
    }
}
