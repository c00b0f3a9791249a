//! The load: many sessions at once, each with its users, until the time is over.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bex_proto::SessionId;
use bex_tests::client::NewSession;
use bex_tests::stack::WORKSPACE;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::doors::Doors;
use crate::plan::{Midway, Plan, TurnPlan};
use crate::viewers::{self, Stage, View};

/// How long a turn may take until it is settled: outages, leases of the dead and all.
const SETTLED: Duration = Duration::from_secs(240);
/// How often a turn is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How often the agent's record is looked at.
const LISTEN: Duration = Duration::from_millis(50);

/// What the sessions have in common.
pub struct World {
    pub doors: Doors,
    pub seed: u64,
    /// The agent's program.
    pub agent: PathBuf,
    /// Where agents keep their text.
    pub records: PathBuf,
    /// Sessions begin until then at least,
    pub until: Instant,
    /// and until there are so many,
    pub wanted: u64,
    /// but never later.
    pub latest: Instant,
    /// How many began so far.
    pub begun: AtomicU64,
}

/// What the users of a session know.
#[derive(Debug)]
pub struct Told {
    pub id: SessionId,
    pub plan: Plan,
    /// Turns that were begun, so many.
    pub begun: u32,
    pub canceled: bool,
    /// Turns that somebody asked to stop.
    pub stopped: Vec<u32>,
    pub views: Vec<View>,
    pub trouble: Vec<String>,
}

/// All sessions; the errors of those that could not be created.
pub async fn crowd(world: Arc<World>, at_once: usize) -> (Vec<Told>, Vec<String>) {
    let mut workers = JoinSet::new();
    for _ in 0..at_once {
        let world = Arc::clone(&world);
        workers.spawn(async move {
            let mut told = Vec::new();
            while !world.is_over() {
                let number = world.begun.fetch_add(1, Ordering::Relaxed);
                told.push(Box::pin(world.session(number)).await);
            }
            told
        });
    }
    let (mut sessions, mut failed) = (Vec::new(), Vec::new());
    while let Some(worker) = workers.join_next().await {
        match worker {
            Ok(told) => {
                for told in told {
                    match told {
                        Ok(told) => sessions.push(told),
                        Err(error) => failed.push(format!("{error:#}")),
                    }
                }
            }
            Err(error) => failed.push(format!("a user had a fault: {error}")),
        }
    }
    (sessions, failed)
}

impl World {
    /// Whether no further session begins.
    pub fn is_over(&self) -> bool {
        let now = Instant::now();
        let enough = self.begun.load(Ordering::Relaxed) >= self.wanted;
        now >= self.latest || (now >= self.until && enough)
    }

    async fn session(&self, number: u64) -> anyhow::Result<Told> {
        let plan = Plan::of(self.seed, number);
        let id = self
            .create(&plan)
            .await
            .context("a session was not created")?;
        let stage = watch::Sender::new(Stage::Begun(1));
        let mut viewers = JoinSet::new();
        for viewer in &plan.viewers {
            let watching =
                viewers::watch(self.doors.clone(), id.clone(), *viewer, stage.subscribe());
            viewers.spawn(Box::pin(watching));
        }
        let mut told = Told {
            id,
            plan,
            begun: 1,
            canceled: false,
            stopped: Vec::new(),
            views: Vec::new(),
            trouble: Vec::new(),
        };
        if let Err(error) = self.play(&mut told, &stage).await {
            told.trouble.push(format!("{error:#}"));
        }
        stage.send_replace(Stage::Over);
        told.views = viewers.join_all().await;
        Ok(told)
    }

    async fn create(&self, plan: &Plan) -> anyhow::Result<SessionId> {
        let (agent, records) = (
            self.agent.display().to_string(),
            self.records.display().to_string(),
        );
        let new = NewSession::new(WORKSPACE, "acp", &plan.turns[0].prompt)
            .args(&[&agent, "--record", &records]);
        let key = format!("chaos-{}", plan.number);
        let path = (Method::POST, "/v1/agent-sessions");
        let answer = self
            .doors
            .ask(plan.number, path, Some(&new.body), Some(&key))
            .await?;
        let body: Value = answer.expect(StatusCode::CREATED)?;
        Ok(body["id"]
            .as_str()
            .context("a session has an id")?
            .parse()?)
    }

    async fn play(&self, told: &mut Told, stage: &watch::Sender<Stage>) -> anyhow::Result<()> {
        for (turn, plan) in (1u32..).zip(told.plan.turns.clone()) {
            if turn > 1 {
                // a person thinks; an idle sandbox may be removed meanwhile
                sleep(plan.pause).await;
                self.begin(told, turn, &plan).await?;
                told.begun = turn;
                stage.send_replace(Stage::Begun(turn));
            }
            self.midway(told, turn, &plan).await?;
            self.settled(told, turn).await?;
            if told.canceled {
                break;
            }
        }
        Ok(())
    }

    async fn begin(&self, told: &Told, turn: u32, plan: &TurnPlan) -> anyhow::Result<()> {
        let path = format!("/v1/agent-sessions/{}/turns", told.id);
        let (body, key) = (json!({"prompt": plan.prompt}), format!("chaos-turn-{turn}"));
        let first = told.plan.number + u64::from(turn);
        let answer = self
            .doors
            .ask(first, (Method::POST, &path), Some(&body), Some(&key))
            .await?;
        let body: Value = answer.expect(StatusCode::CREATED)?;
        ensure!(
            body["turn"] == turn,
            "turn {turn} was begun as {}",
            body["turn"]
        );
        Ok(())
    }

    async fn midway(&self, told: &mut Told, turn: u32, plan: &TurnPlan) -> anyhow::Result<()> {
        let (lines, verb) = match plan.midway {
            Midway::Nothing | Midway::Crash => return Ok(()),
            Midway::Stop(lines) => (lines, format!("turns/{turn}/stop")),
            Midway::StopSilent => (plan.lines / 2, format!("turns/{turn}/stop")),
            Midway::Cancel(lines) => (lines, "cancel".to_owned()),
        };
        if !self.says(told, turn, plan, lines).await? {
            return Ok(());
        }
        let path = format!("/v1/agent-sessions/{}/{verb}", told.id);
        if verb == "cancel" {
            told.canceled = true;
        } else {
            told.stopped.push(turn);
        }
        let answer = self
            .doors
            .ask(told.plan.number, (Method::POST, &path), None, None)
            .await?;
        let fine = answer.status.is_success() || answer.code() == "not_live";
        ensure!(
            fine,
            "{verb} was answered {}: {}",
            answer.status,
            answer.json()
        );
        Ok(())
    }

    /// Whether the agent says so many lines before its turn is settled.
    async fn says(
        &self,
        told: &Told,
        turn: u32,
        plan: &TurnPlan,
        lines: u32,
    ) -> anyhow::Result<bool> {
        let record = self.records.join(&plan.record);
        let deadline = Instant::now() + SETTLED;
        let mut looked = Instant::now();
        loop {
            let said = std::fs::read(&record).unwrap_or_default();
            if said.iter().filter(|b| **b == b'\n').count() >= lines as usize {
                return Ok(true);
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                if self.is_settled(told, turn).await? {
                    return Ok(false);
                }
            }
            ensure!(
                Instant::now() < deadline,
                "turn {turn} was neither spoken nor settled for {SETTLED:?}"
            );
            sleep(LISTEN).await;
        }
    }

    async fn settled(&self, told: &Told, turn: u32) -> anyhow::Result<()> {
        let deadline = Instant::now() + SETTLED;
        while !self.is_settled(told, turn).await? {
            ensure!(
                Instant::now() < deadline,
                "turn {turn} was open for {SETTLED:?}"
            );
            sleep(LOOK).await;
        }
        Ok(())
    }

    async fn is_settled(&self, told: &Told, turn: u32) -> anyhow::Result<bool> {
        let turns = self.doors.turns(told.plan.number, &told.id).await?;
        let turn = turns.iter().find(|t| t.turn == turn);
        Ok(turn.is_some_and(|turn| turn.verdict != "open"))
    }
}
