//! What a seed decides before its run begins.

use std::time::Duration;

use bex_proto::SessionId;
use bex_proto::driver::TurnState;

use crate::gateway::Noise;
use crate::process::Damage;
use crate::rng::Rng;
use crate::sandbox::Tampering;

/// How bad it is, of a thousand calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weather {
    pub refused: u32,
    pub answer_lost: u32,
    pub late: u32,
    pub twice: u32,
    pub dies: u32,
    pub slow: u32,
    pub damage: Damage,
    pub noise: Noise,
    /// Clock steps of the store: so many in all, each within so many milliseconds.
    pub steps: (u32, u64),
}

/// What becomes of one turn.
#[derive(Debug, Clone)]
pub struct TurnPlan {
    pub parts: usize,
    /// Longest time between two parts.
    pub pace: Duration,
    pub end: Option<TurnState>,
    pub tampering: Option<(usize, Tampering)>,
    /// From which part on the log is full.
    pub full_at: Option<usize>,
    /// The sandbox is gone so long after the turn began.
    pub dies_after: Option<Duration>,
    pub hangs_after: Option<Duration>,
    pub ambiguous: Option<(Duration, Duration)>,
    pub watched_after: Option<Duration>,
    pub stop_after: Option<Duration>,
    pub cancel_after: Option<Duration>,
    /// The dispatcher says so late that it delivered.
    pub concluded_after: Duration,
}

/// Everything that a seed decides beforehand.
#[derive(Debug, Clone)]
pub struct Plan {
    pub weather: Weather,
    pub quiet_at: Duration,
    pub sessions: Vec<SessionPlan>,
    pub orphan: bool,
}

#[derive(Debug, Clone)]
pub struct SessionPlan {
    pub id: SessionId,
    pub part_limit: Option<u64>,
    /// The store refuses every batch of it.
    pub poisoned: bool,
    pub archive: bool,
    pub turns: Vec<TurnPlan>,
    pub pause: Duration,
}

impl Plan {
    pub fn of(rng: &Rng) -> Self {
        let heavy = rng.below(4);
        let of = |permille: u64| {
            // some faults are there in a run, some are not; in the heaviest weather all are
            let scale = if heavy == 3 || rng.chance(500) {
                heavy
            } else {
                0
            };
            (permille * scale / 3) as u32
        };
        let weather = Weather {
            refused: of(60),
            answer_lost: of(40),
            late: of(20),
            twice: of(60),
            dies: of(15),
            slow: of(60),
            damage: Damage {
                cut: of(100),
                corrupt: of(40),
                silent: of(40),
                away: of(60),
                unknown: of(100),
            },
            noise: Noise {
                breaks: of(150),
                repeats: of(150),
                loses: of(30),
            },
            steps: if rng.chance(250) {
                (rng.below(4) as u32, 30_000)
            } else {
                (0, 0)
            },
        };
        let sessions = (0..1 + rng.below(3))
            .map(|_| SessionPlan::of(rng))
            .collect();
        Self {
            weather,
            quiet_at: rng.seconds(180, 900),
            sessions,
            orphan: rng.chance(150),
        }
    }
}

impl SessionPlan {
    fn of(rng: &Rng) -> Self {
        Self {
            id: rng.id("ags").parse().expect("an id"),
            part_limit: rng.chance(100).then(|| rng.below(40)),
            poisoned: rng.chance(30),
            archive: rng.chance(200),
            turns: (0..1 + rng.below(3)).map(|_| TurnPlan::of(rng)).collect(),
            pause: rng.seconds(0, 90),
        }
    }
}

impl TurnPlan {
    fn of(rng: &Rng) -> Self {
        let parts = rng.pick(&[0, 1, 5, 40, 150]);
        let pace = rng.pick(&[5, 100, 1000, 8000, 40_000]);
        let at = |permille, from, to| rng.chance(permille).then(|| rng.seconds(from, to));
        let tampering = rng.pick(&[
            Tampering::RotatedWhole,
            Tampering::RotatedEmpty,
            Tampering::Shrunk,
            Tampering::Altered,
        ]);
        Self {
            parts,
            pace: Duration::from_millis(pace),
            end: rng.pick(&[
                Some(TurnState::Succeeded),
                Some(TurnState::Succeeded),
                Some(TurnState::Succeeded),
                Some(TurnState::Failed),
                None,
            ]),
            tampering: rng.chance(200).then(|| (rng.index(parts + 1), tampering)),
            full_at: rng.chance(120).then(|| rng.index(parts + 1)),
            dies_after: at(180, 0, 240),
            hangs_after: at(60, 0, 120),
            ambiguous: at(150, 0, 120).map(|from| (from, rng.seconds(5, 100))),
            watched_after: at(600, 0, 60),
            stop_after: at(120, 0, 120),
            cancel_after: at(120, 0, 120),
            concluded_after: rng.millis(0, 20_000),
        }
    }
}
