//! Lines of a program's output, whatever the pieces it comes in.

use bex_proto::limits;
use jiff::Timestamp;

/// Where something begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The event.
    pub index: u64,
    /// The byte of its data.
    pub offset: u32,
    /// When that event was said.
    pub at: Timestamp,
}

/// A whole line; without its text where it was longer than [`limits::REMOTE_LINE_BYTES`].
#[derive(Debug)]
pub struct Line {
    /// Without its end.
    pub text: Option<String>,
    /// Where it began.
    pub place: Place,
}

/// What of a line has come.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    half: Option<Half>,
}

#[derive(Debug, Clone)]
struct Half {
    text: String,
    too_long: bool,
    place: Place,
}

impl Lines {
    /// Takes a piece, which has at most one line end, at its own end. Gives the line back that ends with it.
    pub fn take(&mut self, piece: &str, place: Place) -> Option<Line> {
        let ends = piece.ends_with('\n');
        let half = self.half.get_or_insert(Half {
            text: String::new(),
            too_long: false,
            place,
        });
        if half.text.len() + piece.len() > limits::REMOTE_LINE_BYTES + 1 {
            half.too_long = true;
            half.text = String::new();
        }
        if !half.too_long {
            half.text.push_str(piece);
        }
        if ends { self.rest() } else { None }
    }

    /// What has come of a line that will not be finished.
    pub fn rest(&mut self) -> Option<Line> {
        let half = self.half.take()?;
        Some(Line {
            text: (!half.too_long).then_some(half.text),
            place: half.place,
        })
    }

    /// The rest of the line never comes.
    pub fn give_up(&mut self) {
        self.half = None;
    }

    /// Whether no line is half read.
    pub fn is_empty(&self) -> bool {
        self.half.is_none()
    }
}
