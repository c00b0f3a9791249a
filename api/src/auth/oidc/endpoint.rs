//! Where the issuer publishes its keys, and one bounded read of them. A read has a connection of its own, as there is one in
//! minutes; redirects are not followed, and nothing is read in plain text over a network.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::task::AbortOnDropHandle;

use super::key_set::{KeySet, KeySetFault};

/// One read, from the look-up of the host's name to the last byte.
pub(super) const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// A published set: 64 keys with certificate chains fit.
const SET_BYTES: usize = 512 * 1024;

/// Where keys are published.
#[derive(Clone)]
pub struct Endpoint {
    host: String,
    port: u16,
    /// What the request names: host as it was written, path and query.
    authority: HeaderValue,
    path: Uri,
    tls: Option<Tls>,
}

/// How one host is spoken to by TLS.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Tls {
    /// Proves the other side. `ca` replaces the authorities that this machine trusts.
    ///
    /// # Errors
    /// See [`EndpointFault`].
    pub(crate) fn to(host: &str, ca: Option<&Path>) -> Result<Self, EndpointFault> {
        tls(host, ca)
    }

    /// The handshake.
    ///
    /// # Errors
    /// When the other side is not proved.
    pub(crate) async fn connect(&self, socket: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.name.clone(), socket).await
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("host", &self.host)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// Why an address of keys is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EndpointFault {
    /// No URL that names a host.
    #[error("must be an https URL without a user or a fragment")]
    Url,
    /// Whoever stands between could exchange the keys.
    #[error("must be https; http is for loopback addresses only")]
    PlainText,
    /// Nothing to verify the issuer's certificate with.
    #[error("no usable certificate of an authority was found")]
    Roots,
}

/// Why keys were not read.
#[derive(Debug, thiserror::Error)]
pub enum FetchFault {
    /// No connection.
    #[error("no connection")]
    Connect(#[source] std::io::Error),
    /// No answer, or a broken one.
    #[error("no answer")]
    Http(#[source] hyper::Error),
    /// Another answer than a set.
    #[error("it answered {0}")]
    Status(StatusCode),
    /// The answer broke off, or is larger than a set may be.
    #[error("its answer broke off or is larger than {SET_BYTES} bytes")]
    Body,
    /// Out of time.
    #[error("it took longer than {FETCH_TIMEOUT:?}")]
    Timeout,
    /// Something else than a set with usable keys.
    #[error(transparent)]
    Set(#[from] KeySetFault),
}

impl Endpoint {
    /// An address. `ca` replaces the authorities that this machine trusts.
    ///
    /// # Errors
    /// See [`EndpointFault`].
    pub fn parse(url: &str, ca: Option<&Path>) -> Result<Self, EndpointFault> {
        let uri: Uri = url.parse().map_err(|_| EndpointFault::Url)?;
        let authority = uri.authority().ok_or(EndpointFault::Url)?;
        let bare = authority.host();
        let host = bare
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        if host.is_empty() || authority.as_str().contains('@') || url.contains('#') {
            return Err(EndpointFault::Url);
        }
        let (tls, port) = match uri.scheme_str() {
            Some("https") => (Some(tls(&host, ca)?), 443),
            Some("http") if is_loopback(&host) => (None, 80),
            Some("http") => return Err(EndpointFault::PlainText),
            _ => return Err(EndpointFault::Url),
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            host,
            port: authority.port_u16().unwrap_or(port),
            authority: authority.as_str().parse().map_err(|_| EndpointFault::Url)?,
            path: path.parse().map_err(|_| EndpointFault::Url)?,
            tls,
        })
    }

    /// One read.
    pub(super) async fn fetch(&self) -> Result<KeySet, FetchFault> {
        let bytes = timeout(FETCH_TIMEOUT, self.read())
            .await
            .map_err(|_| FetchFault::Timeout)??;
        Ok(KeySet::parse(&bytes)?)
    }

    async fn read(&self) -> Result<Bytes, FetchFault> {
        let socket = TcpStream::connect((self.host.as_str(), self.port))
            .await
            .map_err(FetchFault::Connect)?;
        match &self.tls {
            None => self.ask(TokioIo::new(socket)).await,
            Some(tls) => {
                let socket = tls.connect(socket).await;
                self.ask(TokioIo::new(socket.map_err(FetchFault::Connect)?))
                    .await
            }
        }
    }

    async fn ask(
        &self,
        io: impl Read + Write + Unpin + Send + 'static,
    ) -> Result<Bytes, FetchFault> {
        let (mut sender, connection) = http1::handshake(io).await.map_err(FetchFault::Http)?;
        let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.uri_mut() = self.path.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.authority.clone());
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("bex-api"));
        let answer = sender
            .send_request(request)
            .await
            .map_err(FetchFault::Http)?;
        if answer.status() != StatusCode::OK {
            return Err(FetchFault::Status(answer.status()));
        }
        let body = Limited::new(answer.into_body(), SET_BYTES).collect().await;
        Ok(body.map_err(|_| FetchFault::Body)?.to_bytes())
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn tls(host: &str, ca: Option<&Path>) -> Result<Tls, EndpointFault> {
    let name = ServerName::try_from(host.to_owned()).map_err(|_| EndpointFault::Url)?;
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            let found = CertificateDer::pem_file_iter(path).map_err(|_| EndpointFault::Roots)?;
            for certificate in found {
                let added = certificate.map_err(|_| ()).map(|c| roots.add(c).is_ok());
                if added != Ok(true) {
                    return Err(EndpointFault::Roots);
                }
            }
        }
        // a machine's store may hold odd certificates beside good ones
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(EndpointFault::Roots);
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the aws-lc-rs provider supports the default TLS versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Tls {
        connector: TlsConnector::from(Arc::new(config)),
        name,
    })
}

#[cfg(test)]
mod tests;
