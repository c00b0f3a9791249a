//! The Completer: rounds, harvests, verdicts.

use std::time::Duration;

use bex_proto::session::{TruncationReason, Verdict};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Upper bounds in seconds: from a harvest right behind the speech to one after a gateway's outage.
const LAG_BUCKETS: [f64; 8] = [0.5, 2.0, 5.0, 15.0, 30.0, 60.0, 300.0, 1800.0];
/// Upper bounds in seconds: from a look at a quiet turn to a round's limit.
const ROUND_BUCKETS: [f64; 8] = [0.01, 0.05, 0.2, 1.0, 5.0, 20.0, 60.0, 600.0];

/// A settled turn.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct VerdictLabels {
    /// `complete` or `truncated`.
    pub verdict: &'static str,
    /// Why it is truncated; `none` of a complete one.
    pub reason: &'static str,
}

/// How a loop's look for work ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TickResult {
    /// The store answered.
    Ok,
    /// It did not.
    Error,
}

/// How a round of one session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoundResult {
    /// Everything was done.
    Done,
    /// It is tried again, with a delay.
    Failed,
    /// It took too long and is tried again.
    TimedOut,
    /// Somebody else holds the session.
    LeaseLost,
    /// A fault of ours.
    Panicked,
}

impl TickResult {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
        }
    }
}

impl RoundResult {
    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::LeaseLost => "lease_lost",
            Self::Panicked => "panicked",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// See the module's text.
#[derive(Debug, Clone)]
pub struct CompleterMetrics {
    ticks: Family<ResultLabel, Counter>,
    sweeps: Family<ResultLabel, Counter>,
    orphans: Counter,
    idle_lost: Counter,
    rounds: Family<ResultLabel, Counter>,
    round_seconds: Histogram,
    active: Gauge,
    settled: Family<VerdictLabels, Counter>,
    healed: Counter,
    harvest_bytes: Counter,
    harvest_parts: Counter,
    harvest_lag: Histogram,
    harvest_faults: Counter,
    harvest_windows: Gauge,
}

impl CompleterMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            ticks: Family::default(),
            sweeps: Family::default(),
            orphans: Counter::default(),
            idle_lost: Counter::default(),
            rounds: Family::default(),
            round_seconds: Histogram::new(ROUND_BUCKETS),
            active: Gauge::default(),
            settled: Family::default(),
            healed: Counter::default(),
            harvest_bytes: Counter::default(),
            harvest_parts: Counter::default(),
            harvest_lag: Histogram::new(LAG_BUCKETS),
            harvest_faults: Counter::default(),
            harvest_windows: Gauge::default(),
        };
        let m = &metrics;
        registry.register("completer_ticks", "Looks for due sessions", m.ticks.clone());
        registry.register(
            "sweeps",
            "Looks for sandboxes without a row and rows without a sandbox",
            m.sweeps.clone(),
        );
        registry.register(
            "orphans_removed",
            "Sandboxes removed that no row names",
            m.orphans.clone(),
        );
        registry.register(
            "idle_lost",
            "Idle sandboxes that were found to be gone",
            m.idle_lost.clone(),
        );
        registry.register(
            "completer_rounds",
            "Ended rounds of one session",
            m.rounds.clone(),
        );
        registry.register_with_unit(
            "completer_round_duration",
            "Time of a round",
            Unit::Seconds,
            m.round_seconds.clone(),
        );
        registry.register("completer_active", "Rounds that run", m.active.clone());
        registry.register(
            "turns_settled",
            "Turns that got their verdict here",
            m.settled.clone(),
        );
        registry.register(
            "turns_healed",
            "Truncated turns that became complete",
            m.healed.clone(),
        );
        registry.register_with_unit(
            "harvest",
            "Log bytes that were read into the store",
            Unit::Bytes,
            m.harvest_bytes.clone(),
        );
        registry.register(
            "harvest_parts",
            "Parts that the harvest stored and no tee had",
            m.harvest_parts.clone(),
        );
        registry.register_with_unit(
            "harvest_lag",
            "Age of a log's oldest new part when it was read: what a lost sandbox would have cost",
            Unit::Seconds,
            m.harvest_lag.clone(),
        );
        registry.register(
            "harvest_faults",
            "Harvests that ended early",
            m.harvest_faults.clone(),
        );
        registry.register(
            "harvest_windows",
            "Windows of logs that are held in memory",
            m.harvest_windows.clone(),
        );
        metrics
    }

    /// Due sessions were looked for.
    pub fn ticked(&self, result: TickResult) {
        let result = result.as_str();
        self.ticks.get_or_create(&ResultLabel { result }).inc();
    }

    /// A sweep ended.
    pub fn swept(&self, result: TickResult) {
        let result = result.as_str();
        self.sweeps.get_or_create(&ResultLabel { result }).inc();
    }

    /// A sandbox that no row names is gone.
    pub fn orphan_removed(&self) {
        self.orphans.inc();
    }

    /// An idle sandbox was found to be gone.
    pub fn idle_lost(&self) {
        self.idle_lost.inc();
    }

    /// So many rounds run; the bound is [`bex_proto::limits::COMPLETER_PARALLEL`].
    pub fn set_active(&self, rounds: usize) {
        self.active.set(i64::try_from(rounds).unwrap_or(i64::MAX));
    }

    /// A round ended; of one that panicked nobody knows how long it took.
    pub fn round_ended(&self, result: RoundResult, took: Option<Duration>) {
        let result = result.as_str();
        self.rounds.get_or_create(&ResultLabel { result }).inc();
        if let Some(took) = took {
            self.round_seconds.observe(took.as_secs_f64());
        }
    }

    /// A turn got its verdict.
    pub fn settled(&self, verdict: Verdict, reason: Option<TruncationReason>) {
        let labels = VerdictLabels {
            verdict: verdict.as_str(),
            reason: reason.map_or("none", TruncationReason::as_str),
        };
        self.settled.get_or_create(&labels).inc();
    }

    /// A truncated turn became complete.
    pub fn healed(&self) {
        self.healed.inc();
    }

    /// A log was read: this many new bytes of it, of which so many parts were new to the store; `lag` is the age of the
    /// oldest new part, where the driver said when it was spoken.
    pub fn harvested(&self, bytes: u64, parts: u32, lag: Option<Duration>) {
        self.harvest_bytes.inc_by(bytes);
        self.harvest_parts.inc_by(u64::from(parts));
        if let Some(lag) = lag {
            self.harvest_lag.observe(lag.as_secs_f64());
        }
    }

    /// Windows that are held; the bound is [`bex_proto::limits::HARVEST_WINDOWS`].
    pub fn harvest_windows(&self) -> Gauge {
        self.harvest_windows.clone()
    }

    /// A harvest ended early.
    pub fn harvest_failed(&self) {
        self.harvest_faults.inc();
    }
}
