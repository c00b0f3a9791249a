//! Where a turn's words go: redacted, numbered, logged, and then shown. In that order, for every part.

mod log;
mod reader;
mod tail;

use std::sync::Arc;

use bex_proto::driver::{TurnDigest, TurnEnd, TurnState};
use bex_proto::ids::{PartIndex, TurnNo};
use bex_redact::{Redactor, Secrets, StreamRedactor};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::error;

pub use log::{LogForm, TurnLog};
pub use reader::{Batch, TurnReader};
pub use tail::{Progress, Tail};

use crate::bounds::{END_AGAIN, END_PATIENCE};
use crate::status::shortened;
use crate::storable;

/// The one writer of a turn.
#[derive(Debug)]
pub struct TurnSink {
    turn: TurnNo,
    secrets: Secrets,
    rules: Redactor,
    redactor: StreamRedactor,
    log: TurnLog,
    tail: Arc<Tail>,
    digest: TurnDigest,
    parts: u32,
    bytes: u64,
    /// Reused between parts.
    redacted: Vec<Bytes>,
}

impl TurnSink {
    /// A sink at the start of a turn whose log is open.
    pub fn new(
        turn: TurnNo,
        secrets: Secrets,
        rules: Redactor,
        log: TurnLog,
        tail: Arc<Tail>,
    ) -> Self {
        Self {
            turn,
            redactor: StreamRedactor::new(secrets.clone()).with_rules(rules.clone()),
            rules,
            secrets,
            log,
            tail,
            digest: TurnDigest::default(),
            parts: 0,
            bytes: 0,
            redacted: Vec::new(),
        }
    }

    /// The turn being spoken.
    pub fn turn(&self) -> TurnNo {
        self.turn
    }

    /// Says a part: any bytes; what is no storable part is mended or replaced, see [`storable`]. Text that may still become a
    /// secret is held back and comes out with a later delta of its run or at the run's end, whatever time passes.
    pub fn say(&mut self, part: impl Into<Bytes>) {
        let mut redacted = std::mem::take(&mut self.redacted);
        self.redactor
            .push(storable::make(part.into()), &mut redacted);
        self.emit_all(&mut redacted);
    }

    /// Says a part made here.
    pub fn say_json(&mut self, part: &Value) {
        self.say(part.to_string());
    }

    /// Says that there was a part too long to be kept.
    pub fn say_oversized(&mut self, bytes: u64) {
        self.say(storable::oversized(bytes));
    }

    /// Says what went wrong. Nobody reads on behind an error, so what was held back goes out before it.
    pub fn say_error(&mut self, text: &str) {
        self.let_go();
        let text = self.secrets.redact_text(text);
        let text = self.rules.redact_str(&text);
        self.say_json(&json!({"type": "error", "errorText": shortened(&text)}));
    }

    /// Ends the turn: what was held back goes out, then the log's last line is written. Readers are told by [`Tail::end`], which
    /// the caller calls once the status is written too.
    ///
    /// A disk that is full now may have room again soon, and without this line nobody could ever prove the turn: it is tried
    /// again until `give_up`, [`END_PATIENCE`] at most.
    pub async fn end(mut self, state: TurnState, give_up: &CancellationToken) -> Ended {
        self.let_go();
        let end = TurnEnd {
            turn: self.turn,
            parts: self.parts,
            bytes: self.bytes,
            sha256: self.digest.hex(),
            state,
            dropped: self.log.dropped(),
        };
        Ended {
            log_has_holes: self.log.has_holes(),
            kept: self.keep(&end, give_up).await,
            end,
        }
    }

    /// Whether the last line is in the log.
    async fn keep(&mut self, end: &TurnEnd, give_up: &CancellationToken) -> bool {
        let latest = Instant::now() + END_PATIENCE;
        let mut told = false;
        while let Err(cause) = self.log.end(end) {
            if !std::mem::replace(&mut told, true) {
                error!(turn = %end.turn, error = %cause, "turn-end cannot be written");
            }
            tokio::select! {
                biased;
                () = give_up.cancelled() => return false,
                () = sleep(END_AGAIN) => {}
            }
            if Instant::now() >= latest {
                return false;
            }
        }
        true
    }

    /// Ends every run: what was held back goes out.
    fn let_go(&mut self) {
        let mut redacted = std::mem::take(&mut self.redacted);
        self.redactor.end(&mut redacted);
        self.emit_all(&mut redacted);
    }

    fn emit_all(&mut self, redacted: &mut Vec<Bytes>) {
        for part in redacted.drain(..) {
            // a marker may be longer than what it stands for
            self.emit(storable::make(part));
        }
        self.redacted = std::mem::take(redacted);
    }

    fn emit(&mut self, part: Bytes) {
        self.digest.add(&part);
        self.bytes += part.len() as u64;
        self.log.part(self.turn, PartIndex(self.parts), &part);
        self.parts += 1;
        self.tail.push(part);
    }
}

/// How a turn's log was closed.
#[derive(Debug)]
pub struct Ended {
    /// What was said.
    pub end: TurnEnd,
    /// Whether the last line is in the log.
    pub kept: bool,
    /// Whether parts are missing in the log.
    pub log_has_holes: bool,
}
