//! One viewer's stream from its first byte to its last.
//!
//! A viewer pulls: what is stored first, then the live tail where there is one, and the store again whenever the tail has
//! moved on. It runs in a task of its own, holds the page of the store that it shows, two that were read ahead, and one
//! frame of output, and nothing waits for it. Every way in which it can end is a [`Stop`] or a true end; only a true end says
//! `[DONE]`.

mod rejoin;
mod show;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use bex_proto::ids::PartId;
use bex_proto::sse;
use bex_proto::ticket::AttachClaims;
use bex_proto::ui_stream::{Compact, Guard, Output, resume_error};
use bex_proto::{Chain, SessionId, TurnNo, limits};
use bex_store::audit::StreamAuditId;
use bex_store::{Db, StoreError};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::body::Out;
use super::events;
use super::phases::Phases;
use super::plan::{Opening, Plan, Scope};
use super::replay::Pages;
use super::rooms::Seat;
use super::stop::Stop;
use crate::hub::Hub;
use rejoin::Silence;
use turn::TurnEnded;

/// Delay between two attempts to reach the store for a running stream.
const STORE_AGAIN: Duration = Duration::from_millis(500);

/// Where what is open in the message was opened, as far as this turn goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Opened {
    /// On this connection, at least in part.
    #[default]
    Here,
    /// On an earlier one, and nothing of the turn was sent on this one yet.
    Before,
}

/// What a viewer works with.
pub(super) struct Viewer {
    pub(super) db: Db,
    pub(super) hub: Arc<Hub>,
    pub(super) claims: AttachClaims,
    pub(super) pages: Pages,
    pub(super) out: Out,
    pub(super) seat: Seat,
    pub(super) guard: Guard,
    /// Folds what is stored, while that is all there is to show.
    pub(super) compact: Option<Compact>,
    /// Reused for every part.
    pub(super) outputs: Vec<Output>,
    /// The session's newest turn, as far as is known.
    pub(super) newest: TurnNo,
    pub(super) scope: Scope,
    /// Parts the viewer has already: they only move the guard.
    pub(super) silence: Option<Silence>,
    pub(super) opened: Opened,
    pub(super) begun_at: Instant,
    pub(super) phases: Phases,
}

/// What ends a stream from outside.
pub(crate) struct Ends {
    /// Access was revoked.
    pub(crate) revoked: CancellationToken,
    /// The process drains.
    pub(crate) drain: CancellationToken,
}

impl Viewer {
    /// Serves the stream and closes its audit row; gives the row's word.
    pub(super) async fn run(
        mut self,
        plan: Plan,
        ends: Ends,
        audit: StreamAuditId,
    ) -> &'static str {
        let ceiling = self.begun_at + limits::STREAM_CEILING;
        let ended = tokio::select! {
            ended = self.serve(plan) => ended,
            () = ends.revoked.cancelled() => Err(Stop::Revoked),
            () = ends.drain.cancelled() => Err(Stop::Drained),
            () = sleep_until(ceiling) => Err(Stop::Ceiling),
        };
        self.pages.rest();
        let word = match ended {
            Ok(()) => "done",
            Err(stop) => self.end(stop).await.as_str(),
        };
        let (parts, bytes) = self.out.counts();
        let (db, session) = (self.db.clone(), self.claims.ses.clone());
        // the body ends with its writing end; the audit row is nobody's reason to wait
        let phases = self.phases;
        drop(self);
        phases.end(&session, word, parts);
        if let Err(error) = Box::pin(db.close_stream_audit(audit, word, parts, bytes)).await {
            tracing::warn!(%session, error = %Chain(&error), "audit row of a stream stays open");
        }
        tracing::debug!(%session, result = word, parts, bytes, "stream ended");
        word
    }

    /// Says where to resume.
    async fn end(&mut self, stop: Stop) -> Stop {
        let cursor = self.out.cursor();
        stop.tell(&mut self.out, |text| resume_error(text, cursor))
            .await
    }

    async fn serve(&mut self, plan: Plan) -> Result<(), Stop> {
        self.out.open();
        self.out.flush().await?;
        let (mut at, mut prompt) = match plan.opening {
            Opening::Start(start) => {
                self.out.event(start.as_bytes());
                (PartId::first_of(plan.first), turn::Prompt::Show)
            }
            Opening::Behind(cursor, state) => {
                self.out.cursor_only(cursor);
                (self.rejoin(cursor, state).await?, turn::Prompt::Known)
            }
        };
        while let TurnEnded::Next(next) = self.turn(at, prompt).await? {
            (at, prompt) = (next, turn::Prompt::Show);
        }
        self.out.event(events::FINISH.as_bytes());
        self.out.event(sse::DONE.as_bytes());
        self.out.close().await?;
        Ok(())
    }

    /// Asks the store about the session until it answers, [`limits::SOURCE_RETRY`] at most, with heartbeats.
    async fn ask<T, F>(&mut self, question: impl Fn(Db, SessionId) -> F) -> Result<T, Stop>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let until = Instant::now() + limits::SOURCE_RETRY;
        loop {
            // boxed, as everything is that asks the store: a viewer's task keeps room for whatever it may ever wait for
            let asking = Box::pin(question(self.db.clone(), self.claims.ses.clone()));
            match self.out.quietly(asking).await? {
                Ok(answer) => return Ok(answer),
                Err(error) => self.store_trouble(&error, until).await?,
            }
        }
    }

    /// Waits before the next attempt, or gives up.
    async fn store_trouble(&mut self, error: &StoreError, until: Instant) -> Result<(), Stop> {
        if !error.is_transient() || Instant::now() >= until {
            tracing::warn!(session = %self.claims.ses, error = %Chain(error), "a stream cannot read the store");
            return Err(Stop::Store);
        }
        self.out.quietly(sleep(STORE_AGAIN)).await?;
        Ok(())
    }
}
