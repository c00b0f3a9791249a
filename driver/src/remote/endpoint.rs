//! Where the api is, and a proved connection to it.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use http::{HeaderValue, Uri};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A connection, whatever protects it.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// The api's address.
pub struct Endpoint {
    host: String,
    port: u16,
    authority: HeaderValue,
    /// Stands before every path; without a slash at its end.
    prefix: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("host", &self.host)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// Why an address is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EndpointFault {
    /// No URL that names a host.
    #[error("must be an http or https URL without a user, a query or a fragment")]
    Url,
    /// Whoever stands between could take the token.
    #[error("must be https; http is for loopback addresses only")]
    PlainText,
    /// Nothing to verify the api's certificate with.
    #[error("no usable certificate of an authority was found")]
    Roots,
}

impl Endpoint {
    /// An address. `ca` replaces the authorities that this machine trusts.
    ///
    /// # Errors
    /// See [`EndpointFault`].
    pub fn parse(url: &str, ca: Option<&Path>) -> Result<Self, EndpointFault> {
        let uri: Uri = url.parse().map_err(|_| EndpointFault::Url)?;
        let authority = uri.authority().ok_or(EndpointFault::Url)?;
        let host = authority.host();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || url.contains(['@', '#', '?']) {
            return Err(EndpointFault::Url);
        }
        let loopback =
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let (tls, port) = match uri.scheme_str() {
            Some("https") => (Some(connector(host, ca)?), 443),
            Some("http") if loopback => (None, 80),
            Some("http") => return Err(EndpointFault::PlainText),
            _ => return Err(EndpointFault::Url),
        };
        Ok(Self {
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(port),
            authority: authority.as_str().parse().map_err(|_| EndpointFault::Url)?,
            prefix: uri.path().trim_end_matches('/').to_owned(),
            tls,
        })
    }

    /// For the Host header.
    pub fn authority(&self) -> &HeaderValue {
        &self.authority
    }

    /// A path of the api, as this server knows it.
    pub fn target(&self, path: &str) -> Uri {
        let target = format!("{}{path}", self.prefix);
        target
            .parse()
            .expect("a prefix of a parsed URL and a path of ours make a path")
    }

    /// Connects.
    ///
    /// # Errors
    /// What the system says, or that the other side is not proved.
    pub async fn connect(&self) -> std::io::Result<Box<dyn Wire>> {
        let socket = TcpStream::connect((self.host.as_str(), self.port)).await?;
        socket.set_nodelay(true)?;
        Ok(match &self.tls {
            None => Box::new(socket),
            Some((connector, name)) => Box::new(connector.connect(name.clone(), socket).await?),
        })
    }
}

fn connector(
    host: &str,
    ca: Option<&Path>,
) -> Result<(TlsConnector, ServerName<'static>), EndpointFault> {
    let name = ServerName::try_from(host.to_owned()).map_err(|_| EndpointFault::Url)?;
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            let found = CertificateDer::pem_file_iter(path).map_err(|_| EndpointFault::Roots)?;
            for certificate in found {
                let certificate = certificate.map_err(|_| EndpointFault::Roots)?;
                roots.add(certificate).map_err(|_| EndpointFault::Roots)?;
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
    Ok((TlsConnector::from(Arc::new(config)), name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_sent_in_plain_text_to_this_machine_only() {
        for good in [
            "http://127.0.0.1:8080",
            "http://[::1]:1/",
            "http://localhost/a/b/",
        ] {
            assert!(Endpoint::parse(good, None).is_ok(), "{good}");
        }
        let fault = |url: &str| Endpoint::parse(url, None).expect_err(url);
        assert_eq!(fault("http://api.example.org"), EndpointFault::PlainText);
        for bad in [
            "api",
            "ftp://127.0.0.1",
            "http://u@127.0.0.1",
            "http://127.0.0.1/?a=b",
            "http:///x",
        ] {
            assert_eq!(fault(bad), EndpointFault::Url, "{bad}");
        }
    }

    #[test]
    fn paths_stand_behind_the_urls_own() {
        let target = |url| {
            let endpoint = Endpoint::parse(url, None).expect("an address");
            endpoint.target("/v1/x?y=1").to_string()
        };
        assert_eq!(target("http://127.0.0.1:8080"), "/v1/x?y=1");
        assert_eq!(target("http://127.0.0.1:8080/bex/"), "/bex/v1/x?y=1");
    }
}
