//! Recorded parts of one conversation, redacted together.

use std::collections::BTreeMap;

use crate::engine::{Redactor, Scan, each_segment, is_json};
use crate::hit::{self, Hit};
use crate::joined::Joined;
use crate::switch::Stage;

/// How often what was taken out, by the id that stands in the tokens.
pub type Counts = BTreeMap<&'static str, usize>;

/// Redacts texts that belong to one conversation, whole: files, pages, batches. Their lines of JSON, server-sent events and elements of
/// arrays are parts, or records with a `part`; the deltas of one run are scanned as the text they join to, over the borders of texts too. Lines stay where they are, and
/// those that hold nothing keep their bytes.
///
/// All texts are in memory until [`Self::finish`].
#[derive(Debug)]
pub struct Conversation<'r> {
    redactor: &'r Redactor,
    texts: Vec<(Vec<u8>, Vec<Hit>)>,
    joined: Joined,
}

impl<'r> Conversation<'r> {
    /// A conversation without texts.
    pub fn new(redactor: &'r Redactor) -> Self {
        Self {
            redactor,
            texts: Vec::new(),
            joined: Joined::default(),
        }
    }

    /// Takes the next text.
    pub fn push(&mut self, text: Vec<u8>) {
        let (mut scan, mut hits) = (Scan::new(text.len()), Vec::new());
        let at = self.texts.len();
        if memchr::memchr(b'\n', text.trim_ascii()).is_some() && is_json(&text) {
            // one document over several lines
            hits = self.redactor.hits(&text);
        } else {
            each_segment(&text, |span, is_json| {
                let first = hits.len();
                let segment = &text[span.clone()];
                if is_json {
                    // a line has a budget of its own: one that is spent must not take its neighbours along
                    self.redactor
                        .json_or_flat(segment, &mut Scan::new(segment.len()), &mut hits);
                    if self.redactor.stages.runs(Stage::Join) {
                        self.joined.take(&text, at, span.clone());
                    }
                } else {
                    self.redactor.deeper(segment, &mut scan, &mut hits);
                }
                for hit in &mut hits[first..] {
                    hit.span = hit.span.start + span.start..hit.span.end + span.start;
                }
            });
        }
        self.texts.push((text, hits));
    }

    /// The redacted texts in their order, and what was taken out.
    pub fn finish(mut self) -> (Vec<Vec<u8>>, Counts) {
        for run in std::mem::take(&mut self.joined).runs() {
            let found = self.redactor.hits(&run.text);
            for (text, hit) in run.spread(found, |text| &self.texts[text].0) {
                self.texts[text].1.push(hit);
            }
        }
        let (mut out, mut counts) = (Vec::with_capacity(self.texts.len()), Counts::new());
        for (text, mut hits) in std::mem::take(&mut self.texts) {
            hit::settle(&mut hits);
            for hit in hits.iter().filter(|h| !h.with.is_empty()) {
                *counts.entry(hit.id).or_default() += 1;
            }
            out.push(if hits.is_empty() {
                text
            } else {
                self.redactor.settled(&hit::apply(&text, &hits))
            });
        }
        (out, counts)
    }
}
