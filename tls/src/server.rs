//! The accepting end: a client without the right certificate never reaches HTTP.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;
use rustls::{CertificateError, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::peer::NamedClient;
use crate::pem::{Pem, TlsError};
use crate::watched::Watched;
use crate::{HANDSHAKE_TIMEOUT, provider};

/// Where the accepting end's files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFiles {
    /// Its certificate chain.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities of its clients.
    pub client_ca: PathBuf,
    /// The name its clients must have.
    pub client_name: ServerName<'static>,
}

/// See the module's text.
#[derive(Debug)]
pub struct ServerTls {
    files: Watched<Ready, 3>,
}

struct Ready {
    config: Arc<ServerConfig>,
    not_after: i64,
}

/// Why a connection was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AcceptFault {
    /// The client showed no certificate.
    #[error("the client has no certificate")]
    NoCertificate,
    /// Of another authority.
    #[error("the client's certificate is not of a known authority")]
    Untrusted,
    /// Of somebody else.
    #[error("the client's certificate has another name")]
    WrongName,
    /// Past its end, or before its beginning.
    #[error("the client's certificate is not valid now")]
    Expired,
    /// Most likely plain HTTP.
    #[error("the client does not speak TLS")]
    NotTls,
    /// Its side of the proof failed: see its log.
    #[error("the client refused this certificate")]
    Refused,
    /// Out of time.
    #[error("the handshake took longer than {HANDSHAKE_TIMEOUT:?}")]
    Timeout,
    /// Everything else.
    #[error("the connection broke in the handshake")]
    Broken,
}

impl AcceptFault {
    /// Word for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoCertificate => "no_certificate",
            Self::Untrusted => "untrusted",
            Self::WrongName => "wrong_name",
            Self::Expired => "expired",
            Self::NotTls => "not_tls",
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Broken => "broken",
        }
    }
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// When they cannot be used now.
    pub fn open(files: ServerFiles) -> Result<Self, TlsError> {
        let paths = [files.certificate, files.key, files.client_ca];
        let name = files.client_name;
        let build = move |files: &[Pem; 3]| ready(files, name.clone());
        Ok(Self {
            files: Watched::open("exec listener", paths, build)?,
        })
    }

    /// Proves the client of a fresh connection.
    ///
    /// # Errors
    /// See [`AcceptFault`]; the client is told as TLS tells it.
    pub async fn accept<S>(&self, socket: S) -> Result<TlsStream<S>, AcceptFault>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.files.current().config));
        timeout(HANDSHAKE_TIMEOUT, acceptor.accept(socket))
            .await
            .map_err(|_| AcceptFault::Timeout)?
            .map_err(|error| fault(&error))
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

fn ready(files: &[Pem; 3], name: ServerName<'static>) -> Result<Ready, TlsError> {
    let [certificate, key, client_ca] = files;
    let identity = certificate.identity(key)?;
    let not_after = identity.not_after;
    let clients = NamedClient::new(client_ca.roots()?, name)?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("the aws-lc-rs provider knows TLS 1.3")
        .with_client_cert_verifier(Arc::new(clients))
        .with_single_cert(identity.chain, identity.key)
        .map_err(|_| TlsError::Mismatch)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Ready {
        config: Arc::new(config),
        not_after,
    })
}

fn fault(error: &std::io::Error) -> AcceptFault {
    let tls = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::NoCertificatesPresented) => AcceptFault::NoCertificate,
        Some(rustls::Error::InvalidCertificate(why)) => match why {
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                AcceptFault::WrongName
            }
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => AcceptFault::Expired,
            _ => AcceptFault::Untrusted,
        },
        Some(rustls::Error::InvalidMessage(_)) => AcceptFault::NotTls,
        Some(rustls::Error::AlertReceived(_)) => AcceptFault::Refused,
        _ => AcceptFault::Broken,
    }
}
