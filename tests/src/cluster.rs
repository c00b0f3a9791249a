//! A double of a cluster for a stack: its sandboxes are pods there, made by the api's account and entered by the gateway's.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use bex_proto::driver::log_file;
use bex_proto::launch::POD_DRIVER_BIN;
use bex_proto::{SessionId, TurnNo};
use bex_testk8s::{Cluster, Image, Options, Transport};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::eventually;
use crate::scenario::STEP;
use crate::stack::{StackOptions, WORKSPACE, bin_dir};

/// The image of the stack's sandboxes.
pub const IMAGE: &str = "sandbox:1";
/// Namespace and name of the api's account.
pub const API: (&str, &str) = ("bex", "api");
/// Of the gateway's.
pub const GATEWAY: (&str, &str) = ("bex", "gateway");

/// See the module's text. It must live longer than its stack.
pub struct PodCluster {
    /// The double.
    pub double: Cluster,
    dir: TempDir,
}

impl PodCluster {
    /// A cluster with the stack's namespace, its image, and both accounts with the rights they need and no other.
    ///
    /// # Errors
    /// When the double does not start, or the driver is not built.
    pub async fn start() -> anyhow::Result<Self> {
        let options = Options {
            transport: Transport::Tls,
            ..Options::default()
        };
        let double = Cluster::start(options).await?;
        let driver = bin_dir()?.join("bex-driver");
        ensure!(driver.is_file(), "{} is not built", driver.display());
        double.image(IMAGE, Image::pause().file(POD_DRIVER_BIN, driver));
        let namespace = namespace();
        double.namespace(&namespace);
        let life: &[&str] = &["create", "get", "list", "watch", "delete"];
        double.grant(&namespace, API, &[("pods", life)]);
        let entry: &[&str] = &["get", "create"];
        double.grant(
            &namespace,
            GATEWAY,
            &[("pods", &["get"]), ("pods/exec", entry)],
        );
        let dir = tempfile::Builder::new().prefix("bex-pods-").tempdir()?;
        Ok(Self { double, dir })
    }

    /// The options of a stack whose sandboxes are pods of this image.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn options(&self, image: &str, mut options: StackOptions) -> anyhow::Result<StackOptions> {
        let template = self.dir.path().join("template.json");
        std::fs::write(&template, json!({"image": image}).to_string())?;
        let text = |path: PathBuf| path.display().to_string();
        let pairs = |pairs: &[(&str, String)]| -> Vec<(String, String)> {
            let own = |(name, value): &(&str, String)| ((*name).to_owned(), value.clone());
            pairs.iter().map(own).collect()
        };
        options.api_env.extend(pairs(&[
            ("BEX_SANDBOX_KIND", "kubernetes".into()),
            ("BEX_SANDBOX_NAMESPACES", namespace()),
            ("BEX_SANDBOX_TEMPLATE", text(template)),
            (
                "BEX_KUBECONFIG",
                text(self.double.kubeconfig(API.0, API.1)?),
            ),
        ]));
        options.gateway_env.extend(pairs(&[
            ("BEX_SANDBOX_KIND", "kubernetes".into()),
            ("BEX_POD_NETWORKS", self.double.pod_network()),
            (
                "BEX_KUBECONFIG",
                text(self.double.kubeconfig(GATEWAY.0, GATEWAY.1)?),
            ),
        ]));
        Ok(options)
    }

    /// The pods of a session.
    pub fn pods(&self, session: &SessionId) -> Vec<Value> {
        let mut pods = self.double.pods(&namespace());
        pods.retain(|pod| pod["metadata"]["labels"]["bex/session"] == session.as_str());
        pods
    }

    /// The name of a session's only pod.
    ///
    /// # Errors
    /// When it has none, or several.
    pub fn pod(&self, session: &SessionId) -> anyhow::Result<String> {
        let pods = self.pods(session);
        ensure!(pods.len() == 1, "{} pods", pods.len());
        let name = pods[0]["metadata"]["name"].as_str();
        Ok(name.context("a pod has a name")?.to_owned())
    }

    /// Opens the gate of the demo agent's prompt.
    ///
    /// # Errors
    /// When the session has no pod.
    pub fn open_gate(&self, session: &SessionId, gate: &str) -> anyhow::Result<()> {
        let pods = self.pods(session);
        let pod = pods.first().context("the session has no pod")?;
        let work = self.double.pod_dir(pod).join("volumes/work");
        std::fs::write(work.join(gate), b"").context("cannot open the gate")
    }

    /// Waits until the driver of a session's first turn has logged a text.
    ///
    /// # Errors
    /// When it has not within [`STEP`].
    pub async fn said(&self, session: &SessionId, text: &str) -> anyhow::Result<()> {
        eventually("the driver said it", STEP, async || {
            let pods = self.pods(session);
            let driver = self.double.pod_dir(pods.first()?).join("volumes/driver");
            let log = std::fs::read_to_string(driver.join(log_file(TurnNo(1)))).ok()?;
            log.contains(text).then_some(())
        })
        .await
    }

    /// Waits until a session has no pod.
    ///
    /// # Errors
    /// When it still has one after [`STEP`].
    pub async fn gone(&self, session: &SessionId) -> anyhow::Result<()> {
        eventually("the pod is gone", STEP, async || {
            self.pods(session).is_empty().then_some(())
        })
        .await
    }
}

/// Where the stack's sandboxes are.
pub fn namespace() -> String {
    format!("{WORKSPACE}-sandbox")
}
