//! What the store says of the turn being shown, and where it is spoken.

use bex_proto::transcript::Part;
use bex_proto::ui_stream::{ChunkKind, Place};
use bex_proto::{PartIndex, TurnNo};
use bex_store::sandboxes::SandboxRow;
use bex_store::turns::TurnRow;

use super::{Live, Prompt, Showing};
use crate::attach::pull::{Known, Reach, Settled};
use crate::attach::viewer::{Stop, Viewer};
use crate::sandbox::TargetRef;

impl Viewer {
    /// Whether an error is the stream's own: a client reads nothing behind one, so that it may only be when nothing is stored
    /// there.
    pub(super) async fn place_of(&mut self, showing: &Showing, part: &Part) -> Result<Place, Stop> {
        if part.head.kind != ChunkKind::Error || showing.place == Place::Earlier {
            return Ok(showing.place);
        }
        // at most this one and those below it are not behind it
        let mut more = part.id.index.0 + 1 < showing.row.stored_parts;
        if !more {
            let behind = part.id.next();
            let next =
                self.ask(|db, session| async move { db.next_stored(&session, behind).await });
            more = next.await?.is_some();
        }
        if !more && self.goes_on_behind(showing) {
            more = self.has_turn_behind(showing.turn()).await?;
        }
        Ok(if more { Place::Earlier } else { Place::Last })
    }

    /// Whether the ended source was not the turn's last word: another sandbox speaks it by now, or will, because this one
    /// was lost before the turn was handed to it.
    pub(super) async fn is_spoken_elsewhere(
        &mut self,
        showing: &mut Showing,
    ) -> Result<bool, Stop> {
        let ended = showing.live.as_ref().map(|live| live.generation);
        self.look_again(showing).await?;
        if showing.live.as_ref().map(|live| live.generation) != ended {
            return Ok(true);
        }
        let undelivered = showing.row.delivery_started_at.is_none();
        if undelivered && showing.known.settled.is_open() {
            showing.live = None;
            self.wait(showing).await?;
            return Ok(true);
        }
        Ok(false)
    }

    /// The turn's row, with its prompt where it is shown, and what it says about missing parts.
    pub(super) async fn look_at(
        &mut self,
        turn: TurnNo,
        prompt: Prompt,
    ) -> Result<(TurnRow, Known), Stop> {
        let (row, head) = self
            .ask(|db, session| async move {
                let row = match prompt {
                    Prompt::Show => db.turn(&session, turn).await?,
                    Prompt::Known => db.turn_without_prompt(&session, turn).await?,
                };
                Ok((row, db.transcript_head(&session).await?))
            })
            .await?;
        let row = row.ok_or(Stop::Revoked)?;
        let quota_from =
            head.and_then(|head| head.quota_mark)
                .and_then(|mark| match mark.turn.cmp(&turn) {
                    std::cmp::Ordering::Less => Some(PartIndex(0)),
                    std::cmp::Ordering::Equal => Some(mark.index),
                    std::cmp::Ordering::Greater => None,
                });
        let known = Known {
            settled: match (row.settled_at, row.reason) {
                (None, _) => Settled::Open,
                (Some(_), None) => Settled::Whole,
                (Some(_), Some(reason)) => Settled::Truncated(reason),
            },
            quota_from,
            dropped: row.dropped.map(|range| (range.first, range.last)),
            reach: if self.claims.rpo {
                Reach::StoredOnly
            } else {
                Reach::Live
            },
        };
        Ok((row, known))
    }

    pub(super) async fn look_again(&mut self, showing: &mut Showing) -> Result<(), Stop> {
        (showing.row, showing.known) = self.look_at(showing.turn(), Prompt::Known).await?;
        let generation = showing.row.generation;
        showing.live.take_if(|live| live.generation != generation);
        if showing.live.is_none() && showing.known.settled.is_open() {
            self.join(showing).await?;
        }
        Ok(())
    }

    /// Joins the turn's source, if its sandbox is there and the ticket allows it.
    pub(super) async fn join(&mut self, showing: &mut Showing) -> Result<(), Stop> {
        let generation = showing.row.generation;
        if showing.known.reach == Reach::StoredOnly || generation.0 == 0 {
            return Ok(());
        }
        let sandbox = self
            .ask(|db, session| async move { db.sandbox(&session, generation).await })
            .await?;
        let Some(target) = sandbox.and_then(target_of) else {
            return Ok(());
        };
        let source = self.hub.join(&target, showing.turn());
        let (changed, tee) = (source.tail.watch(), source.tee.clone());
        showing.live = Some(Live {
            generation,
            source,
            changed,
            tee,
            marked: false,
        });
        self.phases.live();
        Ok(())
    }
}

/// A sandbox that can be dialled. The turn's own generation decides which, whatever the ticket was minted for: a ticket allows a
/// session, and a turn is spoken by one generation.
fn target_of(row: SandboxRow) -> Option<TargetRef> {
    Some(TargetRef {
        session: row.session,
        generation: row.generation,
        namespace: row.namespace,
        pod: row.pod,
        pod_uid: row.pod_uid?,
        container: row.container,
        legacy: row.legacy,
        driver_kid: row.driver_kid,
    })
}
