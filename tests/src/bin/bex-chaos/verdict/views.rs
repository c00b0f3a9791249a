//! What viewers were shown: each part once, in order, nothing lost that they were not told of.

use std::collections::BTreeMap;

use bex_proto::PartId;
use bex_proto::session::Verdict;
use bex_tests::tally::{Parts, Tally};
use bytes::Bytes;

use super::{Case, unlogged_from};
use crate::viewers::View;

/// How many ids a fault names.
const NAMED: usize = 5;

/// A viewer that was there, cut off or not.
pub(super) fn live(case: &Case, view: &View, faults: &mut Vec<String>) {
    faults.extend(view.trouble.iter().cloned());
    if !view.ended {
        faults.push("was never told the end".into());
        return;
    }
    let truth = truth(case);
    let mut tally = Tally::of(&truth, &view.parts);
    let stored: BTreeMap<PartId, ()> = case.stored.iter().map(|(id, _)| (*id, ())).collect();
    tally.lost.retain(|id| {
        let told = view
            .gaps
            .iter()
            .any(|gap| gap.turn == id.turn.0 && (gap.from..=gap.to).contains(&id.index.0));
        stored.contains_key(id) && !told && !view.healed.contains(&id.turn.0)
    });
    // shown while it was spoken; the disk under the log was full
    tally.foreign.retain(|id| {
        let turn = case.turns.iter().find(|turn| turn.turn == id.turn.0);
        let unlogged = turn.and_then(|turn| unlogged_from(case, turn));
        unlogged.is_none_or(|first| id.index.0 < first)
    });
    tell(&tally, faults);
}

/// One that came at the end: exactly what is stored.
pub(super) fn replay(case: &Case, faults: &mut Vec<String>) {
    let view = &case.replay;
    faults.extend(view.trouble.iter().cloned());
    if !view.ended {
        faults.push("has no end".into());
        return;
    }
    tell(&Tally::of(&case.stored, &view.parts), faults);
    for turn in &case.turns {
        let marked = view.incomplete.contains(&turn.turn);
        if marked != (turn.verdict == Verdict::Truncated) {
            faults.push(format!(
                "shows turn {} marked {marked}, it is {}",
                turn.turn, turn.verdict
            ));
        }
    }
}

/// What is stored, and what was spoken and is not stored: viewers run ahead of the store.
fn truth(case: &Case) -> Parts {
    let mut truth: BTreeMap<PartId, Bytes> = BTreeMap::new();
    for turn in &case.turns {
        for spoken in turn
            .spoken
            .iter()
            .filter(|spoken| spoken.generation == turn.generation)
        {
            for (index, part) in (0u32..).zip(&spoken.parts) {
                truth.insert(PartId::new(turn.turn, index), part.clone());
            }
        }
    }
    truth.extend(case.stored.iter().cloned());
    truth.into_iter().collect()
}

fn tell(tally: &Tally, faults: &mut Vec<String>) {
    let kinds = [
        ("was not shown", &tally.lost),
        ("was shown twice", &tally.duplicated),
        ("was shown out of order", &tally.disordered),
        ("was shown otherwise", &tally.altered),
        ("was shown what nobody spoke", &tally.foreign),
    ];
    for (what, ids) in kinds.into_iter().filter(|(_, ids)| !ids.is_empty()) {
        let named: Vec<String> = ids.iter().take(NAMED).map(PartId::to_string).collect();
        faults.push(format!("{what}: {} parts, {}", ids.len(), named.join(", ")));
    }
}
