//! Going on in the middle of a message: the guard learns what is open at the cursor from kinds alone, and a viewer that lost its
//! state has it started again.

use std::collections::BTreeMap;
use std::sync::Arc;

use bex_proto::ids::PartId;
use bex_proto::transcript::Part;
use bex_proto::ui_stream::{ChunkHead, ChunkKind, Guard};
use bex_proto::{PartIndex, TurnNo, limits};
use tokio::time::Instant;

use super::{Opened, Stop, Viewer};
use crate::attach::cursor::ViewerState;
use crate::attach::pull::StoreRead;

/// Parts up to a cursor that is ahead of the store: they come again and are not shown.
#[derive(Debug)]
pub(in crate::attach) struct Silence {
    /// The last part the viewer has.
    pub(super) until: PartId,
    state: ViewerState,
    stored: OpenInputs,
    heard: HeardInputs,
}

/// Inputs of open tool calls that came in silence and may not be stored yet; shared with the tail, and no more than it may hold.
#[derive(Debug, Default)]
struct HeardInputs {
    parts: Vec<Arc<Part>>,
    bytes: usize,
}

impl HeardInputs {
    /// Keeps a part. `false`, and nothing is kept, when that is more than may be.
    fn hear(&mut self, part: &Arc<Part>, guard: &Guard) -> bool {
        if !self.has_room(part) {
            self.parts.retain(|part| is_of_open_tool(part, guard));
            self.bytes = self.parts.iter().map(|part| part.bytes.len()).sum();
        }
        let has_room = self.has_room(part);
        if has_room {
            self.bytes += part.bytes.len();
            self.parts.push(Arc::clone(part));
        } else {
            *self = Self::default();
        }
        has_room
    }

    fn has_room(&self, part: &Part) -> bool {
        self.parts.len() < limits::TAIL_PARTS && self.bytes + part.bytes.len() <= limits::TAIL_BYTES
    }
}

fn is_of_open_tool(part: &Part, guard: &Guard) -> bool {
    let id = part.head.chunk_id.as_deref();
    id.is_some_and(|id| guard.is_open_tool(id))
}

/// Where the inputs of tools without output stand, by tool call.
#[derive(Debug, Default)]
struct OpenInputs(BTreeMap<Box<str>, Vec<PartIndex>>);

impl OpenInputs {
    fn note(&mut self, index: PartIndex, head: &ChunkHead) {
        let Some(id) = &head.chunk_id else { return };
        if is_tool_input(&head.kind) {
            self.0.entry(id.clone()).or_default().push(index);
        }
    }
}

fn is_tool_input(kind: &ChunkKind) -> bool {
    matches!(
        kind,
        ChunkKind::ToolInputStart | ChunkKind::ToolInputDelta | ChunkKind::ToolInputAvailable
    )
}

impl Viewer {
    /// Prepares to go on behind `cursor`; gives where to pull from.
    pub(super) async fn rejoin(
        &mut self,
        cursor: PartId,
        state: ViewerState,
    ) -> Result<PartId, Stop> {
        let row = self
            .ask(|db, session| async move { db.turn_without_prompt(&session, cursor.turn).await })
            .await?;
        let row = row.ok_or(Stop::Revoked)?;
        let wanted = cursor.next();
        let at = if row.settled_at.is_some() {
            wanted
        } else {
            let end = self
                .ask(|db, session| async move { db.contiguous_end(&session, cursor.turn).await })
                .await?;
            PartId {
                turn: cursor.turn,
                index: wanted.index.min(end),
            }
        };
        if cursor.turn > TurnNo::FIRST {
            self.recall(wanted).await?;
        }
        let mut stored = OpenInputs::default();
        let mut from = PartIndex(0);
        loop {
            let heads = self
                .ask(|db, session| async move { db.kinds_before(&session, at, from).await })
                .await?;
            let Some(last) = heads.last() else { break };
            from = last.index.next();
            for stored_head in &heads {
                let head =
                    ChunkHead::from_columns(&stored_head.kind, stored_head.chunk_id.as_deref());
                self.guard.skip(cursor.turn, &head);
                stored.note(stored_head.index, &head);
            }
            stored.0.retain(|id, _| self.guard.is_open_tool(id));
        }
        self.silence = Some(Silence {
            until: cursor,
            state,
            stored,
            heard: HeardInputs::default(),
        });
        self.opened = match state {
            ViewerState::Kept => Opened::Before,
            ViewerState::Fresh => Opened::Here,
        };
        if at == wanted {
            self.end_silence().await?;
        }
        Ok(at)
    }

    /// The calls of earlier turns in the step the viewer is in: an id that is used again names another call.
    async fn recall(&mut self, wanted: PartId) -> Result<(), Stop> {
        let calls = self
            .ask(|db, session| async move { db.calls_before(&session, wanted).await })
            .await?;
        for call in calls {
            let head = ChunkHead::from_columns(&call.kind, call.chunk_id.as_deref());
            self.guard.skip(call.turn, &head);
        }
        self.forget_message();
        Ok(())
    }

    /// A part the viewer has already.
    pub(super) fn pass_over(&mut self, part: &Arc<Part>) {
        self.guard.skip(part.id.turn, &part.head);
        if let Some(silence) = &mut self.silence
            && silence.state == ViewerState::Fresh
            && is_tool_input(&part.head.kind)
            && !silence.heard.hear(part, &self.guard)
        {
            // their inputs cannot be started again
            self.guard.forget_open_calls();
        }
    }

    /// What comes next is new to the viewer. A viewer that lost its state is given what is open here.
    pub(super) async fn end_silence(&mut self) -> Result<(), Stop> {
        let Some(silence) = self.silence.take() else {
            return Ok(());
        };
        let cursor = silence.until;
        if silence.state == ViewerState::Kept {
            return Ok(());
        }
        self.reopen();
        let mut wanted: Vec<PartIndex> = silence
            .stored
            .0
            .into_iter()
            .filter(|(id, _)| self.guard.is_open_tool(id))
            .flat_map(|(_, indexes)| indexes)
            .collect();
        wanted.sort_unstable();
        let mut wanted = wanted.into_iter().peekable();
        while let Some(index) = wanted.peek().copied() {
            let at = PartId {
                turn: cursor.turn,
                index,
            };
            for part in self.read_stored(at).await?.parts {
                if wanted.next_if_eq(&part.id.index).is_some() {
                    self.out.event(&part.bytes);
                }
            }
            // one that was deleted in between is passed over
            while wanted.next_if(|next| *next <= index).is_some() {}
            self.send_if_full().await?;
        }
        for part in silence.heard.parts {
            if is_of_open_tool(&part, &self.guard) {
                self.out.event(&part.bytes);
                self.send_if_full().await?;
            }
        }
        Ok(())
    }

    /// One read of the store, repeated while the store is away.
    pub(super) async fn read_stored(&mut self, at: PartId) -> Result<StoreRead, Stop> {
        let until = Instant::now() + limits::SOURCE_RETRY;
        loop {
            match self.out.quietly(Box::pin(self.pages.read(at))).await? {
                Ok(read) => return Ok(read),
                Err(error) => self.store_trouble(&error, until).await?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn heard(
        inputs: &mut HeardInputs,
        guard: &mut Guard,
        index: u32,
        id: &str,
        bytes: usize,
    ) -> bool {
        let text = format!(
            r#"{{"type":"tool-input-available","toolCallId":"{id}","toolName":"x","input":"{}"}}"#,
            "y".repeat(bytes)
        );
        let part = Part {
            id: PartId::new(1, index),
            head: ChunkHead::from_columns("tool-input-available", Some(id)),
            bytes: Bytes::from(text),
            spoken_at: None,
        };
        guard.skip(part.id.turn, &part.head);
        inputs.hear(&Arc::new(part), guard)
    }

    fn answer(guard: &mut Guard, id: &str) {
        let head = ChunkHead::from_columns("tool-output-available", Some(id));
        guard.skip(TurnNo::FIRST, &head);
    }

    #[test]
    fn inputs_of_open_calls_are_kept_as_far_as_the_tail_goes() {
        let (mut inputs, mut guard) = (HeardInputs::default(), Guard::new());
        let large = limits::TAIL_BYTES / 3;
        assert!(heard(&mut inputs, &mut guard, 0, "a", large));
        assert!(heard(&mut inputs, &mut guard, 1, "b", large));
        answer(&mut guard, "a");
        // what was answered makes room
        assert!(heard(&mut inputs, &mut guard, 2, "c", large));
        assert_eq!(inputs.parts.len(), 2);
        assert!(!heard(&mut inputs, &mut guard, 3, "d", large));
        assert_eq!((inputs.parts.len(), inputs.bytes), (0, 0));
        guard.forget_open_calls();
        assert!(["b", "c", "d"].iter().all(|id| !guard.is_open_tool(id)));
    }
}
