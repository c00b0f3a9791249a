//! Texts as they read once decoded, and where each piece came from.
//!
//! A find in a [`View`] is taken out where it stands in the text the view was made of. What a whole run says (base64,
//! hexadecimal digits, compressed bytes) has no such places: a find there takes out the run ([`packed`]).

mod ansi;
mod entities;
pub mod packed;
mod percent;

use std::borrow::Cow;
use std::ops::Range;

pub use ansi::strip;
pub use entities::entities;
pub use percent::percent;

/// A decoded text.
#[derive(Debug)]
pub struct View<'a> {
    /// The text.
    pub text: Cow<'a, [u8]>,
    /// Where text and origin differ, in order.
    marks: Vec<Mark>,
}

/// A piece of the text that stands for another piece of the origin.
#[derive(Debug, Clone, Copy)]
struct Mark {
    text: usize,
    text_len: usize,
    origin: usize,
    origin_len: usize,
}

impl<'a> View<'a> {
    /// The text itself.
    pub fn same(text: &'a [u8]) -> Self {
        Self {
            text: Cow::Borrowed(text),
            marks: Vec::new(),
        }
    }

    /// The span of the origin that says this span of the text. Pieces are never cut; those that say nothing (a colour) are left
    /// outside where they stand at the border.
    pub fn origin(&self, span: Range<usize>) -> Range<usize> {
        if span.is_empty() {
            let at = self.place(
                self.marks.partition_point(|m| m.text <= span.start),
                span.start,
                false,
            );
            return at..at;
        }
        let start = self.place(
            self.marks.partition_point(|m| m.text <= span.start),
            span.start,
            false,
        );
        let end = self.place(
            self.marks.partition_point(|m| m.text < span.end),
            span.end,
            true,
        );
        start..end.max(start)
    }

    /// The place of `at` by the last of `marks` marks.
    fn place(&self, marks: usize, at: usize, is_end: bool) -> usize {
        let Some(mark) = marks.checked_sub(1).map(|last| self.marks[last]) else {
            return at;
        };
        match at.checked_sub(mark.text + mark.text_len) {
            Some(behind) => mark.origin + mark.origin_len + behind,
            None if is_end => mark.origin + mark.origin_len,
            None => mark.origin,
        }
    }
}

/// Makes a view piece by piece.
pub struct Builder<'a> {
    source: &'a [u8],
    at: usize,
    text: Vec<u8>,
    marks: Vec<Mark>,
}

impl<'a> Builder<'a> {
    /// A view that begins like its source.
    pub fn new(source: &'a [u8], same: usize) -> Self {
        let mut text = Vec::with_capacity(source.len());
        text.extend_from_slice(&source[..same]);
        Self {
            source,
            at: same,
            text,
            marks: Vec::new(),
        }
    }

    /// How far the source is read.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Takes the source as it is up to `end`.
    pub fn keep(&mut self, end: usize) {
        self.text.extend_from_slice(&self.source[self.at..end]);
        self.at = end;
    }

    /// Puts `text` for the next `length` bytes of the source.
    pub fn put(&mut self, text: &[u8], length: usize) {
        self.marks.push(Mark {
            text: self.text.len(),
            text_len: text.len(),
            origin: self.at,
            origin_len: length,
        });
        self.text.extend_from_slice(text);
        self.at += length;
    }

    /// The view; the rest of the source is as it is.
    pub fn done(mut self) -> View<'a> {
        self.keep(self.source.len());
        View {
            text: Cow::Owned(self.text),
            marks: self.marks,
        }
    }
}
