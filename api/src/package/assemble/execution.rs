//! An execution: its configurations, its nodes, and the sessions it names.

use bex_proto::execution::NamedSession;
use bex_proto::package::{ExecutionFacts, SessionFacts, UsageTotals};
use bex_proto::time;
use bex_store::packages::{ExecutionSource, RecordsOf, SessionSource};

use super::transcript::{Spoken, Told};
use super::{Assembly, foreign, no_intruder};
use crate::package::PackageFault;
use crate::package::document::optional_json;

/// Of totals that were recorded before their form was checked.
const NO_TOTALS: &str = "The totals that were recorded are not of the form that packages promise.";

impl Assembly<'_> {
    pub(super) async fn execution(
        &mut self,
        execution: &ExecutionSource,
    ) -> Result<(), PackageFault> {
        self.own("executions", &execution.workspace)?;
        self.sources.push(execution.id.to_string());
        let intruder = self
            .snapshot
            .intruder_of_execution(self.workspace, &execution.id);
        no_intruder(intruder.await?)?;
        self.configs(execution).await?;
        self.document
            .plain("governanceMode", &execution.governance)
            .await?;
        let facts = ExecutionFacts {
            status: execution.status.to_string(),
            error: execution.error.clone(),
            started_at: execution.started_at.map(time::format),
            completed_at: execution.completed_at.map(time::format),
        };
        self.document.member("execution", &facts).await?;
        self.nodes(execution).await?;

        let named = self
            .snapshot
            .named_sessions(self.workspace, &execution.id)
            .await?;
        let mut spoken = self.bench.spoken()?;
        for session in &named {
            self.named_session(session, &mut spoken).await?;
        }
        if named.is_empty() {
            spoken.missing("the execution names no session");
        }
        let heard = self.spoken(spoken).await?;
        let mut of = vec![RecordsOf::Execution(&execution.id)];
        of.extend(execution.workflow.0.as_deref().map(RecordsOf::Workflow));
        let chunks = heard.runs.chunks(super::records::RUNS);
        of.extend(chunks.map(RecordsOf::RunsAlone));
        self.document.array("findings").await?;
        self.findings(&of).await?;
        self.document.end_array().await?;
        if heard.without_runs {
            self.note("findings", super::records::SOME_WITHOUT_RUNS);
        }
        let told = execution.usage_totals.clone();
        let promised = |text: &String| serde_json::from_str::<UsageTotals>(text).is_ok();
        let totals = optional_json(told.filter(promised));
        if totals.is_none() && execution.usage_totals.is_some() {
            self.note("usage", NO_TOTALS);
        }
        self.document.member("usageTotals", &totals).await?;
        of.extend(named.iter().map(|s| RecordsOf::SessionAlone(&s.session)));
        self.usage(&of).await.map(drop)
    }

    /// What a session that the execution names said.
    async fn named_session(
        &mut self,
        named: &SessionSource,
        spoken: &mut Spoken,
    ) -> Result<(), PackageFault> {
        self.own("execution_sessions", &named.workspace)?;
        let gone = || foreign("execution_sessions");
        let known = match named.kind {
            NamedSession::Agent => {
                let id = named.session.parse().map_err(|_| gone())?;
                match self.snapshot.agent_session(&id).await? {
                    Some(session) => {
                        self.own("sessions", &session.workspace)?;
                        self.agent_turns(&session, None, Told::ToolsOnly, spoken)
                            .await?;
                        true
                    }
                    None => false,
                }
            }
            NamedSession::Remote => {
                let id = named.session.parse().map_err(|_| gone())?;
                match self.snapshot.remote_session(&id).await? {
                    Some(session) => {
                        self.own("remote_sessions", &session.workspace)?;
                        self.remote_turns(&session, None, Told::ToolsOnly, spoken)
                            .await?;
                        true
                    }
                    None => false,
                }
            }
        };
        if !known {
            spoken.missing(format!("{} was deleted", named.session));
            spoken.sessions.push(SessionFacts {
                session_id: named.session.clone(),
                kind: named.kind,
                complete: false,
                phase: None,
            });
        }
        Ok(())
    }
}
