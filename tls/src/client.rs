//! The connecting end: it shows its certificate, and speaks to nobody but the server it means.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::version::TLS13;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::pem::{Pem, TlsError};
use crate::watched::Watched;
use crate::{HANDSHAKE_TIMEOUT, provider};

/// Where the connecting end's files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFiles {
    /// The authorities of the server.
    pub ca: PathBuf,
    /// The client's certificate chain.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The name the server must have.
    pub server_name: ServerName<'static>,
}

/// See the module's text.
#[derive(Debug)]
pub struct ClientTls {
    files: Watched<Ready, 3>,
    name: ServerName<'static>,
}

struct Ready {
    config: Arc<ClientConfig>,
    not_after: i64,
}

/// Why there is no proved connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectFault {
    /// Out of time.
    #[error("the handshake took longer than {HANDSHAKE_TIMEOUT:?}")]
    Timeout,
    /// The server is not who it should be, or the connection broke.
    #[error("the handshake failed")]
    Handshake(#[source] std::io::Error),
}

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    /// When they cannot be used now.
    pub fn open(files: ClientFiles) -> Result<Self, TlsError> {
        let paths = [files.ca, files.certificate, files.key];
        Ok(Self {
            files: Watched::open("exec client", paths, ready)?,
            name: files.server_name,
        })
    }

    /// Proves the server of a fresh connection. Whether the server takes this client shows only when it answers.
    ///
    /// # Errors
    /// See [`ConnectFault`].
    pub async fn connect<S>(&self, socket: S) -> Result<TlsStream<S>, ConnectFault>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let connector = TlsConnector::from(Arc::clone(&self.files.current().config));
        timeout(
            HANDSHAKE_TIMEOUT,
            connector.connect(self.name.clone(), socket),
        )
        .await
        .map_err(|_| ConnectFault::Timeout)?
        .map_err(ConnectFault::Handshake)
    }

    /// Until when its certificate is valid, seconds of Unix time.
    pub fn not_after(&self) -> i64 {
        self.files.current().not_after
    }

    /// How often changed files could not be used.
    pub fn reload_failures(&self) -> u64 {
        self.files.failures()
    }
}

fn ready(files: &[Pem; 3]) -> Result<Ready, TlsError> {
    let [ca, certificate, key] = files;
    let identity = certificate.identity(key)?;
    let not_after = identity.not_after;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("the aws-lc-rs provider knows TLS 1.3")
        .with_root_certificates(ca.roots()?)
        .with_client_auth_cert(identity.chain, identity.key)
        .map_err(|_| TlsError::Mismatch)?;
    config.resumption = Resumption::disabled();
    // the client above speaks HTTP/1.1, on this connection too
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Ready {
        config: Arc::new(config),
        not_after,
    })
}
