//! What the users of a session do. All of it follows from the seed and the session's number.

use std::time::Duration;

use crate::rng::Rng;

/// What a turn's user does before the agent is done, or what the agent itself does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Midway {
    /// The agent says all of it.
    Nothing,
    /// Stops the turn after so many lines.
    Stop(u32),
    /// The agent falls silent in the middle, and the turn is stopped then.
    StopSilent,
    /// Cancels the session after so many lines.
    Cancel(u32),
    /// The agent crashes in the middle.
    Crash,
}

#[derive(Debug, Clone)]
pub struct TurnPlan {
    pub prompt: String,
    /// The file that the agent keeps its text in.
    pub record: String,
    /// Lines.
    pub lines: u32,
    pub midway: Midway,
    /// Before the turn begins; longer than an idle sandbox lives, or not.
    pub pause: Duration,
}

/// One viewer.
#[derive(Debug, Clone, Copy)]
pub struct ViewerPlan {
    /// Chooses its first gateway.
    pub first: usize,
    /// Leaves after so many events and comes back with its cursor.
    pub leaves: Option<u32>,
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub number: u64,
    pub turns: Vec<TurnPlan>,
    pub viewers: Vec<ViewerPlan>,
}

impl Plan {
    pub fn of(seed: u64, number: u64) -> Self {
        let mut rng = Rng::of(seed, 1_000 + number);
        let turns = 1 + rng.weighted([45, 35, 20].into_iter()) as u32;
        let turns = (1..=turns)
            .map(|turn| TurnPlan::of(&mut rng, number, turn))
            .collect();
        let viewers = rng.weighted([40, 42, 18].into_iter());
        let viewers = (0..viewers).map(|_| ViewerPlan {
            first: rng.below(1024) as usize,
            leaves: rng.chance(25).then(|| rng.within(5..60) as u32),
        });
        let viewers = viewers.collect();
        Self {
            number,
            turns,
            viewers,
        }
    }
}

impl TurnPlan {
    fn of(rng: &mut Rng, number: u64, turn: u32) -> Self {
        let lines = rng.within(20..100) as u32;
        let pace = rng.within(8..25);
        let size = if rng.chance(10) {
            4_000
        } else {
            rng.within(60..400)
        };
        let early = rng.within(1..u64::from(lines) * 2 / 3) as u32;
        let midway = match rng.weighted([68, 12, 6, 8, 6].into_iter()) {
            0 => Midway::Nothing,
            1 => Midway::Stop(early),
            2 => Midway::StopSilent,
            3 => Midway::Cancel(early),
            _ => Midway::Crash,
        };
        let word = match midway {
            Midway::StopSilent => " hang",
            Midway::Crash => " crash",
            Midway::Nothing | Midway::Stop(_) | Midway::Cancel(_) => "",
        };
        let record = format!("s{number}-t{turn}");
        let prompt = format!(
            "session {number} turn {turn}: parts={lines} pace={pace} size={size} record={record}{word}"
        );
        let pause = if rng.chance(25) {
            rng.millis(3_000..6_000)
        } else {
            rng.millis(0..300)
        };
        Self {
            prompt,
            record,
            lines,
            midway,
            pause,
        }
    }
}
