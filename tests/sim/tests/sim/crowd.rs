//! Many sessions and a few that keep their rounds waiting; and one that goes on for days.

use std::sync::Arc;
use std::time::Duration;

use bex_api::config::Timings;
use bex_proto::SessionId;
use bex_proto::driver::TurnState;
use bex_proto::session::{Phase, Verdict};
use tokio::time::{Instant, sleep};

use crate::rng::Rng;
use crate::sandbox::{World, part};
use crate::scenario::TIMINGS;
use crate::setup::{G1, Running, Steady, T1, completer, delivered};
use crate::store::Model;

/// What every call takes, as on a cluster.
const STEADY: Steady = Steady {
    store: Duration::from_millis(3),
    exec: Duration::from_millis(100),
    lifecycle: Duration::from_millis(100),
};
const TICK: Duration = TIMINGS.completer_tick;
const SESSIONS: usize = 100;

struct Crowd {
    model: Arc<Model>,
    world: Arc<World>,
    rng: Rng,
}

impl Crowd {
    fn new() -> Self {
        Self {
            model: Arc::new(Model::new()),
            world: Arc::default(),
            rng: Rng::new(7),
        }
    }

    fn completer(&self, timings: Timings, fates: Steady) -> Running {
        let store = self.model.clone();
        completer("a", store, &self.world, timings, Arc::new(fates))
    }

    fn session(&self) -> SessionId {
        let id: SessionId = self.rng.id("ags").parse().expect("an id");
        delivered(&self.model, &self.world, &id);
        id
    }

    /// A session that has said everything.
    fn spoken(&self) -> SessionId {
        let id = self.session();
        for n in 0..3 {
            self.world.say(&id, G1, T1, part(n, ""));
        }
        self.world.end(&id, G1, T1, TurnState::Succeeded);
        id
    }

    fn hang(&self, id: &SessionId) {
        self.world.with_pod(id, G1, |pod| pod.hung = true);
    }

    fn is_complete(&self, id: &SessionId) -> bool {
        self.model.turn_row(id, T1).expect("begun").verdict == Verdict::Complete
    }

    /// How long it takes until all of them are complete.
    async fn until_complete(&self, sessions: &[SessionId]) -> Duration {
        let began = Instant::now();
        while !sessions.iter().all(|id| self.is_complete(id)) {
            assert!(began.elapsed() < TICK * 20, "not all are ever complete");
            sleep(Duration::from_millis(10)).await;
        }
        began.elapsed()
    }
}

/// The time until the healthy ones of a hundred are settled, the others hanging.
async fn finalized_with(hung: usize) -> Duration {
    let crowd = Crowd::new();
    // those that hang are due first
    for _ in 0..hung {
        let id = crowd.spoken();
        crowd.hang(&id);
        sleep(Duration::from_millis(1)).await;
    }
    let healthy: Vec<_> = (hung..SESSIONS).map(|_| crowd.spoken()).collect();
    let _completer = crowd.completer(TIMINGS, STEADY);
    crowd.until_complete(&healthy).await
}

#[tokio::test(start_paused = true)]
async fn sandboxes_that_hang_delay_nobodys_end() {
    let alone = finalized_with(0).await;
    assert!(alone < TICK, "{alone:?}");
    for (hung, most) in [(1, 1), (8, 1), (40, 5)] {
        let took = finalized_with(hung).await;
        let delay = took.saturating_sub(alone);
        eprintln!("{hung} of {SESSIONS} hang: {took:?}, {alone:?} without");
        // a quick seat is given up after a second, and there are eight
        assert!(
            delay <= Duration::from_millis(most * 1000 + 200),
            "{hung}: {delay:?}"
        );
        assert!(took < TICK, "{hung}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn known_to_hang_is_to_cost_nobody_anything() {
    let crowd = Crowd::new();
    let hung: Vec<_> = (0..8).map(|_| crowd.spoken()).collect();
    hung.iter().for_each(|id| crowd.hang(id));
    let _completer = crowd.completer(TIMINGS, STEADY);
    sleep(Duration::from_secs(60)).await;
    let alone = finalized_with(0).await;
    let healthy: Vec<_> = (0..SESSIONS).map(|_| crowd.spoken()).collect();
    let took = crowd.until_complete(&healthy).await;
    // a poll apart at most
    assert!(
        took <= alone + Duration::from_secs(1),
        "{took:?} and {alone:?}"
    );
    // and they have their verdict after the window, with the time of two reads that hang
    sleep(TIMINGS.status_unreadable - Duration::from_secs(10)).await;
    for id in &hung {
        let row = crowd.model.turn_row(id, T1).expect("begun");
        assert_eq!(row.verdict, Verdict::Truncated, "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn sandboxes_that_take_a_minute_to_die_delay_nobodys_end() {
    let crowd = Crowd::new();
    let timings = Timings {
        idle_grace: Duration::ZERO,
        ..TIMINGS
    };
    let slow = Steady {
        lifecycle: Duration::from_secs(60),
        ..STEADY
    };
    let _completer = crowd.completer(timings, slow);
    let dying: Vec<_> = (0..SESSIONS).map(|_| crowd.spoken()).collect();
    crowd.until_complete(&dying).await;
    sleep(Duration::from_secs(5)).await;
    let healthy: Vec<_> = (0..SESSIONS).map(|_| crowd.spoken()).collect();
    let took = crowd.until_complete(&healthy).await;
    assert!(took < TICK * 2, "{took:?}");
    // and all of them do die
    let living = || {
        crowd
            .world
            .pods()
            .iter()
            .filter(|(_, _, alive)| *alive)
            .count()
    };
    let began = Instant::now();
    while living() > 0 {
        assert!(
            began.elapsed() < Duration::from_secs(3600),
            "{} live",
            living()
        );
        sleep(Duration::from_secs(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_of_thirty_hours_with_a_part_a_minute_stays_live() {
    const PARTS: usize = 30 * 60;
    let crowd = Crowd::new();
    let id = crowd.session();
    // the contract's own deadline
    let timings = Timings {
        turn_deadline: bex_proto::limits::TURN_DEADLINE,
        ..TIMINGS
    };
    let store = crowd.model.clone();
    let _a = crowd.completer(timings, STEADY);
    let _b = completer("b", store, &crowd.world, timings, Arc::new(STEADY));
    for n in 0..PARTS {
        sleep(Duration::from_secs(60)).await;
        assert!(crowd.world.say(&id, G1, T1, part(n, "")), "part {n}");
        let phase = crowd.model.with(&id, |session| session.row.phase);
        assert_eq!(phase, Some(Phase::Running), "part {n}");
    }
    crowd.world.end(&id, G1, T1, TurnState::Succeeded);
    sleep(TICK + Duration::from_secs(2)).await;
    let row = crowd.model.turn_row(&id, T1).expect("begun");
    assert_eq!(
        (row.verdict, row.stored_parts as usize),
        (Verdict::Complete, PARTS)
    );
}
