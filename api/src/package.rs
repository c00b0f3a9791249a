//! Replay packages: an execution, a conversation or a run as one sanitised file.
//!
//! ```text
//! ask ─▶ whose is it ─▶ a place ─▶ snapshot ─▶ assemble (redacting, into a file without a name) ─▶ gate ─▶ sign ─▶ upload ─▶ audit ─▶ URL
//! ```
//!
//! Each arrow only goes forward; whatever fails, nothing is stored and nobody gets a URL. What a package holds is read in one snapshot,
//! and every row must be the workspace's own. A package is named by its content: whoever asks again for the same gets the same object,
//! byte for byte, and it lives on for another week; but when something that it tells of is deleted, it goes too.

mod admission;
mod assemble;
mod builder;
mod check;
mod document;
mod fault;
mod keep;
mod objects;
mod spool;
mod subject;
pub mod tools;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bex_proto::package::PackageId;
use bex_proto::{Chain, WorkspaceId};
use bex_store::packages::{PackageKey, Renewed};
use jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::metrics::PackageMetrics;

pub use admission::Shares;
pub use builder::{Bounds, Builder, BuilderDeps, Built, TokenSecret};
pub use fault::PackageFault;
pub use keep::keep;
pub use objects::{
    Credentials, CredentialsFault, Encryption, LocalFault, LocalObjects, ObjectFault, Objects,
    S3Config, S3Objects, SignedUrl, UrlRefused, UrlTtl,
};
pub use subject::{KEY_PREFIX, NoKey, ObjectKey, Subject};

use admission::Admission;
use builder::{Workbench, milliseconds};

/// Days an object lives after somebody last asked for it.
pub const EXPIRY_DAYS: u32 = 7;
/// For the upload in all: with the build less than a caller waits.
const UPLOAD: Duration = Duration::from_secs(8);

/// Makes packages and puts them where they can be fetched.
pub struct Packager {
    builder: Builder,
    objects: Objects,
    ttl: UrlTtl,
    admission: Admission,
    metrics: PackageMetrics,
    tasks: TaskTracker,
}

impl fmt::Debug for Packager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packager({:?}, {:?})", self.builder, self.objects)
    }
}

/// A packager that several handlers share.
pub type SharedPackager = Arc<Packager>;

/// A package that lies where its URL says.
#[derive(Debug)]
pub struct Published {
    /// What it is of.
    pub subject: Subject,
    /// Its name.
    pub package: PackageId,
    /// Digest of its bytes.
    pub sha256: String,
    /// Where it is.
    pub url: SignedUrl,
}

impl Packager {
    /// A packager that stores what the builder makes.
    pub fn new(
        builder: Builder,
        objects: Objects,
        ttl: UrlTtl,
        shares: Shares,
        metrics: PackageMetrics,
    ) -> Self {
        Self {
            builder,
            objects,
            ttl,
            admission: Admission::new(shares),
            metrics,
            tasks: TaskTracker::new(),
        }
    }

    /// Does what must not be cut when its caller leaves: [`keep`] waits for it before the process ends.
    pub fn by_itself<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tasks.spawn(work.in_current_span())
    }

    /// Where packages lie.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Counts.
    pub fn metrics(&self) -> &PackageMetrics {
        &self.metrics
    }

    /// The one workspace of those a caller acts for that has it.
    ///
    /// # Errors
    /// [`PackageFault::NotFound`] where none has, [`PackageFault::Ambiguous`] where several have; store trouble.
    pub async fn owner(
        &self,
        subject: &Subject,
        acts_for: impl Fn(&WorkspaceId) -> bool,
    ) -> Result<WorkspaceId, PackageFault> {
        let owner = self.builder.owner(subject, acts_for).await;
        self.count(subject, owner)
    }

    /// Makes a package of something of this workspace's, or renews the one with the same content.
    ///
    /// # Errors
    /// Nothing was stored then, but for what was stored before.
    pub async fn publish(
        &self,
        subject: &Subject,
        workspace: &WorkspaceId,
    ) -> Result<Published, PackageFault> {
        let published = self.try_publish(subject, workspace).await;
        let published = self.count(subject, published)?;
        self.metrics.published();
        Ok(published)
    }

    fn count<T>(
        &self,
        subject: &Subject,
        done: Result<T, PackageFault>,
    ) -> Result<T, PackageFault> {
        done.inspect_err(|fault| {
            self.metrics.refused(fault);
            tell(subject, fault);
        })
    }

    async fn try_publish(
        &self,
        subject: &Subject,
        workspace: &WorkspaceId,
    ) -> Result<Published, PackageFault> {
        let _place = self.admission.enter(workspace)?;
        let _building = self.metrics.building();
        let started = Instant::now();
        let mut built = self.builder.build(subject, workspace).await?;
        self.metrics.built(started.elapsed(), built.bytes);
        let key = PackageKey {
            workspace: workspace.clone(),
            kind: subject.kind(),
            id: subject.id().to_owned(),
            package: built.name.clone(),
        };
        let now = milliseconds(Timestamp::now());
        let renewed = self.builder.db().renew_package(&key, &built.sources, now);
        let Renewed::Since(first) = renewed.await? else {
            return Err(PackageFault::NotFound);
        };
        built.date(first).map_err(PackageFault::Spool)?;
        let object = ObjectKey::new(workspace, subject, &built.name);
        // signed first: when that fails, nothing was stored that nobody can fetch
        let url = self.objects.sign(&object, self.ttl).await?;
        let put = self.objects.put(&object, built.file, built.bytes, UPLOAD);
        Ok(Published {
            subject: subject.clone(),
            package: built.name,
            sha256: put.await?,
            url,
        })
    }
}

/// Logs what somebody must look at.
fn tell(subject: &Subject, fault: &PackageFault) {
    let (kind, id) = (subject.kind(), subject.id());
    match fault {
        PackageFault::Foreign { table } => {
            tracing::error!(%kind, id, table, "a row of another workspace stands in the way of a package");
        }
        PackageFault::Gate(ids) => {
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            tracing::error!(%kind, id, patterns = ids.join(","), "the gate refused a package");
        }
        PackageFault::Spool(_) | PackageFault::Object(_) | PackageFault::Lost(_) => {
            tracing::error!(%kind, id, error = %Chain(fault), "a package could not be made");
        }
        PackageFault::TooLarge | PackageFault::TooSlow => {
            tracing::warn!(%kind, id, error = %fault, "a package was not made");
        }
        // said to the caller, or logged where it becomes an answer
        PackageFault::NotFound
        | PackageFault::Ambiguous
        | PackageFault::Busy
        | PackageFault::TooOften { .. }
        | PackageFault::Store(_) => {}
    }
}
