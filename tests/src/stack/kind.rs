//! Where a stack's sandboxes are. The one place that decides it.

use anyhow::bail;
use serde::{Deserialize, Serialize};

/// The variable that chooses for every stack that does not choose for itself.
pub const SANDBOX: &str = "SANDBOX";

/// Where sandboxes are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxKind {
    /// Processes beside the api.
    #[default]
    Local,
    /// Pods of a double of a cluster.
    Kubernetes,
}

impl SandboxKind {
    /// What [`SANDBOX`] says; local without it.
    ///
    /// # Errors
    /// When it names neither.
    pub fn chosen() -> anyhow::Result<Self> {
        match std::env::var(SANDBOX).unwrap_or_default().as_str() {
            "" | "local" => Ok(Self::Local),
            "kubernetes" => Ok(Self::Kubernetes),
            other => bail!("{SANDBOX} must be local or kubernetes, not {other}"),
        }
    }
}
