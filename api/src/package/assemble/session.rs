//! A conversation, or one run of it.

use bex_proto::package::{Findings, Partial, UsageTotals};
use bex_proto::{RemoteSessionId, SessionId, TurnNo};
use bex_store::packages::RecordsOf;

use super::Assembly;
use super::records::{NO_RUNS, RUNS, SOME_WITHOUT_RUNS};
use super::transcript::{Heard, Told};
use crate::package::PackageFault;

impl Assembly<'_> {
    /// An agent session, or one turn of it.
    pub(super) async fn agent_session(
        &mut self,
        id: &SessionId,
        only: Option<TurnNo>,
    ) -> Result<(), PackageFault> {
        let found = self.snapshot.agent_session(id).await?;
        let session = found.ok_or(PackageFault::NotFound)?;
        self.own("sessions", &session.workspace)?;
        self.no_execution().await?;
        let mut spoken = self.bench.spoken()?;
        self.document.array("messages").await?;
        let before = self.document.count();
        self.agent_turns(&session, only, Told::Messages, &mut spoken)
            .await?;
        self.said_something(before)?;
        let heard = self.spoken(spoken).await?;
        self.conversation(id.as_str(), only.is_some(), &heard, None)
            .await
    }

    /// A remote session, or one turn of it.
    pub(super) async fn remote_session(
        &mut self,
        id: &RemoteSessionId,
        only: Option<&str>,
    ) -> Result<(), PackageFault> {
        let found = self.snapshot.remote_session(id).await?;
        let session = found.ok_or(PackageFault::NotFound)?;
        self.own("remote_sessions", &session.workspace)?;
        self.no_execution().await?;
        let mut spoken = self.bench.spoken()?;
        self.document.array("messages").await?;
        let before = self.document.count();
        self.remote_turns(&session, only, Told::Messages, &mut spoken)
            .await?;
        self.said_something(before)?;
        let heard = self.spoken(spoken).await?;
        let (input_tokens, output_tokens, call_count) = session.counted;
        let counted = UsageTotals {
            input_tokens,
            output_tokens,
            total_tokens: input_tokens.saturating_add(output_tokens),
            call_count,
        };
        self.conversation(id.as_str(), only.is_some(), &heard, Some(counted))
            .await
    }

    /// Where nothing was said there is nothing to hand over.
    fn said_something(&self, before: u64) -> Result<(), PackageFault> {
        if self.document.count() == before {
            return Err(PackageFault::NotFound);
        }
        Ok(())
    }

    /// What stands behind the messages.
    async fn conversation(
        &mut self,
        session: &str,
        one_run: bool,
        heard: &Heard,
        counted: Option<UsageTotals>,
    ) -> Result<(), PackageFault> {
        let runs: Vec<_> = heard.runs.chunks(RUNS).map(RecordsOf::Runs).collect();
        if heard.runs.is_empty() {
            let findings = Findings::Partial(Partial {
                partial: true,
                results: Vec::new(),
                provenance: NO_RUNS.to_owned(),
            });
            self.document.plain("findings", &findings).await?;
        } else {
            self.document.array("findings").await?;
            self.findings(&runs).await?;
            self.document.end_array().await?;
            if heard.without_runs {
                self.note("findings", SOME_WITHOUT_RUNS);
            }
        }
        let of = if one_run {
            runs
        } else {
            let alone = heard.runs.chunks(RUNS).map(RecordsOf::RunsWithoutSession);
            std::iter::once(RecordsOf::Session(session))
                .chain(alone)
                .collect()
        };
        let ledger = self.usage(&of).await?;
        // a machine counts whole sessions
        let counted = counted.filter(|_| !one_run && ledger.is_none());
        if counted.is_some() {
            self.note(
                "usage",
                "No entry of the ledger names this session; the totals are what its machine counted.",
            );
        }
        let totals = ledger.or(counted).unwrap_or_default();
        self.document.plain("usageTotals", &totals).await
    }
}
