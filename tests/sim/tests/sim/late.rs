//! What a dead process asked for is done when somebody else has long gone on: the fence refuses it.

use std::sync::Arc;
use std::time::Duration;

use bex_proto::SessionId;
use bex_proto::driver::TurnState;
use bex_proto::session::Verdict;
use tokio::time::{sleep, timeout};

use crate::process::{Fate, Fates, Peer};
use crate::rng::Rng;
use crate::sandbox::{World, part};
use crate::scenario::TIMINGS;
use crate::setup::{G1, Steady, T1, completer, delivered};
use crate::store::Model;

/// So long its settle is on its way.
const LATE: Duration = Duration::from_secs(90);

/// Dies with its first settle, which is done much later.
struct LateSettle;

impl Fates for LateSettle {
    fn fate(&self, _: &str, _: Peer, call: &'static str) -> (Duration, Fate) {
        let fate = match call {
            "settle" => Fate::DiesAndLate(LATE),
            _ => Fate::Well,
        };
        (Duration::from_millis(1), fate)
    }
}

#[tokio::test(start_paused = true)]
async fn a_settle_of_a_lost_lease_changes_nothing() {
    let (model, world) = (Arc::new(Model::new()), Arc::new(World::default()));
    let id: SessionId = Rng::new(3).id("ags").parse().expect("an id");
    delivered(&model, &world, &id);
    world.with_pod(&id, G1, |pod| pod.hung = true);
    // nothing could be read for as long as the window lasts: it calls the sandbox lost, and dies
    let first = completer("a", model.clone(), &world, TIMINGS, Arc::new(LateSettle));
    let window = TIMINGS.status_unreadable * 2;
    timeout(window, first.process.died())
        .await
        .expect("it settles");
    drop(first);
    // then the sandbox answers again, and the next one sees it speak
    world.with_pod(&id, G1, |pod| pod.hung = false);
    let steady = Steady {
        store: Duration::from_millis(1),
        exec: Duration::from_millis(50),
        lifecycle: Duration::from_millis(50),
    };
    let _next = completer("b", model.clone(), &world, TIMINGS, Arc::new(steady));
    for n in 0..120 {
        assert!(world.say(&id, G1, T1, part(n, "")), "part {n}");
        sleep(Duration::from_secs(1)).await;
        let verdict = model.turn_row(&id, T1).expect("begun").verdict;
        assert_eq!(verdict, Verdict::Open, "after part {n}");
    }
    world.end(&id, G1, T1, TurnState::Succeeded);
    sleep(TIMINGS.completer_tick + Duration::from_secs(2)).await;
    let row = model.turn_row(&id, T1).expect("begun");
    assert_eq!((row.verdict, row.stored_parts), (Verdict::Complete, 120));
}
