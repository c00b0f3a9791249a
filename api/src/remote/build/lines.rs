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

/// A whole line.
#[derive(Debug, Clone)]
pub struct Line {
    /// What of it counts.
    pub text: Text,
    /// Where it began.
    pub place: Place,
}

/// What a line is, as far as lines are told apart before they are read.
#[derive(Debug, Clone)]
pub enum Text {
    /// It may be a JSON object.
    Object(String),
    /// It might have been one, but is longer than [`limits::REMOTE_LINE_BYTES`].
    TooLong,
    /// It is none: nothing of it is kept.
    Other,
}

/// What of a line has come.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    half: Option<Line>,
}

impl Lines {
    /// Takes a piece, which has at most one line end, at its own end. Gives the line back that ends with it.
    pub fn take(&mut self, piece: &str, place: Place) -> Option<Line> {
        let half = self.half.get_or_insert(Line {
            text: Text::Object(String::new()),
            place,
        });
        let (piece, ends) = match piece.strip_suffix('\n') {
            Some(piece) => (piece, true),
            None => (piece, false),
        };
        half.text.push(piece);
        if ends { self.rest() } else { None }
    }

    /// What has come of a line that will not be finished.
    pub fn rest(&mut self) -> Option<Line> {
        self.half.take()
    }

    /// The rest of the line never comes. What does come is read as a line of its own: it is one, or the end of one, and an end of a JSON
    /// object is never a JSON object.
    pub fn give_up(&mut self) {
        self.half = None;
    }

    /// Whether no line is half read.
    pub fn is_empty(&self) -> bool {
        self.half.is_none()
    }
}

impl Text {
    fn push(&mut self, piece: &str) {
        let Self::Object(text) = self else {
            return;
        };
        let piece = match text.is_empty() {
            true => piece.trim_start(),
            false => piece,
        };
        if text.is_empty() && !piece.is_empty() && !piece.starts_with('{') {
            *self = Self::Other;
        } else if text.len() + piece.len() > limits::REMOTE_LINE_BYTES {
            *self = Self::TooLong;
        } else {
            text.push_str(piece);
        }
    }
}
