//! Replay packages.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::package::PackageFault;

/// From a small session to the bound of a build.
const SECONDS: [f64; 9] = [0.02, 0.05, 0.1, 0.25, 1.0, 2.5, 5.0, 10.0, 25.0];
/// From a small session to the bound of a package.
const BYTES: [f64; 6] = [4e3, 64e3, 1e6, 16e6, 64e6, 268e6];
/// Tables in which another workspace's row can be met.
const TABLES: [&str; 8] = [
    "config_versions",
    "execution_nodes",
    "execution_sessions",
    "executions",
    "findings",
    "remote_sessions",
    "sessions",
    "usage_ledger",
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TableLabel {
    table: String,
}

/// How a fetch by a signed URL ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchResult {
    /// It was given.
    Given,
    /// The URL was not good.
    Refused,
    /// The object is gone.
    Gone,
    /// Something failed.
    Failed,
}

impl FetchResult {
    fn as_str(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Refused => "refused",
            Self::Gone => "gone",
            Self::Failed => "failed",
        }
    }
}

/// See the module's text. Its default counts what nobody is shown.
#[derive(Debug, Clone)]
pub struct PackageMetrics {
    asks: Family<ResultLabel, Counter>,
    foreign_rows: Family<TableLabel, Counter>,
    fetches: Family<ResultLabel, Counter>,
    building: Gauge,
    seconds: Histogram,
    bytes: Histogram,
    expiry: Gauge,
}

impl Default for PackageMetrics {
    fn default() -> Self {
        Self {
            asks: Family::default(),
            foreign_rows: Family::default(),
            fetches: Family::default(),
            building: Gauge::default(),
            seconds: Histogram::new(SECONDS),
            bytes: Histogram::new(BYTES),
            expiry: Gauge::default(),
        }
    }
}

/// Counts a build until it is dropped.
pub struct Building(Gauge);

impl Drop for Building {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl PackageMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let m = &metrics;
        registry.register("package_asks", "Asks for packages", m.asks.clone());
        registry.register(
            "package_foreign_rows",
            "Packages refused for a row of another workspace: somebody must look",
            m.foreign_rows.clone(),
        );
        registry.register(
            "package_fetches",
            "Fetches by signed URLs of this process",
            m.fetches.clone(),
        );
        registry.register(
            "packages_building",
            "Packages that are built now",
            m.building.clone(),
        );
        registry.register_with_unit(
            "package_build",
            "From an ask to a package that passed the gate",
            Unit::Seconds,
            m.seconds.clone(),
        );
        registry.register_with_unit("package", "Size of packages", Unit::Bytes, m.bytes.clone());
        registry.register(
            "package_expiry",
            "Whether objects go after a week: 1 yes, 0 no, -1 not known",
            m.expiry.clone(),
        );
        m.expiry.set(-1);
        for result in PackageFault::WORDS.into_iter().chain(["ok"]) {
            m.asks.get_or_create_owned(&ResultLabel { result });
        }
        for table in TABLES.map(str::to_owned) {
            m.foreign_rows.get_or_create_owned(&TableLabel { table });
        }
        for result in [
            FetchResult::Given,
            FetchResult::Refused,
            FetchResult::Gone,
            FetchResult::Failed,
        ] {
            let result = result.as_str();
            m.fetches.get_or_create_owned(&ResultLabel { result });
        }
        metrics
    }

    fn asked(&self, result: &'static str) {
        self.asks.get_or_create_owned(&ResultLabel { result }).inc();
    }

    /// A package was made.
    pub fn published(&self) {
        self.asked("ok");
    }

    /// There was none.
    pub fn refused(&self, fault: &PackageFault) {
        self.asked(fault.word());
        if let PackageFault::Foreign { table } = fault {
            let table = table.clone();
            self.foreign_rows
                .get_or_create_owned(&TableLabel { table })
                .inc();
        }
    }

    /// One more is being built, until this is dropped.
    pub fn building(&self) -> Building {
        self.building.inc();
        Building(self.building.clone())
    }

    /// One was built.
    pub fn built(&self, took: Duration, bytes: u64) {
        self.seconds.observe(took.as_secs_f64());
        #[expect(clippy::cast_precision_loss, reason = "a histogram's sum")]
        self.bytes.observe(bytes as f64);
    }

    /// Somebody came with a URL.
    pub fn fetched(&self, result: FetchResult) {
        let result = result.as_str();
        self.fetches
            .get_or_create_owned(&ResultLabel { result })
            .inc();
    }

    /// Whether objects go by themselves.
    pub fn expiry(&self, is_set: Option<bool>) {
        self.expiry.set(match is_set {
            Some(true) => 1,
            Some(false) => 0,
            None => -1,
        });
    }
}
