//! Claims, deliveries, sandboxes, and what people ask for.

use std::time::Duration;

use bex_proto::Generation;
use bex_store::dispatch::{BeginGeneration, Delivery};
use bex_store::leases::{Lease, Round};
use bex_store::sessions::NewTurn;

use super::{HOUR, Pair};
use crate::scenario::NEW_SANDBOX;

impl Pair {
    pub(super) async fn claim(&mut self) {
        let grace = self.rng.pick(&[Duration::ZERO, HOUR]);
        let mut real = self
            .db
            .claim_leases("test", 100, grace)
            .await
            .expect("claimed");
        let mut model = self.model.claim_leases(100, grace);
        real.sort_by(|a, b| a.session.cmp(&b.session));
        model.sort_by(|a, b| a.session.cmp(&b.session));
        let plain = |leases: &[Lease]| -> Vec<_> {
            let of = |l: &Lease| {
                (
                    l.session.clone(),
                    l.fence,
                    l.failures,
                    l.unclear_since.is_some(),
                    l.unseen,
                )
            };
            leases.iter().map(of).collect()
        };
        self.log
            .push(format!("claim_leases {grace:?} -> {:?}", plain(&real)));
        assert_eq!(plain(&model), plain(&real), "{}", self.told());
        self.leases.extend(real);
        let claims = self
            .db
            .claim_dispatches("test", 100)
            .await
            .expect("claimed");
        let mut model = self.model.claim_dispatches();
        let mut real = claims.clone();
        real.sort_by(|a, b| a.session.cmp(&b.session));
        model.sort_by(|a, b| a.session.cmp(&b.session));
        self.log.push(format!("claim_dispatches -> {real:?}"));
        assert_eq!(model, real, "{}", self.told());
        self.claims.extend(claims);
    }

    pub(super) async fn release(&mut self) {
        let Some(lease) = self.lease() else { return };
        if self.rng.chance(200) {
            let real = self.db.renew_lease(&lease).await;
            same!(
                self,
                format!("renew {lease:?}"),
                real,
                self.model.renew_lease(&lease)
            );
            return;
        }
        let next = self.rng.pick(&[Duration::ZERO, Duration::ZERO, HOUR]);
        let round = self
            .rng
            .pick(&[Round::Done, Round::Failed, Round::Unclear, Round::Unseen]);
        let real = self.db.release_lease(&lease, next, round).await;
        let model = self.model.release_lease(&lease, next, round);
        same!(
            self,
            format!("release {lease:?} {next:?} {round:?}"),
            real,
            model
        );
    }

    pub(super) async fn dispatch(&mut self) {
        if self.claims.is_empty() {
            return;
        }
        let newest = self.claims.len() - 1;
        let at = if self.rng.chance(800) {
            newest
        } else {
            self.rng.index(newest + 1)
        };
        let claim = self.claims[at].clone();
        let generation = self.generation(&claim.session, claim.turn);
        match self.rng.below(4) {
            0 => {
                let real = self.db.begin_generation(&claim, &NEW_SANDBOX).await;
                let model: BeginGeneration = self.model.begin_generation(&claim, &NEW_SANDBOX);
                same!(self, format!("begin_generation {claim:?}"), real, model);
            }
            1 => {
                let real = self.db.sandbox_ready(&claim, generation, "uid").await;
                let model = self.model.sandbox_ready(&claim, generation, "uid");
                same!(
                    self,
                    format!("sandbox_ready {claim:?} {generation}"),
                    real,
                    model
                );
            }
            2 => {
                let real = self.db.begin_delivery(&claim, generation).await;
                let model = self.model.begin_delivery(&claim, generation);
                same!(
                    self,
                    format!("begin_delivery {claim:?} {generation}"),
                    real,
                    model
                );
            }
            _ => {
                let delivery =
                    self.rng
                        .pick(&[Delivery::Accepted, Delivery::Accepted, Delivery::Unknown]);
                let real = self.db.delivered(&claim, delivery).await;
                let model = self.model.delivered(&claim, delivery);
                same!(
                    self,
                    format!("delivered {claim:?} {delivery:?}"),
                    real,
                    model
                );
            }
        }
    }

    pub(super) async fn begin_turn(&mut self) {
        let id = self.session();
        let new = NewTurn {
            session: id.clone(),
            workspace: "acme".parse().expect("an id"),
            prompt: "do it".into(),
            idempotency: None,
        };
        let real = self.db.begin_turn(&new).await;
        same!(
            self,
            format!("begin_turn {id}"),
            real,
            self.model.begin_turn(&id)
        );
    }

    pub(super) async fn lives(&mut self) {
        let Some(lease) = self.lease() else { return };
        let life = Generation(1 + self.rng.below(3) as u32);
        match self.rng.below(4) {
            0 => {
                let session = &lease.session;
                let real = self.db.lose_idle(session, life).await;
                same!(
                    self,
                    format!("lose_idle {session} {life}"),
                    real,
                    self.model.lose_idle(session, life)
                );
            }
            2 => {
                let real = self.db.begin_stopping(&lease, life).await;
                same!(
                    self,
                    format!("begin_stopping {lease:?} {life}"),
                    real,
                    self.model.begin_stopping(&lease, life)
                );
            }
            1 => {
                let real = self.db.mark_gone(&lease, life).await;
                same!(
                    self,
                    format!("mark_gone {lease:?} {life}"),
                    real,
                    self.model.mark_gone(&lease, life)
                );
            }
            _ => {
                let delay = self.rng.pick(&[Duration::ZERO, HOUR]);
                let real = self.db.retry_teardown(&lease, life, delay).await;
                let model = self.model.retry_teardown(&lease, life, delay);
                same!(
                    self,
                    format!("retry_teardown {life} {delay:?}"),
                    real,
                    model
                );
            }
        }
    }

    pub(super) async fn verbs(&mut self) {
        let id = self.session();
        match self.rng.below(8) {
            0 => {
                let real = self.db.request_cancel(&id).await;
                same!(
                    self,
                    format!("request_cancel {id}"),
                    real,
                    self.model.request_cancel(&id)
                );
            }
            1 | 2 => {
                self.db.archive(&id).await.expect("done");
                self.model.archive(&id);
            }
            3..=5 => {
                self.db.unarchive(&id).await.expect("done");
                self.model.unarchive(&id);
            }
            _ => {
                let turn = self.turn(&id);
                let real = self.db.request_stop(&id, turn).await;
                same!(
                    self,
                    format!("request_stop {id} {turn}"),
                    real,
                    self.model.request_stop(&id, turn)
                );
            }
        }
    }

    pub(super) fn expire(&mut self) {
        for sql in [
            "UPDATE leases SET until = now() - interval '1 second', next_due_at = now() WHERE until IS NOT NULL",
            "UPDATE dispatches SET until = now() - interval '1 second' WHERE until IS NOT NULL",
        ] {
            self.database.sql(sql).expect("the statement is right");
        }
        self.model.expire();
        self.log.push("all leases ran out".into());
    }
}
