//! One viewer of one session, over all its turns: cut off, it comes back with its cursor.

use std::collections::BTreeSet;
use std::time::Duration;

use bex_proto::{PartId, SessionId};
use bex_tests::client::{Ending, Event, Viewer};
use bex_tests::tally::Parts;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::doors::{Doors, Opened};
use crate::plan::ViewerPlan;

/// More than any run cuts off.
const ATTACHES: u32 = 300;
/// The longest a session stays as it is.
const STAGE: Duration = Duration::from_secs(400);
/// Before somebody who was cut off comes back.
const AGAIN: Duration = Duration::from_millis(200);

/// Where a session's users are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// So many turns were begun.
    Begun(u32),
    /// The last one is settled.
    Over,
}

/// What a viewer was told not to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    pub turn: u32,
    pub from: u32,
    /// Inclusive.
    pub to: u32,
}

/// What a viewer saw.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// In the order of their showing.
    pub parts: Parts,
    pub gaps: Vec<Gap>,
    /// Turns that it was told to read again.
    pub healed: BTreeSet<u32>,
    /// Turns that it was told are not whole.
    pub incomplete: BTreeSet<u32>,
    pub attaches: u32,
    /// It was told that this is the end, after the session was over.
    pub ended: bool,
    pub trouble: Vec<String>,
}

impl View {
    fn take(&mut self, event: &Event) {
        if let (Some(id), Some(data)) = (event.id, &event.data) {
            self.parts.push((id, data.clone()));
            return;
        }
        let json = event.json();
        let data = &json["data"];
        let number = |name: &str| data[name].as_u64().and_then(|n| u32::try_from(n).ok());
        let Some(turn) = number("turn") else { return };
        match json["type"].as_str() {
            Some("data-bex-incomplete") => {
                self.incomplete.insert(turn);
                if let Some(from) = number("from") {
                    let to = number("to").unwrap_or(u32::MAX);
                    self.gaps.push(Gap { turn, from, to });
                }
            }
            Some("data-bex-turn") if data["healed"] == true => {
                self.healed.insert(turn);
            }
            _ => {}
        }
    }

    /// Reads a stream to its end, or until the viewer leaves.
    async fn read(&mut self, mut viewer: Viewer, leaves: Option<u32>) -> (Ending, Option<PartId>) {
        let mut events = 0;
        loop {
            match viewer.next().await {
                Ok(Some(event)) => self.take(&event),
                Ok(None) => break,
                Err(error) => {
                    self.trouble.push(format!("{error:#}"));
                    break;
                }
            }
            events += 1;
            if Some(events) == leaves {
                return (Ending::Cut, viewer.cursor());
            }
        }
        (viewer.ending.unwrap_or(Ending::Cut), viewer.cursor())
    }
}

/// Watches from the beginning until the session is over and all of it was shown.
pub async fn watch(
    doors: Doors,
    session: SessionId,
    plan: ViewerPlan,
    mut stage: watch::Receiver<Stage>,
) -> View {
    let (mut view, mut cursor, mut leaves) = (View::default(), None, plan.leaves);
    while view.attaches < ATTACHES {
        let over = *stage.borrow_and_update() == Stage::Over;
        let gateway = plan.first + view.attaches as usize;
        view.attaches += 1;
        let ending = match doors.open(gateway, &session, cursor).await {
            Ok(Opened::Nothing) => Ending::Done,
            Ok(Opened::Stream(viewer)) => {
                let (ending, reached) = view.read(*viewer, leaves.take()).await;
                cursor = reached.or(cursor);
                ending
            }
            Err(error) => {
                view.trouble.push(format!("{error:#}"));
                return view;
            }
        };
        match ending {
            Ending::Done if over => {
                view.ended = true;
                return view;
            }
            Ending::Done => {
                if !matches!(timeout(STAGE, stage.changed()).await, Ok(Ok(()))) {
                    view.trouble.push("nothing came of the session".into());
                    return view;
                }
            }
            Ending::Cut => sleep(AGAIN).await,
        }
    }
    view.trouble.push(format!("was cut off {ATTACHES} times"));
    view
}

/// One look from the start at a session that is over.
pub async fn replay(doors: &Doors, session: &SessionId, first: usize) -> View {
    let (_, over) = watch::channel(Stage::Over);
    let plan = ViewerPlan {
        first,
        leaves: None,
    };
    watch(doors.clone(), session.clone(), plan, over).await
}
