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
    /// The dashboard, where there is one.
    dashboard: Option<String>,
}

impl Summary {
    pub(super) fn new(
        session: &SessionId,
        stored: &[(PartId, Bytes)],
        live: &Viewer,
        replay: &Viewer,
        verdict: String,
        dashboard: Option<String>,
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
            dashboard,
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
        match &self.dashboard {
            Some(url) => writeln!(
                f,
                "demo: its page is {url}sessions/{}; KEEP=1 leaves it there",
                self.session
            )?,
            None => writeln!(f, "demo: make dashboard builds a page for it")?,
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
