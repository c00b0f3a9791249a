//! TLS towards the database: the server is proved by an authority from a file and by the name it is dialled by. The file is
//! looked at again when a connection is made, so that an authority can be exchanged under a running process.

use std::path::Path;
use std::sync::Arc;

use bex_tls::{Pem, TlsError, Watched, provider};
use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres_rustls::MakeRustlsConnect;

/// How connections of one database are encrypted.
#[derive(Clone)]
pub(crate) enum DbTls {
    /// Never; the driver is told so too and asks for nothing.
    Off(MakeRustlsConnect),
    /// Always, and verified.
    Verified(Arc<Watched<MakeRustlsConnect, 1>>),
}

impl DbTls {
    pub(crate) fn off() -> Self {
        Self::Off(connector(RootCertStore::empty()))
    }

    pub(crate) fn verified(ca: &Path) -> Result<Self, TlsError> {
        let build = |[ca]: &[Pem; 1]| ca.roots().map(connector);
        let watched = Watched::open("database", [ca.to_owned()], build)?;
        Ok(Self::Verified(Arc::new(watched)))
    }
}

impl<S> MakeTlsConnect<S> for DbTls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = <MakeRustlsConnect as MakeTlsConnect<S>>::Stream;
    type TlsConnect = <MakeRustlsConnect as MakeTlsConnect<S>>::TlsConnect;
    type Error = <MakeRustlsConnect as MakeTlsConnect<S>>::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<Self::TlsConnect, Self::Error> {
        let mut connector = match self {
            Self::Off(connector) => connector.clone(),
            Self::Verified(files) => files.current().as_ref().clone(),
        };
        MakeTlsConnect::<S>::make_tls_connect(&mut connector, host)
    }
}

fn connector(roots: RootCertStore) -> MakeRustlsConnect {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the aws-lc-rs provider supports the default TLS versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    // a resumed session would pass over the certificate
    config.resumption = Resumption::disabled();
    MakeRustlsConnect::new(config)
}
