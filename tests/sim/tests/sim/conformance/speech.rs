//! What is said, and what becomes of it.

use bex_proto::PartIndex;
use bex_proto::driver::{Dropped, TurnDigest, TurnEnd, TurnState};
use bex_proto::session::FailureReason;
use bex_store::settle::{Cause, Legacy, SandboxAfter, Settle};
use bex_store::transcript::{Append, HarvestStep, Marks};
use bytes::Bytes;

use super::Pair;
use crate::gateway::part;

impl Pair {
    pub(super) async fn append(&mut self) {
        let id = self.session();
        let turn = self.turn(&id);
        let generation = self.generation(&id, turn);
        let from = self.rng.below(12) as u32;
        let mut parts = Vec::new();
        for index in from..from + self.rng.below(6) as u32 {
            if self.rng.chance(150) {
                continue;
            }
            let other = if self.rng.chance(40) { "other " } else { "" };
            parts.push(part(turn, index, text(index, other)));
            if self.rng.chance(80) {
                parts.push(part(turn, index, text(index, "again ")));
            }
        }
        if self.rng.chance(200) {
            parts.reverse();
        }
        let log_id = self.rng.pick(&["one", "two"]);
        let at = self.model.harvest_offset(&id, generation, log_id);
        let begins = if self.rng.chance(850) {
            at
        } else {
            self.rng.below(3) * 10
        };
        let step = HarvestStep {
            log_id,
            from: begins,
            to: begins + self.rng.below(20),
        };
        let batch = Append {
            session: &id,
            turn,
            generation,
            parts: &parts,
            marks: if self.rng.chance(50) {
                Marks::Unstorable
            } else {
                Marks::Clean
            },
            harvest: self.rng.chance(600).then_some(step),
        };
        let (real, model) = (self.db.append(batch).await, self.model.append(batch));
        same!(
            self,
            format!("append {batch:?}"),
            real,
            model.expect("the model answers")
        );
    }

    pub(super) async fn turn_end(&mut self) {
        let id = self.session();
        let turn = self.turn(&id);
        let generation = self.generation(&id, turn);
        let parts = self.rng.below(8) as u32;
        let mut digest = TurnDigest::default();
        (0..parts).for_each(|index| digest.add(&text(index, "")));
        if self.rng.chance(100) {
            digest.add(b"not said");
        }
        let dropped = self.rng.chance(200).then_some(Dropped {
            first: PartIndex(1),
            last: PartIndex(2),
            count: 2,
            bytes: 3,
        });
        let states = [TurnState::Succeeded, TurnState::Failed, TurnState::Stopped];
        let end = TurnEnd {
            turn,
            parts,
            bytes: 1,
            sha256: digest.hex(),
            state: self.rng.pick(&states),
            dropped,
        };
        let real = self.db.record_turn_end(&id, generation, &end).await;
        let model = self.model.record_turn_end(&id, generation, &end);
        same!(
            self,
            format!("record_turn_end {generation} {end:?}"),
            real,
            model
        );
    }

    pub(super) async fn settle(&mut self) {
        let Some(lease) = self.lease() else { return };
        let turn = self.turn(&lease.session);
        let causes = [
            Cause::DriverEnded,
            Cause::StoreFailed,
            Cause::Lost,
            Cause::Deadline,
            Cause::Canceled,
        ];
        let after = [SandboxAfter::Idle, SandboxAfter::Stopping];
        let legacy = Legacy {
            state: self.rng.pick(&[TurnState::Succeeded, TurnState::Failed]),
            parts: self.rng.below(6) as u32,
            whole: self.rng.chance(700),
        };
        let settle = Settle {
            turn,
            generation: self.generation(&lease.session, turn),
            cause: self.rng.pick(&causes),
            legacy: self.rng.chance(150).then_some(legacy),
            sandbox: self.rng.pick(&after),
            failure: self.rng.pick(&[None, Some(FailureReason::SandboxLost)]),
        };
        let real = self.db.settle(&lease, &settle).await;
        let model = self.model.settle(&lease, &settle);
        same!(self, format!("settle {lease:?} {settle:?}"), real, model);
    }

    pub(super) async fn rejudge(&mut self) {
        let Some(lease) = self.lease() else { return };
        let waiting = self.db.turns_to_rejudge(&lease.session).await;
        same!(
            self,
            "turns_to_rejudge",
            waiting,
            self.model.turns_to_rejudge(&lease.session)
        );
        let turn = self.turn(&lease.session);
        let real = self.db.rejudge(&lease, turn).await;
        same!(
            self,
            format!("rejudge {lease:?} {turn}"),
            real,
            self.model.rejudge(&lease, turn)
        );
    }
}

fn text(index: u32, other: &str) -> Bytes {
    format!(r#"{{"type":"text-delta","id":"t","delta":"{other}{index}"}}"#).into()
}
