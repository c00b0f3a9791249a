//! Putting parts through the guard and onto the wire.

use std::time::Duration;

use bex_proto::TurnNo;
use bex_proto::ids::PartId;
use bex_proto::transcript::Part;
use bex_proto::ui_stream::{ChunkHead, Folded, Output, Place};
use tokio::time::timeout;

use super::{Opened, Viewer};
use crate::attach::body::ViewerGone;

/// How long the pages of a viewer that takes nothing are kept for it.
const PAGES_HELD: Duration = Duration::from_millis(500);

impl Viewer {
    /// Shows one part that the viewer does not have, or holds it back to be folded.
    pub(super) fn show(&mut self, part: &Part, place: Place) {
        self.opened = Opened::Here;
        let Some(compact) = &mut self.compact else {
            return self.put(part.id.turn, place, Some(part.id), &part.head, &part.bytes);
        };
        let mut folded = Vec::new();
        compact.push(part.id, &part.head, &part.bytes, &mut folded);
        self.put_folded(part.id.turn, place, folded);
    }

    /// Shows what is held back: something else follows, or nothing.
    pub(super) fn unfold(&mut self, turn: TurnNo) {
        let Some(compact) = &mut self.compact else {
            return;
        };
        let mut folded = Vec::new();
        compact.flush(&mut folded);
        // no error is ever held back, and only an error's place matters
        self.put_folded(turn, Place::Earlier, folded);
    }

    fn put_folded(&mut self, turn: TurnNo, place: Place, folded: Vec<Folded>) {
        for chunk in folded {
            self.put(turn, place, chunk.id, &chunk.head, &chunk.bytes);
        }
    }

    /// Puts a chunk through the guard. The id stands on its last event; a part without one moves the cursor alone, so that a
    /// viewer that has everything can say so.
    fn put(
        &mut self,
        turn: TurnNo,
        place: Place,
        id: Option<PartId>,
        head: &ChunkHead,
        bytes: &[u8],
    ) {
        let mut outputs = std::mem::take(&mut self.outputs);
        self.guard.push(turn, place, head, bytes, &mut outputs);
        match (outputs.split_last(), id) {
            (Some((last, before)), Some(id)) => {
                self.write(before, bytes);
                self.out.part(id, bytes_of(last, bytes));
            }
            (None, Some(id)) => self.out.cursor_only(id),
            (_, None) => self.write(&outputs, bytes),
        }
        self.keep(outputs);
    }

    /// Closes what is open: what follows does not continue it.
    pub(super) fn close_open(&mut self) {
        let mut outputs = std::mem::take(&mut self.outputs);
        self.guard.gap(&mut outputs);
        self.write(&outputs, b"");
        self.keep(outputs);
    }

    /// What was open was closed for this viewer before.
    pub(super) fn forget_open(&mut self) {
        self.guard.gap(&mut self.outputs);
        self.outputs.clear();
    }

    /// The message was ended for this viewer before.
    pub(super) fn forget_message(&mut self) {
        self.guard.end(&mut self.outputs);
        self.outputs.clear();
    }

    /// Leaves nothing half-open at a turn's end.
    pub(super) fn end_message(&mut self) {
        let mut outputs = std::mem::take(&mut self.outputs);
        self.guard.end(&mut outputs);
        self.write(&outputs, b"");
        self.keep(outputs);
    }

    /// Starts again what is open, for a viewer that lost its state.
    pub(super) fn reopen(&mut self) {
        let mut outputs = std::mem::take(&mut self.outputs);
        self.guard.reopen(&mut outputs);
        self.write(&outputs, b"");
        self.keep(outputs);
    }

    /// Events without an id.
    fn write(&mut self, outputs: &[Output], stored: &[u8]) {
        for output in outputs {
            self.out.event(bytes_of(output, stored));
        }
    }

    /// The guard writes into the same vector every time, so that a part costs no allocation.
    fn keep(&mut self, mut outputs: Vec<Output>) {
        outputs.clear();
        self.outputs = outputs;
    }

    /// Sends what was collected when it is enough. While a viewer takes nothing it holds no pages: others may wait for their memory.
    pub(super) async fn send_if_full(&mut self) -> Result<(), ViewerGone> {
        if !self.out.is_full() {
            return Ok(());
        }
        match timeout(PAGES_HELD, self.out.flush()).await {
            Ok(sent) => sent,
            Err(_) => {
                self.pages.rest();
                self.out.flush().await
            }
        }
    }

    /// Whether the viewer has this part already.
    pub(super) fn has(&self, id: PartId) -> bool {
        self.silence
            .as_ref()
            .is_some_and(|silence| id <= silence.until)
    }
}

fn bytes_of<'a>(output: &'a Output, stored: &'a [u8]) -> &'a [u8] {
    match output {
        Output::Verbatim => stored,
        Output::Written(bytes) => bytes,
    }
}
