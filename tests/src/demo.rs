//! The demo: one session from its creation to its replay after the sandbox is gone, told on the terminal, then checked.

mod screen;
mod summary;

pub use summary::Summary;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bex_proto::SessionId;
use bytes::Bytes;
use summary::Page;

use crate::client::{ApiClient, Ending, NewSession, Turn, Viewer};
use crate::dev::Dev;
use crate::eventually;
use crate::recording::Recording;
use crate::stack::pid_lives;
use screen::Screen;

/// How long the demo's sandbox lives after its turn.
pub const IDLE_GRACE: Duration = Duration::from_secs(2);
/// The Completer's part: harvest, settle.
const SETTLE: Duration = Duration::from_secs(60);
/// Idle grace and teardown, with room.
const TEARDOWN: Duration = Duration::from_secs(90);
/// The demo agent's prompt: enough to watch, little enough to wait for.
const PROMPT: &str = "Tidy up the sample project and report back. parts=120 pace=60";
/// How fast a recording is played, in parts a second.
const PACE: &str = "200";

/// What the demo shows.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// A recorded stream instead of the demo agent.
    pub stream: Option<PathBuf>,
    /// How the sandbox goes.
    pub removal: Removal,
    /// What becomes of the stack.
    pub stack: After,
}

/// What becomes of a stack once the demo is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// It goes too.
    Ends,
    /// It runs on.
    Stays,
}

/// How a sandbox that has nothing to do comes to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// By the Completer, after the stack's idle grace, which is [`IDLE_GRACE`].
    Idle,
    /// By SIGKILL, as the stack's idle grace is nobody's to wait for.
    Kill,
}

/// Runs the demo against a stack.
///
/// # Errors
/// When a step fails; a transcript that is not whole is no error but a failed [`Summary`].
pub async fn run(dev: &Dev, options: &DemoOptions) -> anyhow::Result<Summary> {
    let api = dev.admin()?;
    let (new, recording) = session(dev, options)?;
    println!("demo: creating a session");
    let session = api.create(&new).await?;
    let began = Instant::now();

    println!("demo: watching {session} live");
    let live = watch(dev, &api, &session).await?;
    println!(
        "demo: the stream ended after {:.1} s",
        began.elapsed().as_secs_f64()
    );

    let turn = eventually("the turn is settled", SETTLE, async || {
        settled(&api, &session).await
    })
    .await?;
    println!("demo: the Completer's verdict is {}", turn.verdict);

    remove_sandbox(dev, &session, options.removal).await?;

    println!("demo: replaying from the store with a fresh ticket");
    let replay = replay(dev, &api, &session).await?;
    let stored = api.feed(&session).await?;
    let stored: Vec<_> = stored
        .iter()
        .map(|p| (p.id(), Bytes::copy_from_slice(p.part.get().as_bytes())))
        .collect();
    if let Some(recording) = recording {
        let same = stored.iter().map(|(_, bytes)| bytes).eq(&recording.parts);
        ensure!(same, "the stored parts are not the recording's");
    }
    Ok(Summary::new(
        &session,
        &stored,
        &live,
        &replay,
        turn.verdict,
        page(dev, &session, options.stack),
    ))
}

fn page(dev: &Dev, session: &SessionId, stack: After) -> Page {
    let Some(url) = &dev.dashboard_url else {
        return Page::NotBuilt;
    };
    let url = format!("{url}sessions/{session}");
    match stack {
        After::Ends => Page::Ends(url),
        After::Stays => Page::Stays(url),
    }
}

fn session(dev: &Dev, options: &DemoOptions) -> anyhow::Result<(NewSession, Option<Recording>)> {
    let Some(file) = &options.stream else {
        return Ok((NewSession::new(&dev.workspace_id, "demo", PROMPT), None));
    };
    let recording = Recording::read(file)?;
    ensure!(
        !recording.parts.is_empty(),
        "{} holds no parts",
        file.display()
    );
    let name = recording.name();
    std::fs::copy(file, dev.play_dir.join(&name)).context("cannot copy the recording")?;
    let prompt = format!("Play {name}");
    let new = NewSession::new(&dev.workspace_id, "play", &prompt).args(&[&name, PACE]);
    Ok((new, Some(recording)))
}

async fn watch(dev: &Dev, api: &ApiClient, session: &SessionId) -> anyhow::Result<Viewer> {
    let ticket = api.read_ticket(session).await?;
    let mut viewer = Viewer::open(dev.attach()?, session, &ticket.ticket).await?;
    let mut screen = Screen::new();
    while let Some(event) = viewer.next().await? {
        screen.show(&event);
    }
    screen.end();
    Ok(viewer)
}

async fn settled(api: &ApiClient, session: &SessionId) -> Option<Turn> {
    let turn = api.turns(session).await.ok()?.pop()?;
    (turn.verdict != "open").then_some(turn)
}

async fn remove_sandbox(dev: &Dev, session: &SessionId, removal: Removal) -> anyhow::Result<()> {
    let sandboxes = dev.sandboxes();
    let drivers = sandboxes.of(session);
    let processes = || drivers.iter().any(|driver| pid_lives(driver.pid));
    if removal == Removal::Kill {
        println!("demo: killing the sandbox");
        sandboxes.kill9(session);
        ensure!(!processes(), "the sandbox's processes do not end");
        return Ok(());
    }
    println!("demo: waiting until the idle sandbox is removed");
    eventually("the sandbox is removed", TEARDOWN, async || {
        (!processes() && sandboxes.of(session).is_empty()).then_some(())
    })
    .await
}

async fn replay(dev: &Dev, api: &ApiClient, session: &SessionId) -> anyhow::Result<Viewer> {
    let ticket = api.read_ticket(session).await?;
    let mut viewer = Viewer::open(dev.attach()?, session, &ticket.ticket).await?;
    let ending = viewer.to_end().await?;
    println!(
        "demo: replayed {} events, {}",
        viewer.events.len(),
        if ending == Ending::Done {
            "to [DONE]"
        } else {
            "cut short"
        }
    );
    Ok(viewer)
}
