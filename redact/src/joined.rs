//! Deltas of recorded parts, joined to the texts of their runs: over lines of JSON, server-sent events, arrays, and the borders of texts.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::decode::View;
use crate::hit::Hit;
use crate::join::{Fields, RunKey, Step, body_of, step};
use crate::json;
use crate::walk::{Leaf, walk};

/// What every delta has, in its type or as a key.
static DELTA: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("delta"));
/// What a text has that is a private key, or part of one.
static PRIVATE_KEY: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("PRIVATE KEY"));
/// Shorter texts do not hold two deltas.
const TWO: usize = 48;
/// Letters of a type may be written so.
static ESCAPE: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\\u"));
/// Parts that end runs are shorter.
const ENDS: usize = 1024;
/// So deep parts may stand in a document.
const NESTED: u8 = 8;

/// The runs of a conversation.
#[derive(Default)]
pub(crate) struct Joined {
    open: HashMap<Owner, Run>,
    /// Runs that are over, scanned at the end: their pieces may stand in the text that is being read.
    ended: Vec<Run>,
}

/// Whose run it is: the array that its parts stand in, the record's session and turn as they are written, and the run.
type Owner = (Vec<u8>, RunKey);

/// A run's text and where its pieces stand.
#[derive(Default)]
pub(crate) struct Run {
    /// What the deltas join to.
    pub text: Vec<u8>,
    pieces: Vec<Piece>,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Run({} bytes)", self.text.len())
    }
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Joined({} open)", self.open.len())
    }
}

struct Piece {
    /// Where its text begins in the run's, and how long it is.
    start: usize,
    length: usize,
    /// In which of the texts it stands ...
    text: usize,
    /// ... and where: the string's body.
    body: Range<usize>,
}

/// A part, or a record that holds one.
#[derive(Deserialize)]
struct Record<'a> {
    #[serde(borrow)]
    session: Option<&'a RawValue>,
    #[serde(borrow)]
    turn: Option<&'a RawValue>,
    #[serde(borrow)]
    part: Option<&'a RawValue>,
}

/// Whether deltas in one text may join: there are two.
pub(crate) fn may_join(text: &[u8]) -> bool {
    text.len() >= TWO
        && DELTA.find(text).is_some()
        && (memchr::memmem::find_iter(text, "-delta").nth(1).is_some()
            || ESCAPE.find(text).is_some())
}

impl Joined {
    /// Takes JSON that stands at `span` of the text of this number: a part, a record with one, or a document that holds such.
    pub fn take(&mut self, text: &[u8], number: usize, span: Range<usize>) {
        let json = text[span].trim_ascii();
        // most lines are no matter of runs
        let matters = memchr::memmem::find(json, b"delta").is_some()
            || ESCAPE.find(json).is_some()
            || (!self.open.is_empty() && json.len() < ENDS);
        if matters {
            self.value((text, number), json, &[], NESTED);
        }
    }

    fn value(&mut self, text: (&[u8], usize), json: &[u8], scope: &[u8], nested: u8) {
        let is_object = json.first() == Some(&b'{');
        if is_object && self.part(text, json, scope) {
            return;
        }
        let Some(nested) = nested.checked_sub(1).filter(|_| may_join(json)) else {
            return;
        };
        let Ok(Inner(values)) = serde_json::from_slice::<Inner<'_>>(json) else {
            return;
        };
        // runs of two arrays have nothing to do with each other
        let place = (json.as_ptr() as usize - text.0.as_ptr() as usize).to_le_bytes();
        let scope = if is_object { scope } else { &place };
        for value in values {
            let json = value.get().as_bytes();
            if matches!(json.first(), Some(b'{' | b'[')) {
                self.value(text, json, scope, nested);
            }
        }
    }

    /// Whether it is a part, or a record that holds one.
    fn part(&mut self, (text, number): (&[u8], usize), json: &[u8], scope: &[u8]) -> bool {
        let Ok(record) = serde_json::from_slice::<Record<'_>>(json) else {
            return false;
        };
        let part = record.part.map_or(json, |part| part.get().as_bytes());
        let Ok(fields) = serde_json::from_slice::<Fields<'_>>(part) else {
            return false;
        };
        let owner = || {
            let [session, turn] =
                [record.session, record.turn].map(|v| v.map_or("", RawValue::get).as_bytes());
            [scope, session, b"\0", turn].concat()
        };
        match step(&fields) {
            Step::Delta(key, value) => {
                let body = body_of(value);
                let start = body.as_ptr() as usize - text.as_ptr() as usize;
                let run = self.open.entry((owner(), key)).or_default();
                run.push(number, start..start + body.len(), &json::decode(body).text);
            }
            Step::Ends(key) => {
                if let Some(run) = self.open.remove(&(owner(), key)) {
                    self.ended.push(run);
                }
            }
            Step::EndsAll => {
                let owner = owner();
                let over = self.open.extract_if(|(of, _), _| *of == owner);
                self.ended.extend(over.map(|(_, run)| run));
            }
            Step::Other => return false,
        }
        true
    }

    /// All runs that have more than one piece: what one piece says is seen where it stands.
    pub fn runs(self) -> impl Iterator<Item = Run> {
        let all = self.ended.into_iter().chain(self.open.into_values());
        all.filter(|run| run.pieces.len() > 1)
    }
}

/// The arrays of texts in a document whose elements may be lines of one: those with a private key in them.
pub(crate) fn lists(text: &[u8]) -> Vec<Run> {
    let mut lists: Vec<Run> = Vec::new();
    if PRIVATE_KEY.find(text).is_none() {
        return lists;
    }
    let mut end = None;
    walk(text, |leaf, body, _| {
        let follows = end.take().is_some_and(|end: usize| {
            let between = text[end + 1..body.start].trim_ascii_end();
            let between = between.strip_suffix(b"\"").map(<[u8]>::trim_ascii);
            leaf != Leaf::Number && between == Some(b",")
        });
        if matches!(leaf, Leaf::Text | Leaf::Beside) {
            end = Some(body.end);
            if !follows {
                lists.push(Run::default());
            }
            if let Some(list) = lists.last_mut() {
                if !list.text.is_empty() && !list.text.ends_with(b"\n") {
                    list.text.push(b'\n');
                }
                let line = json::decode(&text[body.clone()]).text;
                list.push(0, body, &line);
            }
        }
    });
    lists.retain(|list| list.pieces.len() > 1 && PRIVATE_KEY.find(&list.text).is_some());
    lists
}

impl Run {
    fn push(&mut self, number: usize, body: Range<usize>, text: &[u8]) {
        self.pieces.push(Piece {
            start: self.text.len(),
            length: text.len(),
            text: number,
            body,
        });
        self.text.extend_from_slice(text);
    }

    /// Finds in what the run joins to, as finds in its pieces: each with the number of its text. The first piece gets what stands in the
    /// find's place.
    pub fn spread<'t>(
        &self,
        hits: Vec<Hit>,
        text: impl Fn(usize) -> &'t [u8],
    ) -> Vec<(usize, Hit)> {
        let mut spread = Vec::new();
        // finds are in order: each piece is read once
        let mut read: Option<(usize, View<'t>)> = None;
        for hit in hits {
            let mut with = json::encode(&hit.with);
            let first = self.pieces.partition_point(|p| p.start <= hit.span.start) - 1;
            let pieces = self.pieces.iter().enumerate().skip(first);
            for (number, piece) in pieces.take_while(|(_, p)| p.start < hit.span.end) {
                let local = hit.span.start.max(piece.start) - piece.start
                    ..hit.span.end.min(piece.start + piece.length) - piece.start;
                if local.is_empty() {
                    continue;
                }
                let view = match read.take() {
                    Some((of, view)) if of == number => view,
                    _ => json::decode(&text(piece.text)[piece.body.clone()]),
                };
                let origin = view.origin(local);
                read = Some((number, view));
                let hit = Hit {
                    span: origin.start + piece.body.start..origin.end + piece.body.start,
                    with: std::mem::take(&mut with),
                    ..hit.clone()
                };
                spread.push((piece.text, hit));
            }
        }
        spread
    }
}

/// The elements of an array, or the values of an object, all of them: of two under one key each.
struct Inner<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for Inner<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Values)
    }
}

struct Values;

impl<'de> Visitor<'de> for Values {
    type Value = Inner<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array or an object")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Inner<'de>, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = elements.next_element()? {
            values.push(value);
        }
        Ok(Inner(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Inner<'de>, A::Error> {
        let mut values = Vec::new();
        while let Some((_, value)) = members.next_entry::<IgnoredAny, &RawValue>()? {
            values.push(value);
        }
        Ok(Inner(values))
    }
}
