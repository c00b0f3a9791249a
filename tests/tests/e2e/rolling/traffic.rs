//! Clients that create, watch, steer and read without a pause, and take no error for an answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bex_proto::{PartId, SessionId};
use bex_tests::client::{ApiClient, Ending, NewSession, Viewer};
use bex_tests::eventually;
use bex_tests::scenario::{STEP, saw_everything, stored};
use bex_tests::stack::WORKSPACE;
use bex_tests::tally::Parts;
use tokio::task::JoinSet;

use super::release::World;

/// Clients at once.
const CLIENTS: usize = 3;
/// Two turns of a second or two.
const PROMPT: &str = "work parts=60 pace=60";
/// Times one stream may be told to go on elsewhere: once by each release that ends, with room.
const MOVES: usize = 3;

/// Between two looks at a turn.
const LOOK: Duration = Duration::from_millis(50);

/// What they did.
#[derive(Debug, Default, Clone, Copy)]
pub struct Done {
    /// Sessions from beginning to end.
    pub sessions: usize,
}

/// The running clients.
pub struct Traffic {
    clients: JoinSet<anyhow::Result<()>>,
    shared: Arc<Shared>,
}

struct Shared {
    api: ApiClient,
    attach: SocketAddr,
    done: AtomicUsize,
    failed: AtomicBool,
    stop: AtomicBool,
}

impl Traffic {
    pub fn begin(world: &World, api: &ApiClient) -> Self {
        let shared = Arc::new(Shared {
            api: api.clone(),
            attach: world.attach.address,
            done: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            clients.spawn(client(Arc::clone(&shared)));
        }
        Self { clients, shared }
    }

    /// Waits until so many more sessions have ended well, or one has not.
    pub async fn ends(&self, sessions: usize) -> anyhow::Result<()> {
        let due = self.shared.done.load(Ordering::SeqCst) + sessions;
        eventually("sessions end", STEP, async || {
            let failed = self.shared.failed.load(Ordering::SeqCst);
            (failed || self.shared.done.load(Ordering::SeqCst) >= due).then_some(())
        })
        .await
    }

    /// Lets them finish what they are at; the first fault is the error.
    pub async fn stop(mut self) -> anyhow::Result<Done> {
        self.shared.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = self.clients.join_next().await {
            ended??;
        }
        let sessions = self.shared.done.load(Ordering::SeqCst);
        Ok(Done { sessions })
    }
}

async fn client(shared: Arc<Shared>) -> anyhow::Result<()> {
    while !shared.stop.load(Ordering::SeqCst) {
        let lived = life(&shared).await;
        if lived.is_err() {
            shared.failed.store(true, Ordering::SeqCst);
            shared.stop.store(true, Ordering::SeqCst);
        }
        lived?;
        shared.done.fetch_add(1, Ordering::SeqCst);
    }
    Ok(())
}

/// A session of two turns, watched from its first part to its last.
async fn life(shared: &Shared) -> anyhow::Result<()> {
    let api = &shared.api;
    let session = api
        .create(&NewSession::new(WORKSPACE, "demo", PROMPT))
        .await
        .context("create")?;
    let told = async {
        let mut shown = Vec::new();
        for turn in 1..=2 {
            if turn > 1 {
                let begun = api.begin_turn(&session, PROMPT).await.context("turn")?;
                ensure!(begun.status == 201, "{}: {}", begun.status, begun.json());
            }
            let cursor = shown.last().map(|(id, _): &(PartId, _)| *id);
            let viewer = open(shared.attach, api, &session, cursor).await?;
            follow_at(shared.attach, api, &session, viewer, &mut shown).await?;
            whole(api, &session, turn).await?;
        }
        let stored = stored(api, &session).await.context("feed")?;
        saw_everything(&stored, &shown)
    };
    told.await.with_context(|| format!("session {session}"))
}

/// Waits for the verdict; every answer on the way must be one.
async fn whole(api: &ApiClient, session: &SessionId, turn: u32) -> anyhow::Result<()> {
    let deadline = Instant::now() + STEP;
    loop {
        let turns = api.turns(session).await.context("turns")?;
        let found = turns.into_iter().find(|t| t.turn == turn);
        if let Some(found) = found.filter(|t| t.verdict != "open") {
            ensure!(found.verdict == "complete", "{found:?}");
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "turn {turn} is not settled");
        tokio::time::sleep(LOOK).await;
    }
}

async fn open(
    attach: SocketAddr,
    api: &ApiClient,
    session: &SessionId,
    cursor: Option<PartId>,
) -> anyhow::Result<Viewer> {
    let ticket = api.read_ticket(session).await.context("ticket")?;
    Viewer::open_at(attach, session, &ticket.ticket, cursor).await
}

/// Reads to the true end, over as many streams as that takes.
pub async fn follow(
    world: &World,
    api: &ApiClient,
    session: &SessionId,
    viewer: Viewer,
    shown: &mut Parts,
) -> anyhow::Result<()> {
    follow_at(world.attach.address, api, session, viewer, shown).await
}

async fn follow_at(
    attach: SocketAddr,
    api: &ApiClient,
    session: &SessionId,
    mut viewer: Viewer,
    shown: &mut Parts,
) -> anyhow::Result<()> {
    for _ in 0..MOVES {
        let ending = viewer.to_end().await?;
        shown.extend(viewer.parts());
        if ending == Ending::Done {
            return Ok(());
        }
        let last = viewer.events.last().map(|event| event.json());
        let told = last.as_ref().is_some_and(|last| last["type"] == "error");
        ensure!(told, "a stream broke without a word: {last:?}");
        let cursor = shown.last().map(|(id, _)| *id);
        viewer = open(attach, api, session, cursor).await?;
    }
    anyhow::bail!("a stream was moved more than {MOVES} times")
}
