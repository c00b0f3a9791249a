//! The demo's verdict on what it saw.

use std::fmt;

use bex_proto::{PartId, SessionId};
use bytes::Bytes;

use crate::client::{Ending, Viewer};
use crate::tally::Tally;

/// What the demo found; its last line is for machines.
#[derive(Debug)]
pub struct Summary {
    session: SessionId,
    parts: usize,
    bytes: usize,
    live: Tally,
    replay: Tally,
    verdict: String,
    done: bool,
    page: Page,
}

/// The session's page in the dashboard.
#[derive(Debug)]
pub(super) enum Page {
    /// None was built.
    NotBuilt,
    /// There for as long as the stack runs.
    Stays(String),
    /// Ends with the demo.
    Ends(String),
}

impl Summary {
    pub(super) fn new(
        session: &SessionId,
        stored: &[(PartId, Bytes)],
        live: &Viewer,
        replay: &Viewer,
        verdict: String,
        page: Page,
    ) -> Self {
        Self {
            session: session.clone(),
            parts: stored.len(),
            bytes: stored.iter().map(|(_, bytes)| bytes.len()).sum(),
            live: Tally::of(stored, &live.parts()),
            replay: Tally::of(stored, &replay.parts()),
            verdict,
            done: [live, replay]
                .iter()
                .all(|v| v.ending == Some(Ending::Done)),
            page,
        }
    }

    /// Whether live, replay and store are the same parts, each once, in order, and the turn is complete.
    pub fn is_ok(&self) -> bool {
        let clean = self.live.is_clean() && self.replay.is_clean();
        clean && self.parts > 0 && self.verdict == "complete" && self.done
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let both = |count: fn(&Tally) -> usize| count(&self.live) + count(&self.replay);
        let disorder = both(|t| t.disordered.len() + t.altered.len() + t.foreign.len());
        writeln!(
            f,
            "demo: session {}, {} bytes stored",
            self.session, self.bytes
        )?;
        if !self.live.is_clean() {
            writeln!(f, "demo: live differs from the store: {:?}", self.live)?;
        }
        if !self.replay.is_clean() {
            writeln!(f, "demo: replay differs from the store: {:?}", self.replay)?;
        }
        match &self.page {
            Page::NotBuilt => writeln!(f, "demo: make dashboard builds a page for it")?,
            Page::Stays(url) => writeln!(f, "demo: its page is {url}")?,
            Page::Ends(url) => {
                writeln!(
                    f,
                    "demo: its page was {url}, gone with this demo; KEEP=1 leaves it there"
                )?;
            }
        }
        write!(
            f,
            "demo: {} parts={} live={} replayed={} lost={} duplicated={} order={} verdict={} done={}",
            if self.is_ok() { "ok" } else { "failed" },
            self.parts,
            self.live.accounted,
            self.replay.accounted,
            both(|t| t.lost.len()),
            both(|t| t.duplicated.len()),
            if disorder == 0 { "ok" } else { "broken" },
            self.verdict,
            if self.done { "ok" } else { "missing" },
        )
    }
}
