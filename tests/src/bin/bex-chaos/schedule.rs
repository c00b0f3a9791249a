//! Which fault comes when. All of it follows from the seed; only whom a fault finds at work depends on the run.

use std::time::Duration;

use crate::rng::Rng;

/// The first fault comes when sessions speak.
const FIRST: Duration = Duration::from_secs(4);
/// From one fault to the next, milliseconds.
const APART: std::ops::Range<u64> = 400..3_200;

/// What fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    GatewayKilled,
    ApiKilled,
    MemberPaused,
    DriverKilled,
    SandboxKilled,
    AgentKilled,
    PostgresKilled,
    PostgresStopped,
    DatabaseCut,
    DatabaseFrozen,
    ExecCut,
    ExecFrozen,
    DiskFull,
}

impl Kind {
    /// Every kind, how often it comes, and how long it lasts, milliseconds.
    const ALL: [(Self, u64, std::ops::Range<u64>); 13] = [
        (Self::GatewayKilled, 12, 0..3_000),
        (Self::ApiKilled, 12, 0..3_000),
        (Self::MemberPaused, 5, 500..24_000),
        (Self::DriverKilled, 10, 0..1),
        (Self::SandboxKilled, 5, 0..1),
        (Self::AgentKilled, 12, 0..1),
        (Self::PostgresKilled, 5, 0..4_000),
        (Self::PostgresStopped, 5, 0..4_000),
        (Self::DatabaseCut, 12, 100..6_000),
        (Self::DatabaseFrozen, 8, 500..9_000),
        (Self::ExecCut, 8, 100..8_000),
        (Self::ExecFrozen, 6, 500..9_000),
        (Self::DiskFull, 12, 300..6_000),
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::GatewayKilled => "gateway killed",
            Self::ApiKilled => "api killed",
            Self::MemberPaused => "gateway or api paused",
            Self::DriverKilled => "driver killed",
            Self::SandboxKilled => "whole sandbox killed",
            Self::AgentKilled => "agent killed",
            Self::PostgresKilled => "PostgreSQL killed",
            Self::PostgresStopped => "PostgreSQL stopped",
            Self::DatabaseCut => "link to PostgreSQL cut",
            Self::DatabaseFrozen => "link to PostgreSQL frozen",
            Self::ExecCut => "link to the gateways cut",
            Self::ExecFrozen => "link to the gateways frozen",
            Self::DiskFull => "disk full under a driver's log",
        }
    }
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Since the beginning.
    pub at: Duration,
    pub kind: Kind,
    pub lasts: Duration,
    /// Chooses among those whom it can hit.
    pub which: u64,
}

/// All faults of a run: first every kind once, in any order, then as often as their weights say.
pub fn schedule(seed: u64, over: Duration) -> Vec<Fault> {
    let mut rng = Rng::of(seed, 1);
    let mut first: Vec<usize> = (0..Kind::ALL.len()).collect();
    for n in (1..first.len()).rev() {
        first.swap(n, rng.below(n as u64 + 1) as usize);
    }
    let mut first = first.into_iter();
    let (mut faults, mut at) = (Vec::new(), FIRST);
    while at < over {
        let weights = Kind::ALL.iter().map(|(_, weight, _)| *weight);
        let n = first.next().unwrap_or_else(|| rng.weighted(weights));
        let (kind, _, lasts) = &Kind::ALL[n];
        faults.push(Fault {
            at,
            kind: *kind,
            lasts: rng.millis(lasts.clone()),
            which: rng.next(),
        });
        at += rng.millis(APART);
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_is_a_schedule_and_every_kind_is_in_it() {
        let minutes = Duration::from_secs(180);
        let faults = schedule(7, minutes);
        assert_eq!(faults, schedule(7, minutes));
        assert_ne!(faults, schedule(8, minutes));
        let kinds: BTreeSet<Kind> = faults.iter().map(|fault| fault.kind).collect();
        assert_eq!(kinds.len(), Kind::ALL.len());
        assert!(faults.iter().all(|fault| fault.at < minutes));
        assert!(faults.is_sorted_by_key(|fault| fault.at));
    }
}
