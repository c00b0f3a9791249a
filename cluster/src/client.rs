//! The connection to the API server.
//!
//! Put together here and not taken whole: the library's own stack logs failures before anybody has judged them, and repeats what
//! it was refused. Only HTTP/1.1 is spoken, as exec needs it.

use std::path::Path;
use std::time::Duration;

use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tower::ServiceBuilder;

/// The API server is in the same cluster.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How the API server may be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// https, its certificate checked.
    Verified,
    /// Also http, as within one machine.
    Local,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The file, or what it names.
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[source] KubeconfigError),
    /// This is not a pod with a service account.
    #[error("there are no credentials of a service account")]
    InCluster(#[source] InClusterError),
    /// The address, the authority or the credentials.
    #[error("no client for the API server")]
    Client(#[source] kube::Error),
    /// Tokens and what is said inside sandboxes would be anybody's.
    #[error("the API server must be https with a certificate that is checked")]
    Insecure,
}

/// Reads the credentials: of the file, else those that the cluster gives to every pod. Connects on first use.
///
/// # Errors
/// See [`ClientError`].
pub async fn connect(
    kubeconfig: Option<&Path>,
    transport: Transport,
) -> Result<Client, ClientError> {
    let access = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).map_err(ClientError::Kubeconfig)?;
            let options = KubeConfigOptions::default();
            let read = Config::from_custom_kubeconfig(file, &options).await;
            read.map_err(ClientError::Kubeconfig)?
        }
        None => Config::incluster().map_err(ClientError::InCluster)?,
    };
    let is_https = access.cluster_url.scheme_str() == Some("https");
    if access.accept_invalid_certs || !(is_https || transport == Transport::Local) {
        return Err(ClientError::Insecure);
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = access
        .rustls_https_connector_with_connector(tcp)
        .map_err(ClientError::Client)?;
    let credentials = access.auth_layer().map_err(ClientError::Client)?;
    let service = ServiceBuilder::new()
        .layer(access.base_uri_layer())
        .option_layer(credentials)
        .map_err(tower::BoxError::from)
        .service(HttpClient::builder(TokioExecutor::new()).build(connector));
    Ok(Client::new(service, access.default_namespace))
}
