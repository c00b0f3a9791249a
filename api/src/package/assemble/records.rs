//! Findings and usage.

use bex_proto::package::{Ledger, UsageTotals};
use bex_proto::time;
use bex_store::packages::{FindingSource, RecordAfter, RecordsOf, UsageSource};
use serde::Serialize;
use serde_json::value::RawValue;

use super::Assembly;
use crate::package::PackageFault;
use crate::package::document::json;

/// Runs of one question.
pub(super) const RUNS: usize = 1000;
/// Nothing to join by.
pub(super) const NO_RUNS: &str =
    "Findings are joined by runs, and no turn has one: each is from before runs were given.";
/// Something to join by.
pub(super) const SOME_WITHOUT_RUNS: &str = "Findings are joined by runs, and some turns have none: they are from before runs were given. Findings about those are not here.";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FindingView {
    finding_id: String,
    workflow_id: Option<String>,
    execution_id: Option<String>,
    node_id: Option<String>,
    run_id: Option<String>,
    decision: String,
    at: String,
    body: Box<RawValue>,
}

impl From<FindingSource> for FindingView {
    fn from(row: FindingSource) -> Self {
        Self {
            finding_id: row.id,
            workflow_id: row.workflow_id,
            execution_id: row.execution_id,
            node_id: row.node_id,
            run_id: row.run_id,
            decision: row.decision,
            at: time::format(row.at),
            body: json(row.body),
        }
    }
}

fn entry(row: UsageSource) -> Ledger {
    Ledger {
        used: UsageTotals {
            input_tokens: row.input_tokens,
            output_tokens: row.output_tokens,
            total_tokens: row.total_tokens,
            call_count: row.calls,
        },
        entry_id: row.id,
        node_id: row.node_id,
        session_id: row.session_id,
        run_id: row.run_id,
        cost: row.cost,
        currency: row.currency,
        at: time::format(row.at),
    }
}

fn sum(a: UsageTotals, b: &UsageTotals) -> UsageTotals {
    UsageTotals {
        input_tokens: a.input_tokens.saturating_add(b.input_tokens),
        output_tokens: a.output_tokens.saturating_add(b.output_tokens),
        total_tokens: a.total_tokens.saturating_add(b.total_tokens),
        call_count: a.call_count.saturating_add(b.call_count),
    }
}

impl Assembly<'_> {
    /// Writes the findings of each, in the order of their times.
    pub(super) async fn findings(&mut self, of: &[RecordsOf<'_>]) -> Result<(), PackageFault> {
        for of in of {
            let mut last: Option<(jiff::Timestamp, String)> = None;
            loop {
                let after = last.as_ref().map(|(at, id)| RecordAfter { at: *at, id });
                let page = self.snapshot.findings(self.workspace, of, after).await?;
                let Some(end) = page.last() else { break };
                last = Some((end.at, end.id.clone()));
                for row in &page {
                    self.own("findings", &row.workspace)?;
                }
                let views: Vec<FindingView> = page.into_iter().map(FindingView::from).collect();
                self.document.items(views).await?;
            }
        }
        Ok(())
    }

    /// Writes the usage of each, likewise; the sums, where there is any.
    pub(super) async fn usage(
        &mut self,
        of: &[RecordsOf<'_>],
    ) -> Result<Option<UsageTotals>, PackageFault> {
        let mut totals: Option<UsageTotals> = None;
        self.document.array("usage").await?;
        for of in of {
            let mut last: Option<(jiff::Timestamp, String)> = None;
            loop {
                let after = last.as_ref().map(|(at, id)| RecordAfter { at: *at, id });
                let page = self.snapshot.usage(self.workspace, of, after).await?;
                let Some(end) = page.last() else { break };
                last = Some((end.at, end.id.clone()));
                for row in &page {
                    self.own("usage_ledger", &row.workspace)?;
                }
                let entries: Vec<Ledger> = page.into_iter().map(entry).collect();
                for entry in &entries {
                    totals = Some(sum(totals.unwrap_or_default(), &entry.used));
                }
                self.document.items(entries).await?;
            }
        }
        self.document.end_array().await?;
        Ok(totals)
    }
}
