//! The Helm chart without a cluster: what it renders, who may reach whom, and its README.
//!
//! Helm renders, as it would for an installation; everything here looks at what came out. `scripts/chart` brings Helm, the schemas and
//! Prometheus' `promtool` and says by `BEX_HELM`, `BEX_KUBERNETES_VALIDATE` and `BEX_PROMTOOL` where they are.

pub mod helm;
pub mod network;
pub mod objects;
pub mod promtool;
pub mod readme;
pub mod tables;

use std::path::{Path, PathBuf};

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The chart.
pub fn chart() -> PathBuf {
    root().join("charts/bex")
}

/// A file of the repository, as text.
///
/// # Errors
/// When it cannot be read.
pub fn text(path: &str) -> anyhow::Result<String> {
    use anyhow::Context;
    std::fs::read_to_string(root().join(path)).with_context(|| format!("cannot read {path}"))
}
