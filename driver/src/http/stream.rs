//! The body of GET /stream.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use bex_proto::ids::{PartId, PartIndex, TurnNo};
use bex_proto::{limits, sse};
use bytes::{Bytes, BytesMut};
use futures::stream::unfold;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::time::timeout;
use tracing::{error, warn};

use super::Body;
use crate::sink::{Batch, Tail, TurnReader};
use crate::turns::{Source, Turns};

/// `turn=3&from=91`; `from` is 0 when absent.
pub fn query(text: &str) -> Option<(TurnNo, u32)> {
    let (mut turn, mut from) = (None, None);
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=')?;
        let slot = match name {
            "turn" => &mut turn,
            "from" => &mut from,
            _ => return None,
        };
        if slot.replace(value).is_some() {
            return None;
        }
    }
    // the id's own form decides which numbers are canonical
    let id: PartId = format!("{}.{}", turn?, from.unwrap_or("0")).parse().ok()?;
    Some((id.turn, id.index.0))
}

/// A turn that was begun, from a part on.
pub fn of(tail: Arc<Tail>, turn: TurnNo, from: u32) -> Body {
    body(Progress::Reading(TurnReader::new(tail, from)), Some(turn))
}

/// A turn that may begin. When a later one begins in its place the stream ends without an end mark.
pub fn awaited(turns: Arc<Turns>, turn: TurnNo, from: u32) -> Body {
    body(Progress::Awaiting { turns, turn, from }, Some(turn))
}

/// The old form: everything from the start, without ids.
pub fn old(tail: Arc<Tail>) -> Body {
    body(Progress::Reading(TurnReader::new(tail, 0)), None)
}

enum Progress {
    Awaiting {
        turns: Arc<Turns>,
        turn: TurnNo,
        from: u32,
    },
    Reading(TurnReader),
    Over,
}

/// What one step came to.
enum Step {
    Parts(Batch),
    Begun(TurnReader),
    Done,
    Broken,
}

fn body(progress: Progress, turn: Option<TurnNo>) -> Body {
    let mut opening = VecDeque::new();
    if turn.is_some() {
        opening.push_back(Bytes::from_static(sse::STREAM_OPEN.as_bytes()));
    }
    let chunks = unfold(
        (progress, opening),
        move |(mut progress, mut ready)| async move {
            if ready.is_empty() {
                next(&mut progress, &mut ready, turn).await;
            }
            let chunk = ready.pop_front()?;
            Some((Ok::<_, Infallible>(Frame::data(chunk)), (progress, ready)))
        },
    );
    StreamBody::new(chunks).boxed_unsync()
}

/// Puts the next chunk into `ready`; leaves it empty at the stream's end.
async fn next(progress: &mut Progress, ready: &mut VecDeque<Bytes>, turn: Option<TurnNo>) {
    loop {
        let Ok(step) = timeout(limits::HEARTBEAT, progress.step()).await else {
            ready.push_back(Bytes::from_static(sse::KEEP_ALIVE.as_bytes()));
            return;
        };
        let mut out = BytesMut::new();
        match step {
            Step::Begun(reader) => {
                *progress = Progress::Reading(reader);
                continue;
            }
            Step::Parts(parts) => {
                for (index, part) in parts {
                    let id = turn.map(|turn| PartId {
                        turn,
                        index: PartIndex(index),
                    });
                    sse::write_event(&mut out, id, &part);
                }
            }
            Step::Done => {
                *progress = Progress::Over;
                sse::write_event(&mut out, None, sse::DONE.as_bytes());
            }
            Step::Broken => {
                *progress = Progress::Over;
                return;
            }
        }
        ready.push_back(out.freeze());
        return;
    }
}

impl Progress {
    /// One step; may be dropped while it waits.
    async fn step(&mut self) -> Step {
        match self {
            Self::Over => Step::Broken,
            Self::Reading(reader) => match reader.next().await {
                Ok(Some(parts)) => Step::Parts(parts),
                Ok(None) => Step::Done,
                Err(cause) => {
                    error!(error = %cause, "a turn's log cannot be read");
                    Step::Broken
                }
            },
            Self::Awaiting { turns, turn, from } => {
                let mut begun = turns.watch();
                loop {
                    begun.borrow_and_update();
                    match turns.source(*turn) {
                        Source::Spoken(tail) => return Step::Begun(TurnReader::new(tail, *from)),
                        Source::Never => {
                            warn!(%turn, "awaited turn will not be spoken");
                            return Step::Broken;
                        }
                        Source::Awaited => {}
                    }
                    if begun.changed().await.is_err() {
                        return Step::Broken;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_canonical() {
        assert_eq!(query("turn=3&from=91"), Some((TurnNo(3), 91)));
        assert_eq!(query("turn=3"), Some((TurnNo(3), 0)));
        for text in [
            "",
            "turn=0",
            "turn=03",
            "turn=1&turn=1",
            "turn=1&from=-1",
            "turn=1&x=2",
            "from=1",
        ] {
            assert_eq!(query(text), None, "{text}");
        }
    }
}
