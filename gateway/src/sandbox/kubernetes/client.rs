//! The connection to the API server.
//!
//! The stack is put together here and not taken whole: the library's own logs failures as errors before anybody has judged them, and
//! repeats what it was refused. Only HTTP/1.1 is spoken, as exec needs it.

use std::path::PathBuf;
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tower::ServiceBuilder;

use super::Reach;

/// The API server is in the same cluster.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// What the kind needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesConfig {
    /// Credentials and address; without it those that the cluster gives to every pod.
    pub kubeconfig: Option<PathBuf>,
    /// Where pods are.
    pub reach: Reach,
    /// Where rights are asked for; none of them is asked for where this is empty.
    pub namespaces: Vec<String>,
    /// The driver's binary inside a sandbox's container; absolute.
    pub driver_bin: String,
    /// The driver's directory inside a sandbox's container; absolute.
    pub driver_dir: String,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig.
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[source] KubeconfigError),
    /// This is not a pod with a service account.
    #[error("there are no credentials of a service account")]
    InCluster(#[source] kube::config::InClusterError),
    /// The address, the authority or the credentials.
    #[error("no client for the API server")]
    Client(#[source] kube::Error),
    /// A token would be readable on its way.
    #[error("the API server must be reached by https and its certificate checked")]
    Insecure,
}

pub(super) async fn connect(config: &KubernetesConfig) -> Result<Client, ClientError> {
    let access = match &config.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).map_err(ClientError::Kubeconfig)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(ClientError::Kubeconfig)?
        }
        None => Config::incluster().map_err(ClientError::InCluster)?,
    };
    let is_https = access.cluster_url.scheme_str() == Some("https");
    if access.accept_invalid_certs || !(is_https || config.reach.is_local()) {
        return Err(ClientError::Insecure);
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = access
        .rustls_https_connector_with_connector(tcp)
        .map_err(ClientError::Client)?;
    let service = ServiceBuilder::new()
        .layer(access.base_uri_layer())
        .option_layer(access.auth_layer().map_err(ClientError::Client)?)
        .map_err(tower::BoxError::from)
        .service(
            hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector),
        );
    Ok(Client::new(service, access.default_namespace))
}
