//! Comparing what a viewer was shown with what is stored.

use std::collections::BTreeMap;

use bex_proto::PartId;
use bytes::Bytes;
use serde_json::Value;

/// Parts with their identity.
pub type Parts = Vec<(PartId, Bytes)>;

/// The outcome of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Stored parts that were shown, or that the stream's own `start` and `finish` stand for.
    pub accounted: usize,
    /// Stored parts that were not shown.
    pub lost: Vec<PartId>,
    /// Parts shown more than once.
    pub duplicated: Vec<PartId>,
    /// Parts shown after a later one.
    pub disordered: Vec<PartId>,
    /// Parts shown with other bytes.
    pub altered: Vec<PartId>,
    /// Parts shown in the form that clients take: tool parts with the `dynamic` flag of their call, errors that were not the
    /// end as history. No fault.
    pub repaired: Vec<PartId>,
    /// Parts shown that are not stored.
    pub foreign: Vec<PartId>,
}

impl Tally {
    /// Compares. Both stores and streams are in conversation order.
    pub fn of(stored: &[(PartId, Bytes)], shown: &[(PartId, Bytes)]) -> Self {
        let by_id: BTreeMap<PartId, &Bytes> = stored.iter().map(|(id, b)| (*id, b)).collect();
        let mut tally = Self::default();
        let mut seen: BTreeMap<PartId, ()> = BTreeMap::new();
        let mut last = None;
        for (id, bytes) in shown {
            if seen.insert(*id, ()).is_some() {
                tally.duplicated.push(*id);
            } else if last.is_some_and(|last| *id < last) {
                tally.disordered.push(*id);
            }
            last = last.max(Some(*id));
            match by_id.get(id) {
                None => tally.foreign.push(*id),
                Some(stored) if *stored == bytes || is_folded(stored) => {}
                Some(stored) if is_repaired(stored, bytes) => tally.repaired.push(*id),
                Some(_) => tally.altered.push(*id),
            }
        }
        for (id, bytes) in &by_id {
            if seen.contains_key(id) || is_folded(bytes) {
                tally.accounted += 1;
            } else {
                tally.lost.push(*id);
            }
        }
        tally
    }

    /// Nothing lost, nothing twice, nothing changed, everything in order.
    pub fn is_clean(&self) -> bool {
        let faults = [
            &self.lost,
            &self.duplicated,
            &self.disordered,
            &self.altered,
            &self.foreign,
        ];
        faults.iter().all(|ids| ids.is_empty())
    }
}

/// A stream has one `start` and one `finish` of its own; those of single turns live on in them.
fn is_folded(part: &[u8]) -> bool {
    let part: Value = serde_json::from_slice(part).unwrap_or_default();
    matches!(part["type"].as_str(), Some("start" | "finish"))
}

fn is_repaired(stored: &[u8], shown: &[u8]) -> bool {
    let chunk = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap_or_default();
    let (mut stored, mut shown) = (chunk(stored), chunk(shown));
    if stored["type"] == "error" {
        let text = &shown["data"]["errorText"];
        return shown["type"] == "data-bex-turn-error" && *text == stored["errorText"];
    }
    for chunk in [&mut stored, &mut shown] {
        if let Some(fields) = chunk.as_object_mut() {
            fields.remove("dynamic");
        }
    }
    let is_tool = stored["type"]
        .as_str()
        .is_some_and(|t| t.starts_with("tool-"));
    is_tool && stored == shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(index: u32, text: &str) -> (PartId, Bytes) {
        let data = format!(r#"{{"type":"text-delta","id":"t","delta":"{text}"}}"#);
        (PartId::new(1, index), data.into())
    }

    fn start() -> (PartId, Bytes) {
        (
            PartId::new(1, 0),
            Bytes::from_static(br#"{"type":"start"}"#),
        )
    }

    #[test]
    fn a_clean_stream_is_clean_with_or_without_its_folded_start() {
        let stored = [start(), part(1, "a"), part(2, "b")];
        let tally = Tally::of(&stored, &[part(1, "a"), part(2, "b")]);
        assert!(tally.is_clean(), "{tally:?}");
        assert_eq!(tally.accounted, 3);
    }

    #[test]
    fn only_a_tool_may_be_bound_again_and_only_an_error_be_history() {
        let chunk = |kind: &str, more: &str| {
            let data = format!(r#"{{"type":"{kind}","toolCallId":"c"{more}}}"#);
            (PartId::new(1, 1), Bytes::from(data))
        };
        let dynamic = r#","dynamic":true"#;
        let stored = [chunk("tool-output-error", dynamic)];
        let tally = Tally::of(&stored, &[chunk("tool-output-error", "")]);
        assert!(tally.is_clean() && tally.repaired.len() == 1, "{tally:?}");
        for other in [chunk("tool-output-error", r#","x":1"#), chunk("tool-x", "")] {
            assert!(!Tally::of(&stored, &[other]).is_clean());
        }
        let text = [chunk("text-delta", dynamic)];
        assert!(!Tally::of(&text, &[chunk("text-delta", "")]).is_clean());
        let told = |text: &str| {
            let data = format!(
                r#"{{"type":"data-bex-turn-error","data":{{"turn":1,"errorText":"{text}"}}}}"#
            );
            (PartId::new(1, 1), Bytes::from(data))
        };
        let error = Bytes::from_static(br#"{"type":"error","errorText":"boom"}"#);
        let error = [(PartId::new(1, 1), error)];
        assert!(Tally::of(&error, &[told("boom")]).is_clean());
        assert!(!Tally::of(&error, &[told("bang")]).is_clean());
    }

    #[test]
    fn each_fault_is_named() {
        let stored = [start(), part(1, "a"), part(2, "b"), part(3, "c")];
        let shown = [part(2, "b"), part(1, "x"), part(1, "x"), part(9, "z")];
        let tally = Tally::of(&stored, &shown);
        let id = |n| vec![PartId::new(1, n)];
        assert_eq!((tally.lost, tally.duplicated), (id(3), id(1)));
        assert_eq!((tally.disordered, tally.foreign), (id(1), id(9)));
        assert_eq!(tally.altered.len(), 2, "both showings of part 1");
        assert_eq!(tally.accounted, 3);
    }
}
