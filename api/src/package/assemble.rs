//! What a package says: rows of one snapshot, each checked to be the workspace's own, in a fixed order, so that the same rows make the
//! same bytes.

mod configs;
mod execution;
mod nodes;
mod records;
mod session;
mod tools;
mod transcript;

use bex_proto::WorkspaceId;
use bex_proto::package::{Note, SCHEMA_VERSION, Sanitisation, TraceIds};
use bex_redact::{Class, Rules};
use bex_store::packages::{ExecutionSource, Intruder, RunPlace, RunSource, Snapshot};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::document::Document;
use super::subject::Subject;
use super::{PackageFault, Workbench};

/// Something that exists, and whose it is.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// An execution.
    Execution(Box<ExecutionSource>),
    /// A session.
    Session(Subject, WorkspaceId),
    /// A run.
    Run(RunSource),
}

impl Source {
    /// Whose it is.
    pub fn workspace(&self) -> &WorkspaceId {
        match self {
            Self::Execution(execution) => &execution.workspace,
            Self::Session(_, workspace) => workspace,
            Self::Run(run) => &run.workspace,
        }
    }
}

/// What there is under an id; of executions each workspace has its own.
pub(super) async fn sources(
    snapshot: &Snapshot,
    subject: &Subject,
) -> Result<Vec<Source>, PackageFault> {
    let session = |workspace| vec![Source::Session(subject.clone(), workspace)];
    Ok(match subject {
        Subject::Execution(id) => {
            let rows = snapshot.executions(id).await?.into_iter();
            rows.map(|row| Source::Execution(Box::new(row))).collect()
        }
        Subject::Agent(id) => {
            (snapshot.agent_session(id).await?).map_or_else(Vec::new, |row| session(row.workspace))
        }
        Subject::Remote(id) => {
            (snapshot.remote_session(id).await?).map_or_else(Vec::new, |row| session(row.workspace))
        }
        Subject::Run(id) => (snapshot.run(id).await?)
            .into_iter()
            .map(Source::Run)
            .collect(),
    })
}

/// A package that is being put together.
struct Assembly<'a> {
    snapshot: &'a Snapshot,
    workspace: &'a WorkspaceId,
    bench: &'a Workbench,
    document: Document,
    notes: Vec<Note>,
    /// Ids of what it tells of.
    sources: Vec<String>,
}

/// Writes everything but the end of a package; with it the ids of the sessions and the execution that it tells of.
pub(super) async fn assemble(
    snapshot: &Snapshot,
    subject: &Subject,
    source: &Source,
    bench: &Workbench,
) -> Result<(Document, Vec<String>), PackageFault> {
    let workspace = source.workspace();
    let mut assembly = Assembly {
        snapshot,
        workspace,
        bench,
        document: bench.document()?,
        notes: Vec::new(),
        sources: Vec::new(),
    };
    assembly.head(subject).await?;
    match source {
        Source::Execution(execution) => assembly.execution(execution).await?,
        Source::Session(Subject::Agent(id), _) => assembly.agent_session(id, None).await?,
        Source::Session(Subject::Remote(id), _) => assembly.remote_session(id, None).await?,
        Source::Run(run) => match &run.place {
            RunPlace::Agent(id, turn) => assembly.agent_session(id, Some(*turn)).await?,
            RunPlace::Remote(id, turn) => assembly.remote_session(id, Some(turn)).await?,
        },
        Source::Session(..) => return Err(PackageFault::NotFound),
    }
    let notes = std::mem::take(&mut assembly.notes);
    let document = &mut assembly.document;
    document.array("notes").await?;
    document.items(notes).await?;
    document.end_array().await?;
    let correlation_id = subject.id().to_owned();
    document
        .plain("traceIds", &TraceIds { correlation_id })
        .await?;
    document.end_object().await?;
    Ok((assembly.document, assembly.sources))
}

impl Assembly<'_> {
    async fn head(&mut self, subject: &Subject) -> Result<(), PackageFault> {
        let document = &mut self.document;
        document.plain("schemaVersion", &SCHEMA_VERSION).await?;
        document.plain("producerCommit", &self.bench.commit).await?;
        document.plain("kind", &subject.kind()).await?;
        document.plain("correlationId", &subject.id()).await?;
        document.plain("orgId", &self.workspace).await?;
        document.plain("sanitisation", &sanitisation()).await?;
        document.object("sections").await
    }

    /// The sections of an execution, for what is of none.
    async fn no_execution(&mut self) -> Result<(), PackageFault> {
        const NONE: Option<&RawValue> = None;
        let document = &mut self.document;
        document.plain("agentConfig", &NONE).await?;
        document.array("agentConfigs").await?;
        document.end_array().await?;
        for section in [
            "workflow",
            "execSpec",
            "modelConfig",
            "governanceMode",
            "execution",
        ] {
            document.plain(section, &NONE).await?;
        }
        document.array("nodes").await?;
        document.end_array().await
    }

    /// Refuses a row of another workspace.
    fn own(&self, table: &str, workspace: &WorkspaceId) -> Result<(), PackageFault> {
        if workspace == self.workspace {
            return Ok(());
        }
        Err(foreign(table))
    }

    fn note(&mut self, section: &str, provenance: impl Into<String>) {
        self.notes.push(Note {
            section: section.to_owned(),
            partial: true,
            provenance: provenance.into(),
        });
    }
}

fn foreign(table: &str) -> PackageFault {
    PackageFault::Foreign {
        table: table.to_owned(),
    }
}

fn no_intruder(found: Option<Intruder>) -> Result<(), PackageFault> {
    found.map_or(Ok(()), |intruder| Err(foreign(&intruder.table)))
}

/// Versions that nobody types: each rule's own, all in one number.
fn sanitisation() -> Sanitisation {
    let version = |class: Class| {
        let mut digest = Sha256::new();
        for rule in Rules::get().iter().filter(|rule| rule.class == class) {
            digest.update(format!("{}@{}\n", rule.id, rule.version));
        }
        format!(
            "{}.{}",
            Rules::get().version,
            hex::encode(&digest.finalize()[..4])
        )
    };
    Sanitisation {
        redact_pii_version: version(Class::Pii),
        secret_patterns_version: version(Class::Secret),
        gate: "passed".to_owned(),
    }
}
