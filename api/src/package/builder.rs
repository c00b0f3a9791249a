//! From a thing's id to a file that the gate let through.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bex_proto::WorkspaceId;
use bex_redact::{Gate, GateError, Profile, Redactor, TokenKey};
use bex_store::Db;
use jiff::Timestamp;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::assemble::{Source, assemble, sources};
use super::document::Document;
use super::{PackageFault, Subject, check};

pub use super::spool::Built;

/// The key of the tokens that stand for secrets: one for a deployment, from which each workspace's is derived.
#[derive(Clone)]
pub struct TokenSecret(Vec<u8>);

impl std::fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenSecret([redacted])")
    }
}

impl TokenSecret {
    /// From at least 32 bytes in hexadecimal digits.
    ///
    /// # Errors
    /// What is wrong, without the text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        match hex::decode(text.trim()) {
            Ok(bytes) if bytes.len() >= 32 => Ok(Self(bytes)),
            _ => Err("must be at least 32 bytes in hexadecimal digits"),
        }
    }

    /// A workspace's own: tokens of two workspaces for one secret have nothing in common.
    fn of(&self, workspace: &WorkspaceId) -> TokenKey {
        TokenKey::new(&[&self.0, &b"\0package\0"[..], workspace.as_str().as_bytes()].concat())
    }
}

/// Bounds of one build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of a package. A full transcript is half of it: text stands in a message and in its blocks.
    pub bytes: u64,
    /// Until the gate has passed.
    pub time: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            bytes: 256 * 1024 * 1024,
            time: Duration::from_secs(22),
        }
    }
}

/// What packages are made with.
pub struct BuilderDeps {
    /// The store.
    pub db: Db,
    /// Makes tokens.
    pub secret: TokenSecret,
    /// What is taken out.
    pub profile: Profile,
    /// Takes it out: [`Redactor::new`], or one of which a test turned a stage off.
    pub redactor: fn(Profile, TokenKey) -> Redactor,
    /// Where spool files lie.
    pub spool_dir: PathBuf,
    /// The program's commit, where it is known.
    pub commit: Option<String>,
    /// Of one build.
    pub bounds: Bounds,
}

/// Makes packages.
pub struct Builder {
    deps: BuilderDeps,
    gate: Arc<Gate>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Builder({:?})", self.deps.profile)
    }
}

/// What one package is written with.
pub(super) struct Workbench {
    pub(super) redactor: Redactor,
    pub(super) spool_dir: PathBuf,
    pub(super) limit: u64,
    /// Set once nobody waits for the package any more: what works on it off the threads that serve ends with the line it is at.
    pub(super) given_up: CancellationToken,
    /// The program's commit.
    pub commit: Option<String>,
}

impl Workbench {
    /// An empty document.
    pub fn document(&self) -> Result<Document, PackageFault> {
        Document::begin(self)
    }

    /// Elements of an array that is put into a document later.
    pub fn elements(&self) -> Result<Document, PackageFault> {
        Document::elements(self)
    }
}

impl Builder {
    /// A builder whose gate has found what was planted.
    ///
    /// # Errors
    /// When the gate fails its self-check: then there must be no packages.
    pub fn new(deps: BuilderDeps) -> Result<Self, GateError> {
        let gate = Gate::new(deps.profile);
        Self::with_gate(deps, gate)
    }

    /// The same with what became of a gate.
    ///
    /// # Errors
    /// When there is none.
    pub fn with_gate(deps: BuilderDeps, gate: Result<Gate, GateError>) -> Result<Self, GateError> {
        let gate = Arc::new(gate?);
        Ok(Self { deps, gate })
    }

    pub(super) fn db(&self) -> &Db {
        &self.deps.db
    }

    /// The one workspace of the caller's that has it.
    pub(super) async fn owner(
        &self,
        subject: &Subject,
        acts_for: impl Fn(&WorkspaceId) -> bool,
    ) -> Result<WorkspaceId, PackageFault> {
        let snapshot = self.deps.db.snapshot().await?;
        let found = sources(&snapshot, subject).await?;
        snapshot.end().await?;
        let mut own = found.iter().map(Source::workspace).filter(|w| acts_for(w));
        let first = own.next().ok_or(PackageFault::NotFound)?;
        match own.next() {
            None => Ok(first.clone()),
            Some(_) => Err(PackageFault::Ambiguous),
        }
    }

    /// Assembles a package of something of this workspace's, and lets the gate look at every byte of the file.
    ///
    /// # Errors
    /// There is none then.
    pub async fn build(
        &self,
        subject: &Subject,
        workspace: &WorkspaceId,
    ) -> Result<Built, PackageFault> {
        let building = self.assemble_and_check(subject, workspace);
        match timeout(self.deps.bounds.time, building).await {
            Ok(built) => built,
            Err(_) => Err(PackageFault::TooSlow),
        }
    }

    async fn assemble_and_check(
        &self,
        subject: &Subject,
        workspace: &WorkspaceId,
    ) -> Result<Built, PackageFault> {
        let deps = &self.deps;
        let bench = Workbench {
            redactor: (deps.redactor)(deps.profile, deps.secret.of(workspace)),
            spool_dir: deps.spool_dir.clone(),
            limit: deps.bounds.bytes,
            commit: deps.commit.clone(),
            given_up: CancellationToken::new(),
        };
        let _guard = bench.given_up.clone().drop_guard();
        let snapshot = deps.db.snapshot().await?;
        let found = sources(&snapshot, subject).await?;
        let source = found.iter().find(|source| source.workspace() == workspace);
        let source = source.ok_or(PackageFault::NotFound)?;
        let (document, sources) = assemble(&snapshot, subject, source, &bench).await?;
        snapshot.end().await?;
        let now = milliseconds(Timestamp::now());
        let built = document.finish(now, sources).await?;
        self.check(built, bench.given_up.clone()).await
    }

    async fn check(
        &self,
        mut built: Built,
        given_up: CancellationToken,
    ) -> Result<Built, PackageFault> {
        let gate = Arc::clone(&self.gate);
        let checked = tokio::task::spawn_blocking(move || {
            check::check(&gate, &built.file, &given_up)?;
            built.rewind().map_err(PackageFault::Spool)?;
            Ok(built)
        });
        checked.await?
    }
}

/// A time as packages write it.
pub(super) fn milliseconds(at: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at)
}
