//! The replay package: one JSON document that reproduces an execution, a conversation or a run, with nothing secret in it.
//!
//! The types here are for those who read packages: they accept what a newer minor version adds. What a package must look like is
//! `schemas/replay-package-*.json` ([`schema`]); a minor version only ever adds. A package is named by its content
//! ([`PackageId`], [`content`]), so that two that say the same are one, and a changed one is told by its name.

pub mod content;
pub mod schema;
mod sections;

use serde::{Deserialize, Serialize};

pub use crate::ids::PackageId;
pub use sections::{
    Config, ExecutionFacts, Findings, Ledger, Node, Note, Partial, Said, Sections, SessionFacts,
    ToolResult, ToolResults, TraceIds, TurnFacts, UsageTotals,
};

use crate::session::words;

/// What is written now.
pub const SCHEMA_VERSION: &str = "1.1.0";

words! {
    /// What a package is of.
    PackageKind {
        /// An execution of a workflow.
        Execution = "execution",
        /// A session, of an agent or remote.
        Conversation = "conversation",
        /// One turn.
        Run = "run",
    }
}

/// A package.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// Semantic version; whoever reads pins its major.
    pub schema_version: String,
    /// When it was first made.
    pub generated_at: String,
    /// The program's commit; unknown where nobody said it.
    pub producer_commit: Option<String>,
    /// Its name, of its content; packages of 1.0 have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package_id: Option<PackageId>,
    /// What it is of.
    pub kind: PackageKind,
    /// Of which.
    pub correlation_id: String,
    /// Whose.
    pub org_id: String,
    /// What was done to it.
    pub sanitisation: Sanitisation,
    /// What it holds.
    pub sections: Sections,
}

/// How a package was cleaned. A package that the gate refused is never stored, so the gate always `passed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sanitisation {
    /// Of what finds personal data.
    pub redact_pii_version: String,
    /// Of what finds secrets.
    pub secret_patterns_version: String,
    /// `passed`
    pub gate: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The document of the first release, as it was published.
    const FIRST: &str = include_str!("../schemas/sample-1.0.0.json");

    #[test]
    fn the_first_releases_sample_is_read_and_valid_today() {
        let envelope: Envelope = serde_json::from_str(FIRST).expect("it reads");
        assert_eq!(envelope.schema_version, "1.0.0");
        assert_eq!(
            envelope.correlation_id,
            envelope.sections.trace_ids.correlation_id
        );
        let node = &envelope.sections.nodes[0];
        assert_eq!((node.node_id.as_str(), node.retries), ("node-1", 0));
        assert!(envelope.sections.tool_results.partial && envelope.package_id.is_none());
        assert_eq!(envelope.sections.findings, Findings::Joined(Vec::new()));
        let value: serde_json::Value = serde_json::from_str(FIRST).expect("JSON");
        for (version, schema) in schema::PUBLISHED {
            assert_eq!(
                schema::check(&schema::parse(schema), &value),
                Vec::<String>::new(),
                "{version}"
            );
        }
    }
}
