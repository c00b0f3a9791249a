//! A double of a cluster for a stack: its sandboxes are pods there, made by the api's account and entered by the gateway's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use bex_proto::SessionId;
use bex_proto::launch::POD_DRIVER_BIN;
use bex_testk8s::{Cluster, Image, Options, Transport, rights};
use serde_json::{Value, json};

use crate::eventually;
use crate::scenario::STEP;
use crate::stack::{OTHER_WORKSPACE, WORKSPACE};

/// The image of the stack's sandboxes.
pub const IMAGE: &str = "sandbox:1";
/// Namespace and name of the api's account.
pub const API: (&str, &str) = ("bex", "api");
/// Of the gateway's.
pub const GATEWAY: (&str, &str) = ("bex", "gateway");
/// The key of a credential in its Secret.
const SECRET_KEY: &str = "value";
const TEMPLATE: &str = "template.json";
/// Between the end of a process and the word of its pod.
const TOLD: Duration = Duration::from_secs(10);

type Env = Vec<(String, String)>;

/// See the module's text. It must live longer than its stack's processes.
pub struct PodCluster {
    /// The double.
    pub double: Cluster,
}

impl std::fmt::Debug for PodCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PodCluster").finish_non_exhaustive()
    }
}

impl PodCluster {
    /// A cluster with the stack's namespace, an image with this driver, and both accounts with the rights they need and no other. The
    /// other workspace is configured and has no namespace.
    ///
    /// # Errors
    /// When the double does not start.
    pub(crate) async fn start(driver: PathBuf) -> anyhow::Result<Self> {
        let options = Options {
            transport: Transport::Tls,
            ..Options::default()
        };
        let double = Cluster::start(options).await?;
        double.image(IMAGE, Image::pause().file(POD_DRIVER_BIN, driver));
        double.namespace(&namespace());
        for namespace in namespaces() {
            double.grant(&namespace, API, rights::API);
            double.grant(&namespace, GATEWAY, rights::GATEWAY);
        }
        Ok(Self { double })
    }

    /// What the api is told of it; the sandboxes' template is written to `dir`.
    pub(crate) fn api_env(&self, dir: &Path) -> anyhow::Result<Env> {
        let template = dir.join(TEMPLATE);
        std::fs::write(&template, json!({"image": IMAGE}).to_string())?;
        let kubeconfig = self.double.kubeconfig(API.0, API.1)?;
        Ok(own([
            ("BEX_SANDBOX_KIND", "kubernetes".into()),
            ("BEX_SANDBOX_NAMESPACES", namespaces().join(",")),
            ("BEX_SANDBOX_TEMPLATE", template.display().to_string()),
            ("BEX_KUBECONFIG", kubeconfig.display().to_string()),
        ]))
    }

    /// What the gateway is told of it.
    pub(crate) fn gateway_env(&self) -> anyhow::Result<Env> {
        let kubeconfig = self.double.kubeconfig(GATEWAY.0, GATEWAY.1)?;
        Ok(own([
            ("BEX_SANDBOX_KIND", "kubernetes".into()),
            ("BEX_POD_NETWORKS", self.double.pod_network()),
            ("BEX_SANDBOX_NAMESPACES", namespaces().join(",")),
            ("BEX_KUBECONFIG", kubeconfig.display().to_string()),
        ]))
    }

    /// Makes each credential a Secret of its name.
    pub(crate) fn keep(&self, secrets: &BTreeMap<String, String>) {
        for (name, value) in secrets {
            let metadata = json!({"name": name, "namespace": namespace()});
            self.double.apply(
                &json!({"kind": "Secret", "metadata": metadata, "stringData": {SECRET_KEY: value}}),
            );
        }
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

    /// Waits until no pod of a session is said to run.
    pub(crate) async fn none_runs(&self, session: &SessionId) -> anyhow::Result<()> {
        eventually("the pods are seen to have ended", TOLD, async || {
            let pods = self.pods(session);
            let runs = pods.iter().any(|pod| pod["status"]["phase"] == "Running");
            (!runs).then_some(())
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

/// The name by which the api knows a credential of a cluster.
pub(crate) fn secret_ref(name: &str) -> String {
    format!("{name}/{SECRET_KEY}")
}

fn namespaces() -> [String; 2] {
    [namespace(), format!("{OTHER_WORKSPACE}-sandbox")]
}

fn own<const N: usize>(pairs: [(&str, String); N]) -> Env {
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}
