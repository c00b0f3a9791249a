//! What a package is of, and where its object lies.

use std::fmt;
use std::str::FromStr;

use bex_proto::package::{PackageId, PackageKind};
use bex_proto::{ExecutionId, RemoteSessionId, RunId, SessionId, WorkspaceId};

/// Something that packages are made of. It is only made of ids that were read as such, so nothing else gets into an object's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// An execution of a workflow.
    Execution(ExecutionId),
    /// An agent session.
    Agent(SessionId),
    /// A remote session.
    Remote(RemoteSessionId),
    /// One turn.
    Run(RunId),
}

impl Subject {
    /// Reads an id of this kind.
    pub fn parse(kind: PackageKind, id: &str) -> Option<Self> {
        match kind {
            PackageKind::Execution => id.parse().ok().map(Self::Execution),
            PackageKind::Conversation => {
                (id.parse().ok().map(Self::Agent)).or_else(|| id.parse().ok().map(Self::Remote))
            }
            PackageKind::Run => id.parse().ok().map(Self::Run),
        }
    }

    /// Its kind.
    pub fn kind(&self) -> PackageKind {
        match self {
            Self::Execution(_) => PackageKind::Execution,
            Self::Agent(_) | Self::Remote(_) => PackageKind::Conversation,
            Self::Run(_) => PackageKind::Run,
        }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        match self {
            Self::Execution(id) => id.as_str(),
            Self::Agent(id) => id.as_str(),
            Self::Remote(id) => id.as_str(),
            Self::Run(id) => id.as_str(),
        }
    }

    /// The session, where it is one: audit rows stand beside its others then.
    pub fn session(&self) -> Option<&str> {
        match self {
            Self::Agent(_) | Self::Remote(_) => Some(self.id()),
            Self::Execution(_) | Self::Run(_) => None,
        }
    }
}

/// The key of a package's object: `ORG#<org>/<kind>-<id>/<packageId>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectKey(String);

/// What every key of packages begins with: an expiry rule names it.
pub const KEY_PREFIX: &str = "ORG#";

impl ObjectKey {
    /// The key.
    pub fn new(workspace: &WorkspaceId, subject: &Subject, package: &PackageId) -> Self {
        let (kind, id) = (subject.kind(), subject.id());
        Self(format!(
            "{KEY_PREFIX}{workspace}/{kind}-{id}/{package}.json"
        ))
    }

    /// The key.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As it stands in a URL's path: of its characters only one means something else there.
    pub fn in_url(&self) -> String {
        self.0.replace('#', "%23")
    }

    /// Whose it is.
    pub fn workspace(&self) -> WorkspaceId {
        let rest = self.0.strip_prefix(KEY_PREFIX).unwrap_or_default();
        let name = rest.split('/').next().unwrap_or_default();
        name.parse().expect("a key is only made with a workspace")
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no key of a package")]
pub struct NoKey;

impl FromStr for ObjectKey {
    type Err = NoKey;

    /// Only the form that [`ObjectKey::new`] writes.
    fn from_str(text: &str) -> Result<Self, NoKey> {
        let rest = text.strip_prefix(KEY_PREFIX).ok_or(NoKey)?;
        let mut parts = rest.split('/');
        let (Some(workspace), Some(of), Some(file), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NoKey);
        };
        let workspace: WorkspaceId = workspace.parse().map_err(|_| NoKey)?;
        let (kind, id) = of.split_once('-').ok_or(NoKey)?;
        let kind: PackageKind = kind.parse().map_err(|_| NoKey)?;
        let subject = Subject::parse(kind, id).ok_or(NoKey)?;
        let package = file.strip_suffix(".json").ok_or(NoKey)?;
        let package: PackageId = package.parse().map_err(|_| NoKey)?;
        Ok(Self::new(&workspace, &subject, &package))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ORG#acme-1/execution-exe-aaaaaaaaaaaaaaaaaaaa/pkg-bbbbbbbbbbbbbbbbbbbb.json";

    #[test]
    fn a_key_has_one_form() {
        let execution = "exe-aaaaaaaaaaaaaaaaaaaa";
        let subject = Subject::parse(PackageKind::Execution, execution).expect("an id");
        let workspace = "acme-1".parse().expect("an id");
        let package = "pkg-bbbbbbbbbbbbbbbbbbbb".parse().expect("an id");
        let key = ObjectKey::new(&workspace, &subject, &package);
        assert_eq!(key.as_str(), KEY);
        assert_eq!(KEY.parse(), Ok(key.clone()));
        assert_eq!(key.workspace(), workspace);
        assert_eq!(key.in_url(), KEY.replace('#', "%23"));
        for kind in ["conversation-ags", "conversation-rms", "run-run"] {
            let other = KEY.replace("execution-exe", kind);
            assert_eq!(other.parse::<ObjectKey>().map(|k| k.0), Ok(other));
        }
        for bad in [
            "",
            "ORG#",
            "eval-runs/x",
            &KEY.replace("ORG#", "org#"),
            &KEY.replace("acme-1", ".."),
            &KEY.replace("acme-1", "a/b"),
            &KEY.replace("execution-exe", "conversation-exe"),
            &KEY.replace("execution-", "execution-../"),
            &KEY.replace("exe-a", "exe-A"),
            &KEY.replace(".json", ""),
            &format!("{KEY}/x"),
            &format!("/{KEY}"),
        ] {
            assert_eq!(bad.parse::<ObjectKey>(), Err(NoKey), "{bad}");
        }
    }
}
