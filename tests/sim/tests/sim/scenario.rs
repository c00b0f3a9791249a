//! A run: sessions, their users and drivers, two Completers, a gateway, and the weather. Everything follows from the seed.

use std::sync::Arc;
use std::time::Duration;

use bex_api::completer::{Completer, CompleterDeps};
use bex_api::config::Timings;
use bex_api::metrics::Metrics;
use bex_api::notices::Notices;
use bex_proto::driver::TurnState;
use bex_proto::{Generation, SessionId, TurnNo};
use bex_store::dispatch::{
    BeginDelivery, BeginGeneration, Delivery, DispatchClaim, NewSandbox, Step,
};
use bex_store::sessions::BeginTurn;
use futures::future::join_all;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::check;
use crate::gateway::Watcher;
use crate::plan::{Plan, SessionPlan, TurnPlan, Weather};
use crate::process::{Calls, Fate, Fates, Peer, Process, Sandboxes, Tees};
use crate::rng::Rng;
use crate::sandbox::{World, part};
use crate::store::Model;
use crate::trace::Trace;

pub const NEW_SANDBOX: NewSandbox<'static> = NewSandbox {
    kind: "local",
    namespace: "ns",
    container: "c",
    legacy: false,
    driver_kid: "k",
};
/// The contract's numbers, but for those that would only make runs longer.
pub const TIMINGS: Timings = Timings {
    completer_tick: Duration::from_secs(15),
    idle_grace: Duration::from_secs(60),
    turn_deadline: Duration::from_secs(6 * 60),
    status_unreadable: Duration::from_secs(120),
};
/// After the weather is calm everything must come to its end in this time: the longest delays are those of teardowns.
const PATIENCE: Duration = Duration::from_secs(4 * 3600);
/// Nothing may change any more after the end.
const AFTERWARDS: Duration = Duration::from_secs(180);

/// What all parts of a run share.
pub struct Run {
    pub plan: Plan,
    pub rng: Arc<Rng>,
    pub model: Arc<Model>,
    pub world: Arc<World>,
    pub trace: Arc<Trace>,
    began: Instant,
}

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    pub digest: u64,
    pub violations: Vec<String>,
    /// The last of what happened, behind the plan.
    pub trace: Vec<String>,
    /// Kinds of ends, to know what the seeds reach.
    pub ends: Vec<String>,
}

impl Run {
    pub fn new(plan: Plan, rng: Rng) -> Arc<Self> {
        Arc::new(Self {
            plan,
            rng: Arc::new(rng),
            model: Arc::new(Model::new()),
            world: Arc::default(),
            trace: Arc::new(Trace::new()),
            began: Instant::now(),
        })
    }

    fn is_calm(&self) -> bool {
        self.began.elapsed() >= self.plan.quiet_at
    }

    fn weather(&self) -> Weather {
        if self.is_calm() {
            Weather::default()
        } else {
            self.plan.weather
        }
    }

    /// The sandboxes as a process reaches them.
    fn sandboxes(self: &Arc<Self>, process: &Arc<Process>) -> Sandboxes {
        let (weather, guard) = (Arc::clone(self), Arc::clone(self));
        Sandboxes {
            process: Arc::clone(process),
            world: Arc::clone(&self.world),
            rng: Arc::clone(&self.rng),
            trace: Arc::clone(&self.trace),
            damage: Arc::new(move || weather.weather().damage),
            before_removal: Arc::new(move |sandbox| check::before_removal(&guard, sandbox)),
        }
    }

    /// A Completer's deps over the models.
    pub fn completer(self: &Arc<Self>, process: &Arc<Process>) -> Arc<Completer> {
        let sandboxes = Arc::new(self.sandboxes(process));
        Arc::new(Completer::new(CompleterDeps {
            db: Arc::new(Calls {
                process: Arc::clone(process),
                store: self.model.clone(),
            }),
            owner: process.name.clone(),
            rpc: sandboxes.clone(),
            lifecycle: sandboxes,
            timings: TIMINGS,
            notices: Notices::default(),
            metrics: Metrics::default().completer,
        }))
    }

    /// A Completer that dies and is started again, for ever.
    async fn replica(self: Arc<Self>, name: String) {
        loop {
            let process = Process::new(name.clone(), Arc::new(Chance(Arc::clone(&self))));
            let completer = self.completer(&process);
            tokio::select! {
                biased;
                () = process.died() => self.trace.note(format_args!("{name} died")),
                () = completer.run(CancellationToken::new()) => return,
            }
            sleep(self.rng.seconds(0, 45)).await;
            self.trace.note(format_args!("{name} is back"));
        }
    }

    /// A gateway that watches what is watched, dies, and is started again.
    async fn gateway(self: Arc<Self>) {
        loop {
            let process = Process::new("gateway", Arc::new(Chance(Arc::clone(&self))));
            let watcher = Watcher {
                store: Tees {
                    process: Arc::clone(&process),
                    store: self.model.clone(),
                },
                world: Arc::clone(&self.world),
                rng: Arc::clone(&self.rng),
                noise: {
                    let run = Arc::clone(&self);
                    Arc::new(move || run.weather().noise)
                },
            };
            let mut watched = Vec::new();
            for session in &self.plan.sessions {
                for (n, turn) in session.turns.iter().enumerate() {
                    let no = TurnNo(n as u32 + 1);
                    if let Some(after) = turn.watched_after {
                        watched.push(self.watch(&watcher, &session.id, no, after));
                    }
                }
            }
            tokio::select! {
                biased;
                () = process.died() => self.trace.note("gateway died"),
                _ = join_all(watched) => return,
            }
            sleep(self.rng.seconds(0, 20)).await;
            self.trace.note("gateway is back");
        }
    }

    /// Waits for a turn and watches it; a viewer that is told nothing of an end comes again.
    async fn watch(&self, watcher: &Watcher, session: &SessionId, turn: TurnNo, after: Duration) {
        let generation = loop {
            match self
                .world
                .with_speech(session, turn, |speech| speech.generation)
            {
                Some(generation) => break generation,
                None if self.began.elapsed() > PATIENCE => return,
                None => sleep(Duration::from_secs(2)).await,
            }
        };
        sleep(after).await;
        let progress = watcher.watch(session, generation, turn).await;
        self.trace.note(format_args!(
            "tee of {session} {turn} ended {:?}",
            progress.end
        ));
        // the gateway wakes the Completer at a turn's end; a wake may be lost
        if self.rng.chance(700) {
            self.model.make_due(session);
        }
    }

    /// A session's user and its dispatcher.
    async fn session(self: Arc<Self>, plan: SessionPlan) {
        let id = &plan.id;
        self.model.create(id);
        if let Some(limit) = plan.part_limit {
            self.model.with(id, |session| session.part_limit = limit);
        }
        self.model
            .with(id, |session| session.refuses = plan.poisoned);
        for (n, turn) in plan.turns.iter().enumerate() {
            let no = TurnNo(n as u32 + 1);
            if n > 0 {
                sleep(plan.pause).await;
                match self.model.begin_turn(id) {
                    BeginTurn::Delivering { .. } | BeginTurn::Redispatched { .. } => {}
                    refused => {
                        self.trace
                            .note(format_args!("{id} takes no turn: {refused:?}"));
                        break;
                    }
                }
            }
            let user = self.interrupts(id, no, turn);
            let work = async {
                self.dispatch(id, no, turn).await;
                self.until_settled(id, no).await;
            };
            tokio::select! {
                biased;
                () = work => {}
                () = user => {}
            }
        }
        if plan.archive {
            self.model.archive(id);
        }
    }

    /// What the user does meanwhile; never comes back.
    async fn interrupts(&self, id: &SessionId, no: TurnNo, plan: &TurnPlan) {
        let stop = async {
            if let Some(after) = plan.stop_after {
                sleep(after).await;
                let asked = self.model.request_stop(id, no);
                self.trace.note(format_args!("{id} stop of {no}: {asked}"));
            }
        };
        let cancel = async {
            if let Some(after) = plan.cancel_after {
                sleep(after).await;
                let asked = self.model.request_cancel(id);
                self.trace.note(format_args!("{id} cancel: {asked:?}"));
            }
        };
        tokio::join!(stop, cancel);
        std::future::pending::<()>().await;
    }

    async fn until_settled(&self, id: &SessionId, turn: TurnNo) {
        loop {
            let row = self.model.turn_row(id, turn).expect("it was begun");
            if row.settled_at.is_some() {
                self.trace.note(format_args!(
                    "{id} {turn} is {} {:?}",
                    row.verdict, row.reason
                ));
                return;
            }
            sleep(Duration::from_millis(700)).await;
        }
    }

    /// The dispatcher's way with one turn, without faults of its own.
    async fn dispatch(self: &Arc<Self>, id: &SessionId, no: TurnNo, plan: &TurnPlan) {
        let Some(claim) = self.model.claim_dispatch(id) else {
            return;
        };
        let Some(generation) = self.ready(&claim).await else {
            return;
        };
        if self.model.begin_delivery(&claim, generation) != BeginDelivery::Begun {
            return;
        }
        let taken = self.world.begin(id, generation, no);
        if taken {
            self.trace
                .note(format_args!("{id} {no} is spoken by {generation}"));
            self.speak(id, generation, no, plan);
        }
        sleep(plan.concluded_after).await;
        let delivery = if taken {
            Delivery::Accepted
        } else {
            Delivery::Unknown
        };
        let concluded = self.model.delivered(&claim, delivery);
        self.trace
            .note(format_args!("{id} {no} delivered: {concluded:?}"));
    }

    async fn ready(&self, claim: &DispatchClaim) -> Option<Generation> {
        if claim.generation != Generation(0) {
            return Some(claim.generation);
        }
        let BeginGeneration::Begun { generation } =
            self.model.begin_generation(claim, &NEW_SANDBOX)
        else {
            return None;
        };
        sleep(self.rng.millis(10, 3000)).await;
        let uid = self.world.create(&claim.session, generation);
        let step = self.model.sandbox_ready(claim, generation, &uid);
        (step == Step::Done).then_some(generation)
    }

    /// Lets the driver speak, and its sandbox suffer.
    fn speak(self: &Arc<Self>, id: &SessionId, life: Generation, no: TurnNo, plan: &TurnPlan) {
        let (run, id, plan) = (Arc::clone(self), id.clone(), plan.clone());
        tokio::spawn(async move {
            let speech = run.speech(&id, life, no, &plan);
            let world = &run.world;
            let death = async {
                if let Some(after) = plan.dies_after {
                    sleep(after).await;
                    run.trace.note(format_args!("{id} {life} dies"));
                    world.kill(&id, life);
                }
            };
            let hang = async {
                if let Some(after) = plan.hangs_after {
                    sleep(after).await;
                    run.trace.note(format_args!("{id} {life} hangs"));
                    world.with_pod(&id, life, |pod| pod.hung = true);
                }
            };
            let doubt = async {
                if let Some((after, lasts)) = plan.ambiguous {
                    sleep(after).await;
                    let status = run.rng.pick(&[
                        None,
                        Some("{\"sta".to_owned()),
                        Some(format!(
                            r#"{{"state":"idle","generation":{life},"turn":{no}}}"#
                        )),
                        Some(format!(
                            r#"{{"state":"running","generation":{life},"turn":{no}}}"#
                        )),
                    ]);
                    run.trace.note(format_args!("{id} {life} says {status:?}"));
                    let until = Instant::now() + lasts;
                    world.with_pod(&id, life, |pod| pod.ambiguous = Some((until, status)));
                }
            };
            tokio::join!(speech, death, hang, doubt);
        });
    }

    async fn speech(&self, id: &SessionId, life: Generation, no: TurnNo, plan: &TurnPlan) {
        let world = &self.world;
        for n in 0..=plan.parts {
            if plan.full_at == Some(n) {
                world.fill_log(id, life, no);
            }
            if let Some((_, how)) = plan.tampering.filter(|(at, _)| *at == n) {
                self.trace.note(format_args!("{id} {no} log is {how:?}"));
                world.tamper(id, life, no, how);
            }
            if world.is_stopped(id, life, no) {
                break;
            }
            if n == plan.parts {
                break;
            }
            sleep(self.rng.between(Duration::ZERO, plan.pace)).await;
            let tail = "x".repeat(self.rng.index(30));
            if !world.say(id, life, no, part(n, &tail)) {
                return;
            }
        }
        loop {
            let stopped = world.is_stopped(id, life, no);
            let state = if stopped {
                Some(TurnState::Stopped)
            } else {
                plan.end
            };
            if let Some(state) = state {
                sleep(self.rng.millis(0, 2000)).await;
                let ended = world.end(id, life, no, state);
                self.trace
                    .note(format_args!("{id} {no} ends {state}: {ended}"));
                return;
            }
            let alive = world.with_pod(id, life, |pod| pod.alive);
            if alive != Some(true) {
                return;
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    async fn clock(self: Arc<Self>) {
        let (steps, most) = self.plan.weather.steps;
        for _ in 0..steps {
            sleep(self.rng.between(Duration::ZERO, self.plan.quiet_at / 4)).await;
            let by = self.rng.below(2 * most) as i64 - most as i64;
            self.trace
                .note(format_args!("the store's clock is stepped by {by} ms"));
            self.model.step_clock(by);
        }
    }

    /// Looks at everything once a second.
    async fn auditor(self: Arc<Self>) {
        let mut audit = check::Audit::default();
        loop {
            audit.look(&self);
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Runs the plan to its end.
    pub async fn play(self: &Arc<Self>) -> Outcome {
        self.trace.note(format_args!("{:?}", self.plan));
        if self.plan.orphan {
            let stray = self.rng.id("ags").parse().expect("an id");
            self.world.create(&stray, Generation(1));
        }
        let mut tasks = JoinSet::new();
        let mut users = JoinSet::new();
        for session in self.plan.sessions.clone() {
            users.spawn(Arc::clone(self).session(session));
        }
        tasks.spawn(Arc::clone(self).replica("a".into()));
        tasks.spawn(Arc::clone(self).replica("b".into()));
        tasks.spawn(Arc::clone(self).gateway());
        tasks.spawn(Arc::clone(self).clock());
        tasks.spawn(Arc::clone(self).auditor());
        let deadline = self.began + self.plan.quiet_at + PATIENCE;
        while !(users.is_empty() && self.is_calm() && check::is_over(self)) {
            while users.try_join_next().is_some() {}
            if Instant::now() > deadline {
                self.trace.violation("it does not come to its end".into());
                break;
            }
            sleep(Duration::from_secs(1)).await;
        }
        sleep(AFTERWARDS).await;
        check::ends(self);
        tasks.shutdown().await;
        Outcome {
            digest: self.trace.digest(),
            violations: self.trace.violations(),
            trace: self.trace.lines(),
            ends: check::kinds(self),
        }
    }
}

/// Fates by chance and weather.
struct Chance(Arc<Run>);

impl Fates for Chance {
    fn fate(&self, process: &str, peer: Peer, call: &'static str) -> (Duration, Fate) {
        let (run, rng) = (&self.0, &self.0.rng);
        let weather = run.weather();
        let takes = match peer {
            Peer::Store => rng.millis(0, 6),
            Peer::Exec => rng.millis(5, 200),
            Peer::Lifecycle => rng.millis(1, 100),
        };
        if run.is_calm() {
            return (takes, Fate::Well);
        }
        let takes = match peer {
            _ if !rng.chance(weather.slow) => takes,
            Peer::Store => rng.millis(100, 8000),
            Peer::Exec => rng.millis(100, 20_000),
            Peer::Lifecycle => rng.millis(100, 60_000),
        };
        // renewing and looking for work are most calls; they are let alone more often
        let often = matches!(call, "claim_leases" | "renew_lease" | "now");
        let dies = if often {
            weather.dies / 8
        } else {
            weather.dies
        };
        let fate = if rng.chance(dies) {
            rng.pick(&[
                Fate::DiesBefore,
                Fate::DiesAfter,
                Fate::DiesAndLate(rng.seconds(1, 90)),
            ])
        } else if rng.chance(weather.refused) {
            Fate::Refused
        } else if rng.chance(weather.answer_lost) {
            Fate::AnswerLost
        } else if rng.chance(weather.late) {
            Fate::Late(rng.seconds(1, 90))
        } else if rng.chance(weather.twice) && call != "claim_leases" {
            Fate::Twice
        } else {
            Fate::Well
        };
        if fate != Fate::Well || !often {
            run.trace.note(format_args!("{process} {call} {fate:?}"));
        }
        (takes, fate)
    }
}

/// Plays one seed.
pub fn play(seed: u64) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let rng = Rng::new(seed);
        let plan = Plan::of(&rng);
        let run = Run::new(plan, rng);
        // boxed: a run is a large future
        Box::pin(run.play()).await
    })
}
