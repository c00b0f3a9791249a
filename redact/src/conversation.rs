//! Recorded parts of one conversation, redacted together.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::engine::{Redactor, Scan, each_segment, is_json};
use crate::hit::{self, Hit};
use crate::join::{Fields, RunKey, Step, body_of, step};
use crate::json;
use crate::switch::Stage;

/// How often what was taken out, by the id that stands in the tokens.
pub type Counts = BTreeMap<&'static str, usize>;

/// Redacts texts that belong to one conversation, whole: files, pages, batches. Their lines of JSON are parts, or records with a
/// `part`; the deltas of one run are scanned as the text they join to, over the borders of texts too. Lines stay where they are, and
/// those that hold nothing keep their bytes.
///
/// All texts are in memory until [`Self::finish`].
#[derive(Debug)]
pub struct Conversation<'r> {
    redactor: &'r Redactor,
    texts: Vec<(Vec<u8>, Vec<Hit>)>,
    runs: HashMap<Owner, Run>,
    /// Runs that are over, scanned at the end: their pieces may stand in the text that is being read.
    ended: Vec<Run>,
}

/// Whose run it is: the record's session and turn as they are written, and the run.
type Owner = (Vec<u8>, RunKey);

/// A run's text and where its pieces stand.
#[derive(Default)]
struct Run {
    text: Vec<u8>,
    pieces: Vec<Piece>,
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Run({} bytes)", self.text.len())
    }
}

struct Piece {
    /// Where its text begins in the run's.
    start: usize,
    /// In which of the texts it stands ...
    text: usize,
    /// ... and where: the string's body.
    body: Range<usize>,
}

/// A line: a part, or a record that holds one.
#[derive(Deserialize)]
struct Record<'a> {
    #[serde(borrow)]
    session: Option<&'a RawValue>,
    #[serde(borrow)]
    turn: Option<&'a RawValue>,
    #[serde(borrow)]
    part: Option<&'a RawValue>,
}

impl<'r> Conversation<'r> {
    /// A conversation without texts.
    pub fn new(redactor: &'r Redactor) -> Self {
        Self {
            redactor,
            texts: Vec::new(),
            runs: HashMap::new(),
            ended: Vec::new(),
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
                        self.line(&text, at, span.clone());
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
        let open = std::mem::take(&mut self.runs).into_values();
        for run in std::mem::take(&mut self.ended).into_iter().chain(open) {
            self.end(run);
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

    /// Takes a line for the runs.
    fn line(&mut self, text: &[u8], at: usize, span: Range<usize>) {
        let line = text[span].trim_ascii();
        // most lines are no matter of runs
        let matters = memmem::find(line, b"delta").is_some()
            || memmem::find(line, b"\\u").is_some()
            || (!self.runs.is_empty() && line.len() < 1024);
        if !matters {
            return;
        }
        let Ok(record) = serde_json::from_slice::<Record<'_>>(line) else {
            return;
        };
        let owner = [record.session, record.turn]
            .map(|v| v.map_or("", RawValue::get))
            .join("\0")
            .into_bytes();
        let part = record.part.map_or(line, |part| part.get().as_bytes());
        let Ok(fields) = serde_json::from_slice::<Fields<'_>>(part) else {
            return;
        };
        match step(&fields) {
            Step::Delta(key, value) => {
                let body = body_of(value);
                let start = body.as_ptr() as usize - text.as_ptr() as usize;
                let run = self.runs.entry((owner, key)).or_default();
                run.pieces.push(Piece {
                    start: run.text.len(),
                    text: at,
                    body: start..start + body.len(),
                });
                run.text.extend_from_slice(&json::decode(body).text);
            }
            Step::Ends(key) => {
                if let Some(run) = self.runs.remove(&(owner, key)) {
                    self.ended.push(run);
                }
            }
            Step::EndsAll => {
                let over: Vec<Owner> = self
                    .runs
                    .keys()
                    .filter(|(of, _)| *of == owner)
                    .cloned()
                    .collect();
                self.ended
                    .extend(over.iter().filter_map(|key| self.runs.remove(key)));
            }
            Step::Other => {}
        }
    }

    /// Scans what a run joins to, and marks the pieces of each find.
    fn end(&mut self, run: Run) {
        if run.pieces.len() < 2 {
            return;
        }
        for hit in self.redactor.hits(&run.text) {
            let mut with = json::encode(&hit.with);
            let first = run.pieces.partition_point(|p| p.start <= hit.span.start) - 1;
            for (at, piece) in run
                .pieces
                .iter()
                .enumerate()
                .skip(first)
                .take_while(|(_, p)| p.start < hit.span.end)
            {
                let end = run
                    .pieces
                    .get(at + 1)
                    .map_or(run.text.len(), |next| next.start);
                let local = hit.span.start.max(piece.start) - piece.start
                    ..hit.span.end.min(end) - piece.start;
                if local.is_empty() {
                    continue;
                }
                let (text, hits) = &mut self.texts[piece.text];
                let origin = json::decode(&text[piece.body.clone()]).origin(local);
                hits.push(Hit {
                    span: origin.start + piece.body.start..origin.end + piece.body.start,
                    with: std::mem::take(&mut with),
                    ..hit.clone()
                });
            }
        }
    }
}
