//! `bex_append`: identity, seq and quota in one decision.

use std::collections::BTreeMap;

use bex_proto::driver::TurnEnd;
use bex_proto::ids::PartId;
use bex_proto::session::Verdict;
use bex_proto::transcript::{Part, UNSTORABLE_KIND};
use bex_proto::{Generation, PartIndex, Seq, SessionId, TurnNo};
use bex_store::StoreError;
use bex_store::transcript::{Append, AppendError, AppendOutcome, Appended, Marks};
use bex_store::turns::{DroppedRange, RecordedEnd};
use jiff::Timestamp;

use super::{Model, Offset, Session, Stored};

/// What a part is charged beside its own bytes.
const CHARGE: u64 = 64;

impl Model {
    pub fn append(&self, batch: Append<'_>) -> Result<AppendOutcome, AppendError> {
        for part in batch.parts {
            let text = std::str::from_utf8(&part.bytes).map_err(|_| AppendError::Part(part.id))?;
            if part.id.turn != batch.turn || text.contains('\0') {
                return Err(AppendError::Part(part.id));
            }
        }
        let now = self.now();
        let mut sessions = self.sessions();
        let Some(session) = sessions.get_mut(batch.session) else {
            return Ok(AppendOutcome::UnknownTurn);
        };
        if session.refuses && !batch.parts.is_empty() {
            let refused = StoreError::Corrupt { what: "model" };
            return Err(refused.into());
        }
        let Some(turn) = session.turns.get(&batch.turn) else {
            return Ok(AppendOutcome::UnknownTurn);
        };
        if turn.row.generation != batch.generation {
            return Ok(AppendOutcome::WrongGeneration);
        }
        if turn.row.verdict == Verdict::Complete {
            return Ok(AppendOutcome::Complete);
        }
        let declared = turn.row.expected_parts;
        if !session.move_offset(&batch, now) {
            return Ok(AppendOutcome::OffsetMoved);
        }
        let unstorable = batch.marks == Marks::Unstorable
            || batch
                .parts
                .iter()
                .any(|p| p.head.kind.as_str() == UNSTORABLE_KIND);
        // the first of each index counts
        let mut distinct: BTreeMap<u32, &Part> = BTreeMap::new();
        for part in batch.parts {
            distinct.entry(part.id.index.0).or_insert(part);
        }
        let (mut take, mut duplicates, mut refused_declared, mut mismatch) =
            (Vec::new(), 0, 0, None);
        for (index, part) in distinct {
            match session.parts.get(&(batch.turn, index)) {
                Some(stored) => {
                    duplicates += 1;
                    if stored.bytes != part.bytes && mismatch.is_none() {
                        mismatch = Some(PartIndex(index));
                    }
                }
                None if declared.is_some_and(|declared| index >= declared) => {
                    refused_declared += 1;
                }
                None => take.push(part),
            }
        }
        let (take, refused_quota) = session.fit(batch.turn, take);
        for part in &take {
            let head = &mut session.row.transcript;
            let stored = Stored {
                seq: head.next_seq.0,
                bytes: part.bytes.clone(),
            };
            head.next_seq = Seq(head.next_seq.0 + 1);
            head.charged_bytes += part.bytes.len() as u64 + CHARGE;
            head.parts += 1;
            session.parts.insert((batch.turn, part.id.index.0), stored);
        }
        let head = session.row.transcript;
        let stored = take.len() as u32;
        let bytes: usize = take.iter().map(|part| part.bytes.len()).sum();
        let turn = session
            .turns
            .get_mut(&batch.turn)
            .expect("it was just read");
        let row = &mut turn.row;
        row.stored_parts += stored;
        row.stored_bytes += bytes as u64;
        if stored > 0 {
            row.last_part_at = Some(now);
            row.started_at = row.started_at.or(Some(now));
            turn.rejudge |= row.verdict == Verdict::Truncated;
        }
        row.unstorable |= unstorable;
        row.mismatch = [row.mismatch, mismatch].into_iter().flatten().min();
        Ok(AppendOutcome::Stored(Appended {
            stored,
            duplicates,
            refused_quota,
            refused_declared,
            quota_mark: head.quota_mark,
            mismatch,
            next_seq: head.next_seq,
        }))
    }

    pub fn record_turn_end(
        &self,
        session: &SessionId,
        generation: Generation,
        end: &TurnEnd,
    ) -> RecordedEnd {
        let recorded = self.with(session, |session| {
            let row = &mut session.turns.get_mut(&end.turn)?.row;
            let known = row.expected_parts.is_none_or(|parts| {
                (parts, row.expected_sha256.as_ref()) == (end.parts, Some(&end.sha256))
            });
            if row.generation != generation || row.verdict != Verdict::Open || !known {
                return None;
            }
            row.expected_parts = Some(end.parts);
            row.expected_sha256 = Some(end.sha256.clone());
            row.driver_state = Some(end.state);
            row.dropped = end.dropped.map(DroppedRange::from);
            Some(())
        });
        match recorded.flatten() {
            Some(()) => RecordedEnd::Known,
            None => RecordedEnd::Refused,
        }
    }

    pub fn harvest_offset(&self, session: &SessionId, generation: Generation, log_id: &str) -> u64 {
        let key = (generation, log_id.to_owned());
        self.with(session, |session| {
            session.offsets.get(&key).map_or(0, |o| o.at)
        })
        .unwrap_or(0)
    }

    pub fn last_harvest(
        &self,
        session: &SessionId,
        generation: Generation,
        turn: TurnNo,
    ) -> Option<(String, u64)> {
        self.with(session, |session| {
            let of_turn = session
                .offsets
                .iter()
                .filter(|((life, _), offset)| *life == generation && offset.turn == turn);
            of_turn
                .max_by_key(|(_, offset)| offset.moved)
                .map(|((_, log_id), offset)| (log_id.clone(), offset.at))
        })
        .flatten()
    }

    pub fn harvested_at(
        &self,
        session: &SessionId,
        generation: Generation,
        turn: TurnNo,
    ) -> Option<Timestamp> {
        self.with(session, |session| {
            let of_turn = session
                .offsets
                .iter()
                .filter(|((life, _), offset)| *life == generation && offset.turn == turn);
            of_turn.map(|(_, offset)| offset.moved_at).max()
        })
        .flatten()
    }

    pub fn contiguous_end(&self, session: &SessionId, turn: TurnNo) -> PartIndex {
        self.with(session, |session| {
            let mut end = 0;
            while session.parts.contains_key(&(turn, end)) {
                end += 1;
            }
            PartIndex(end)
        })
        .unwrap_or(PartIndex(0))
    }
}

impl Session {
    /// False when the log's offset does not stand where the batch begins.
    fn move_offset(&mut self, batch: &Append<'_>, now: Timestamp) -> bool {
        let Some(step) = batch.harvest else {
            return true;
        };
        let key = (batch.generation, step.log_id.to_owned());
        if step.from == 0 {
            self.offsets.entry(key.clone()).or_insert(Offset {
                turn: batch.turn,
                at: 0,
                moved: self.moves,
                moved_at: now,
            });
        }
        self.moves += 1;
        let moved = self.moves;
        match self.offsets.get_mut(&key).filter(|o| o.at == step.from) {
            Some(offset) => {
                *offset = Offset {
                    turn: batch.turn,
                    at: step.to,
                    moved,
                    moved_at: now,
                };
                true
            }
            None => false,
        }
    }

    /// What of it fits the quota, and how much does not; sets the mark.
    fn fit<'a>(&mut self, turn: TurnNo, take: Vec<&'a Part>) -> (Vec<&'a Part>, u32) {
        let head = self.row.transcript;
        let mut stop = head.quota_mark.and_then(|mark| match mark.turn.cmp(&turn) {
            std::cmp::Ordering::Greater => None,
            std::cmp::Ordering::Less => Some(0),
            std::cmp::Ordering::Equal => Some(mark.index.0),
        });
        let (mut fit, mut bytes, mut refused) = (Vec::new(), head.charged_bytes, 0);
        for part in take {
            let charged = bytes + part.bytes.len() as u64 + CHARGE;
            let fits =
                charged <= self.byte_limit && head.parts + (fit.len() as u64) < self.part_limit;
            if stop.is_some_and(|stop| part.id.index.0 >= stop) {
                refused += 1;
            } else if fits {
                fit.push(part);
                bytes = charged;
            } else {
                refused += 1;
                if head.quota_mark.is_none() && stop.is_none() {
                    let mark = PartId {
                        turn,
                        index: part.id.index,
                    };
                    self.row.transcript.quota_mark = Some(mark);
                    stop = Some(part.id.index.0);
                }
            }
        }
        (fit, refused)
    }
}
