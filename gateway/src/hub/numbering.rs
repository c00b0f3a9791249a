//! From a driver's events to numbered parts: what the stream says is believed only as far as it fits its turn.
//!
//! A driver that repeats, reorders or jumps changes nothing for what came before: an id is given once, and only forwards.

use std::sync::Arc;

use bex_proto::ids::PartId;
use bex_proto::sse::{self, Event};
use bex_proto::transcript::{Part, storable, storable_of_skipped};
use bex_proto::ui_stream::ChunkKind;
use bex_proto::{PartIndex, TurnNo};
use bytes::Bytes;

/// Which form of stream a driver speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Every event names its part.
    Numbered,
    /// The old form: no ids; parts are numbered by position while the stream is known to hold this turn from its start.
    ByPosition,
}

/// What one event is.
#[derive(Debug, Clone)]
pub enum Placed {
    /// A part, perhaps with its stand-in's bytes.
    Part(Arc<Part>),
    /// An event without a usable id, of another turn, or of an index that was given before.
    Dropped,
    /// The stream's true end.
    Done,
    /// The old form's stream does not begin at the turn's start: nothing of it can be numbered.
    Unnumbered,
}

/// The state of one connection to a driver.
#[derive(Debug)]
pub struct Numbering {
    turn: TurnNo,
    form: Form,
    /// The lowest index that was not given yet.
    next: PartIndex,
    /// Events with data seen on this connection.
    position: u32,
}

impl Numbering {
    /// A connection on which everything below `next` is known already.
    pub fn new(turn: TurnNo, form: Form, next: PartIndex) -> Self {
        Self {
            turn,
            form,
            next,
            position: 0,
        }
    }

    /// Takes the next event.
    pub fn place(&mut self, event: Event) -> Placed {
        if matches!(&event, Event::Data { data, .. } if data == sse::DONE.as_bytes()) {
            return Placed::Done;
        }
        let (id, (head, bytes)) = match event {
            Event::Data { id, data } => (id, storable(data)),
            Event::Oversized { id, bytes, sha256 } => (id, storable_of_skipped(bytes, &sha256)),
        };
        let index = match self.form {
            Form::Numbered => id.and_then(|id| self.own_index(&id)),
            Form::ByPosition => {
                // an old driver's memory forgets its oldest parts; only a stream that opens with `start` is whole
                if self.position == 0 && head.kind != ChunkKind::Start {
                    return Placed::Unnumbered;
                }
                Some(PartIndex(self.position))
            }
        };
        self.position = self.position.saturating_add(1);
        match index {
            Some(index) if index >= self.next => {
                self.next = index.next();
                let id = PartId {
                    turn: self.turn,
                    index,
                };
                Placed::Part(Arc::new(Part {
                    id,
                    head,
                    bytes,
                    spoken_at: None,
                }))
            }
            _ => Placed::Dropped,
        }
    }

    fn own_index(&self, id: &Bytes) -> Option<PartIndex> {
        let id: PartId = std::str::from_utf8(id).ok()?.parse().ok()?;
        (id.turn == self.turn).then_some(id.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: &str, data: &str) -> Event {
        let id = (!id.is_empty()).then(|| Bytes::copy_from_slice(id.as_bytes()));
        Event::Data {
            id,
            data: Bytes::copy_from_slice(data.as_bytes()),
        }
    }

    const TEXT: &str = r#"{"type":"text-delta","id":"t","delta":"x"}"#;

    fn placed(numbering: &mut Numbering, id: &str, data: &str) -> String {
        match numbering.place(event(id, data)) {
            Placed::Part(part) => format!("{} {}", part.id, part.head.kind.as_str()),
            Placed::Dropped => "dropped".into(),
            Placed::Done => "done".into(),
            Placed::Unnumbered => "unnumbered".into(),
        }
    }

    #[test]
    fn an_id_is_given_once_and_only_forwards() {
        let mut numbering = Numbering::new(TurnNo(3), Form::Numbered, PartIndex(2));
        let cases = [
            ("3.0", "dropped"),
            ("3.1", "dropped"),
            ("3.2", "3.2 text-delta"),
            ("3.2", "dropped"),
            ("3.5", "3.5 text-delta"),
            ("3.4", "dropped"),
            ("4.6", "dropped"),
            ("2.6", "dropped"),
            ("", "dropped"),
            ("3.-6", "dropped"),
            ("3.06", "dropped"),
            ("3.9223372036854775808", "dropped"),
            ("3.6", "3.6 text-delta"),
        ];
        for (id, expected) in cases {
            assert_eq!(placed(&mut numbering, id, TEXT), expected, "{id}");
        }
        assert_eq!(placed(&mut numbering, "", "[DONE]"), "done");
    }

    #[test]
    fn what_cannot_be_stored_keeps_its_place() {
        let mut numbering = Numbering::new(TurnNo(1), Form::Numbered, PartIndex(0));
        for (index, data) in [
            "not json",
            "[]",
            "{\"type\":\"a\0\"}",
            "{\"type\":\"a\",\n\"b\":1}",
        ]
        .iter()
        .enumerate()
        {
            let id = format!("1.{index}");
            assert_eq!(
                placed(&mut numbering, &id, data),
                format!("{id} data-bex-unstorable")
            );
        }
        let oversized = Event::Oversized {
            id: Some("1.9".into()),
            bytes: 2_000_000,
            sha256: "ab".into(),
        };
        match numbering.place(oversized) {
            Placed::Part(part) => {
                let text = std::str::from_utf8(&part.bytes).expect("text");
                assert_eq!(
                    text,
                    r#"{"type":"data-bex-unstorable","data":{"reason":"too_large","bytes":2000000,"sha256":"ab"}}"#
                );
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_old_form_is_numbered_by_position_from_its_start_only() {
        let mut whole = Numbering::new(TurnNo(1), Form::ByPosition, PartIndex(1));
        assert_eq!(
            placed(&mut whole, "", r#"{"type":"start"}"#),
            "dropped",
            "stored before"
        );
        assert_eq!(placed(&mut whole, "", TEXT), "1.1 text-delta");
        assert_eq!(
            placed(&mut whole, "9.9", TEXT),
            "1.2 text-delta",
            "its ids are not believed"
        );
        let mut cut = Numbering::new(TurnNo(1), Form::ByPosition, PartIndex(0));
        assert_eq!(placed(&mut cut, "", TEXT), "unnumbered");
    }
}
