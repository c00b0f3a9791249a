//! Text and reasoning: each delta stands between its start and its end.

use serde_json::json;

use super::written::written;
use super::{Fate, Output};
use crate::limits;
use crate::ui_stream::head::ChunkKind;

/// Text and reasoning: a run of deltas between its start and its end.
pub(super) fn run(
    open: &mut Vec<Box<str>>,
    (start, end): (&str, &str),
    kind: &ChunkKind,
    id: Option<&str>,
    out: &mut Vec<Output>,
) -> Fate {
    let Some(id) = id else { return Fate::Drop };
    let at = open.iter().position(|o| &**o == id);
    match (kind, at) {
        (ChunkKind::TextStart | ChunkKind::ReasoningStart, Some(_)) => {
            out.push(written(json!({"type": end, "id": id})))
        }
        (ChunkKind::TextStart | ChunkKind::ReasoningStart, None) => begin(open, end, id, out),
        (ChunkKind::TextDelta | ChunkKind::ReasoningDelta, Some(_)) => {}
        (ChunkKind::TextDelta | ChunkKind::ReasoningDelta, None) => {
            out.push(written(json!({"type": start, "id": id})));
            begin(open, end, id, out);
        }
        (_, Some(at)) => drop(open.remove(at)),
        (_, None) => return Fate::Drop,
    }
    Fate::Pass
}

/// Opens a run; where too many are open the oldest is closed.
fn begin(open: &mut Vec<Box<str>>, end: &str, id: &str, out: &mut Vec<Output>) {
    if open.len() >= limits::OPEN_RUNS {
        out.push(written(json!({"type": end, "id": open.remove(0)})));
    }
    open.push(id.into());
}
