//! Sessions and processes for tests of one thing at a time.

use std::sync::Arc;
use std::time::Duration;

use bex_api::completer::store::CompleterStore;
use bex_api::completer::{Completer, CompleterDeps};
use bex_api::config::Timings;
use bex_api::metrics::Metrics;
use bex_api::notices::Notices;
use bex_proto::{Generation, SessionId, TurnNo};
use bex_store::dispatch::{BeginGeneration, Delivery};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::process::{Calls, Damage, Fate, Fates, Peer, Process, Sandboxes};
use crate::rng::Rng;
use crate::sandbox::World;
use crate::scenario::NEW_SANDBOX;
use crate::store::Model;
use crate::trace::Trace;

pub const T1: TurnNo = TurnNo(1);
pub const G1: Generation = Generation(1);

/// A process that runs until it is dropped.
pub struct Running {
    pub process: Arc<Process>,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.process.kill();
        self.task.abort();
    }
}

/// Every call takes its usual time and does what it should.
pub struct Steady {
    pub store: Duration,
    pub exec: Duration,
    pub lifecycle: Duration,
}

impl Fates for Steady {
    fn fate(&self, _: &str, peer: Peer, _: &'static str) -> (Duration, Fate) {
        let takes = match peer {
            Peer::Store => self.store,
            Peer::Exec => self.exec,
            Peer::Lifecycle => self.lifecycle,
        };
        (takes, Fate::Well)
    }
}

/// Starts a Completer.
pub fn completer(
    name: &str,
    store: Arc<dyn CompleterStore>,
    world: &Arc<World>,
    timings: Timings,
    fates: Arc<dyn Fates>,
) -> Running {
    let process = Process::new(name, fates);
    let sandboxes = Arc::new(Sandboxes {
        process: Arc::clone(&process),
        world: Arc::clone(world),
        rng: Arc::new(Rng::new(0)),
        trace: Arc::new(Trace::new()),
        damage: Arc::new(Damage::default),
        before_removal: Arc::new(|_| {}),
    });
    let completer = Arc::new(Completer::new(CompleterDeps {
        db: Arc::new(Calls {
            process: Arc::clone(&process),
            store,
        }),
        owner: name.into(),
        rpc: sandboxes.clone(),
        lifecycle: sandboxes,
        timings,
        notices: Notices::default(),
        metrics: Metrics::default().completer,
    }));
    let task = tokio::spawn(completer.run(CancellationToken::new()));
    Running { process, task }
}

/// A session whose first turn its driver has, and is about to speak.
pub fn delivered(model: &Model, world: &World, id: &SessionId) {
    model.create(id);
    let claim = model
        .claim_dispatches()
        .into_iter()
        .find(|claim| claim.session == *id)
        .expect("its dispatch is due");
    let begun = model.begin_generation(&claim, &NEW_SANDBOX);
    assert_eq!(begun, BeginGeneration::Begun { generation: G1 });
    let uid = world.create(id, G1);
    model.sandbox_ready(&claim, G1, &uid);
    model.begin_delivery(&claim, G1);
    assert!(world.begin(id, G1, T1));
    model.delivered(&claim, Delivery::Accepted);
}
