//! Where the database is and how its connections are made safe.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

/// A database URL and its settings. The URL may hold a password: it is never printed.
#[derive(Clone)]
pub struct DbConfig {
    pub(crate) url: String,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) application: String,
}

/// Why a database configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not a PostgreSQL URL.
    #[error("the database URL does not parse")]
    Url,
    /// `prefer` (also the default) silently falls back to plain text.
    #[error(
        "the database URL must say sslmode=require, or sslmode=disable for unix sockets and loopback"
    )]
    SslModeUnclear,
    /// Plain text over a network.
    #[error("sslmode=disable is allowed for unix sockets and loopback addresses only")]
    PlainTextOverNetwork,
    /// `require` without a CA would verify nothing.
    #[error("sslmode=require needs BEX_DATABASE_CA, a file of PEM certificates")]
    CaMissing,
    /// The CA file is unusable.
    #[error("the CA file {path} holds no usable certificate")]
    CaUnusable {
        /// The file.
        path: PathBuf,
    },
}

impl DbConfig {
    /// A database by its URL; `application` is shown in `pg_stat_activity`.
    pub fn new(url: impl Into<String>, application: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ca: None,
            application: application.into(),
        }
    }

    /// The CA file for `sslmode=require`.
    #[must_use]
    pub fn with_ca(mut self, ca: Option<PathBuf>) -> Self {
        self.ca = ca;
        self
    }

    pub(crate) fn parse(&self) -> Result<(tokio_postgres::Config, MakeRustlsConnect), ConfigError> {
        let mut config: tokio_postgres::Config = self.url.parse().map_err(|_| ConfigError::Url)?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(ConfigError::Url);
        }
        let roots = match config.get_ssl_mode() {
            SslMode::Disable if is_local(&config) => rustls::RootCertStore::empty(),
            SslMode::Disable => return Err(ConfigError::PlainTextOverNetwork),
            SslMode::Require => read_roots(self.ca.as_deref().ok_or(ConfigError::CaMissing)?)?,
            _ => return Err(ConfigError::SslModeUnclear),
        };
        config.application_name(&self.application);
        config.connect_timeout(crate::pool::CONNECT_TIMEOUT);
        // dead peers are noticed by the kernel; a listener may be silent for hours
        config.keepalives_idle(crate::pool::KEEPALIVE_IDLE);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the aws-lc-rs provider supports the default TLS versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok((config, MakeRustlsConnect::new(tls)))
    }
}

impl std::fmt::Debug for DbConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DbConfig")
            .field("url", &"[redacted]")
            .field("ca", &self.ca)
            .field("application", &self.application)
            .finish()
    }
}

fn is_local(config: &tokio_postgres::Config) -> bool {
    let hosts = config.get_hosts().iter().all(|host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
    });
    hosts && config.get_hostaddrs().iter().all(IpAddr::is_loopback)
}

fn read_roots(path: &Path) -> Result<rustls::RootCertStore, ConfigError> {
    let unusable = || ConfigError::CaUnusable {
        path: path.to_owned(),
    };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|_| unusable())? {
        roots
            .add(certificate.map_err(|_| unusable())?)
            .map_err(|_| unusable())?;
    }
    if roots.is_empty() {
        Err(unusable())
    } else {
        Ok(roots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> Option<String> {
        DbConfig::new(url, "test")
            .parse()
            .err()
            .map(|e| e.to_string())
    }

    #[test]
    fn only_safe_ways_to_connect_are_accepted() {
        assert_eq!(refusal("postgres://u@127.0.0.1/d?sslmode=disable"), None);
        assert_eq!(refusal("postgres://u@%2Ftmp%2Fpg/d?sslmode=disable"), None);
        for (url, why) in [
            ("postgres://u@127.0.0.1/d", "must say sslmode"),
            ("postgres://u@db/d?sslmode=prefer", "must say sslmode"),
            ("postgres://u@db/d?sslmode=disable", "loopback"),
            ("postgres://u@127.0.0.1,db/d?sslmode=disable", "loopback"),
            ("postgres://u@db/d?sslmode=require", "BEX_DATABASE_CA"),
            ("nonsense", "does not parse"),
        ] {
            let text = refusal(url).unwrap_or_default();
            assert!(text.contains(why), "{url}: {text}");
        }
    }

    #[test]
    fn a_password_is_never_printed() {
        let config = DbConfig::new("postgres://u:hunter2@db/d?sslmode=require", "test");
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
