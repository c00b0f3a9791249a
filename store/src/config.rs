//! Where the database is and how its connections are made safe.

use std::net::IpAddr;
use std::path::PathBuf;

use bex_tls::TlsError;
use tokio_postgres::config::{Host, SslMode};

use crate::tls::DbTls;

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
    #[error("must be a URL like postgres://user@host/database?sslmode=verify-full")]
    Url,
    /// No `sslmode`, which the driver takes for `prefer`, or more than one.
    #[error(
        "must say sslmode=verify-full, or sslmode=disable for unix sockets and loopback addresses"
    )]
    SslModeMissing,
    /// A mode that falls back to plain text, or does not prove the server.
    #[error(
        "sslmode={mode} does not prove who the server is: must be sslmode=verify-full, or sslmode=disable for unix sockets and \
         loopback addresses"
    )]
    SslModeWeak {
        /// The mode.
        mode: &'static str,
    },
    /// A word that is no mode.
    #[error("sslmode must be verify-full, or disable for unix sockets and loopback addresses")]
    SslModeUnknown,
    /// Plain text over a network.
    #[error("sslmode=disable is allowed for unix sockets and loopback addresses only")]
    PlainTextOverNetwork,
    /// Nothing to prove the server with.
    #[error("sslmode={mode} needs BEX_DATABASE_CA, a file of PEM certificates")]
    CaMissing {
        /// The mode.
        mode: &'static str,
    },
    /// A certificate is for a name.
    #[error("sslmode={mode} needs a host name to compare the server's certificate with")]
    NameMissing {
        /// The mode.
        mode: &'static str,
    },
    /// The CA file is unusable.
    #[error("BEX_DATABASE_CA: {0}")]
    Ca(TlsError),
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

    /// The authorities' file for `sslmode=verify-full`.
    #[must_use]
    pub fn with_ca(mut self, ca: Option<PathBuf>) -> Self {
        self.ca = ca;
        self
    }

    pub(crate) fn parse(&self) -> Result<(tokio_postgres::Config, DbTls), ConfigError> {
        let (url, mode) = split_mode(&self.url)?;
        let mut config: tokio_postgres::Config = url.parse().map_err(|_| ConfigError::Url)?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(ConfigError::Url);
        }
        let tls = match mode {
            Mode::Disable if is_local(&config) => {
                config.ssl_mode(SslMode::Disable);
                DbTls::off()
            }
            Mode::Disable => return Err(ConfigError::PlainTextOverNetwork),
            Mode::Verify(mode) => {
                config.ssl_mode(SslMode::Require);
                let ca = self.ca.as_deref().ok_or(ConfigError::CaMissing { mode })?;
                let is_name = |host: &Host| matches!(host, Host::Tcp(_));
                if config.get_hosts().is_empty() || !config.get_hosts().iter().all(is_name) {
                    return Err(ConfigError::NameMissing { mode });
                }
                DbTls::verified(ca).map_err(ConfigError::Ca)?
            }
        };
        config.application_name(&self.application);
        config.connect_timeout(crate::pool::CONNECT_TIMEOUT);
        // dead peers are noticed by the kernel; a listener may be silent for hours
        config.keepalives_idle(crate::pool::KEEPALIVE_IDLE);
        Ok((config, tls))
    }
}

/// How a URL wants to be connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// In plain text.
    Disable,
    /// Over TLS, chain and name proved. There is no weaker way; `require` is the driver's word for it.
    Verify(&'static str),
}

/// Takes the mode out of a URL: the driver does not know them all, and what it calls `require` is what `verify-full` means here, with our authorities.
fn split_mode(url: &str) -> Result<(String, Mode), ConfigError> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(ConfigError::Url);
    }
    let (head, query) = url.split_once('?').unwrap_or((url, ""));
    let is_mode = |pair: &&str| pair.split('=').next() == Some("sslmode");
    let (modes, others): (Vec<&str>, Vec<&str>) = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .partition(is_mode);
    let [mode] = modes.as_slice() else {
        return Err(ConfigError::SslModeMissing);
    };
    let mode = match mode.split_once('=').map_or("", |(_, value)| value) {
        "disable" => Mode::Disable,
        "verify-full" => Mode::Verify("verify-full"),
        "require" => Mode::Verify("require"),
        "prefer" => return Err(ConfigError::SslModeWeak { mode: "prefer" }),
        "allow" => return Err(ConfigError::SslModeWeak { mode: "allow" }),
        "verify-ca" => return Err(ConfigError::SslModeWeak { mode: "verify-ca" }),
        _ => return Err(ConfigError::SslModeUnknown),
    };
    Ok((format!("{head}?{}", others.join("&")), mode))
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
        assert_eq!(
            refusal("postgresql://u@%2Ftmp%2Fpg/d?sslmode=disable&connect_timeout=3"),
            None
        );
        for (url, why) in [
            ("postgres://u@127.0.0.1/d", "must say sslmode=verify-full"),
            (
                "postgres://u@db/d?sslmode=prefer&sslmode=verify-full",
                "must say",
            ),
            ("postgres://u@db/d?sslmode=prefer", "sslmode=prefer does"),
            ("postgres://u@db/d?sslmode=allow", "sslmode=allow does"),
            ("postgres://u@db/d?sslmode=verify-ca", "verify-ca does not"),
            ("postgres://u@db/d?sslmode=", "must be verify-full"),
            ("postgres://u@db/d?sslmode=on", "must be verify-full"),
            ("postgres://u@db/d?sslmode=disable", "loopback"),
            ("postgres://u@127.0.0.1,db/d?sslmode=disable", "loopback"),
            ("postgres://u@db/d?sslmode=require", "BEX_DATABASE_CA"),
            ("postgres://u@db/d?sslmode=verify-full", "BEX_DATABASE_CA"),
            ("host=db sslmode=verify-full", "must be a URL"),
            ("nonsense", "must be a URL"),
        ] {
            let text = refusal(url).unwrap_or_default();
            assert!(text.contains(why), "{url}: {text}");
        }
    }

    #[test]
    fn a_certificate_needs_a_name_and_an_authority() {
        let refusal = |host: &str| {
            let url = format!("postgres://u@{host}/d?sslmode=verify-full");
            let config = DbConfig::new(url, "test").with_ca(Some("/nowhere/ca.pem".into()));
            config.parse().err().map(|e| e.to_string())
        };
        assert!(refusal("%2Ftmp%2Fpg").unwrap_or_default().contains("name"));
        let text = refusal("db").unwrap_or_default();
        assert!(text.contains("/nowhere/ca.pem cannot be read"), "{text}");
    }

    #[test]
    fn a_password_is_never_printed() {
        let config = DbConfig::new("postgres://u:hunter2@db/d?sslmode=require", "test");
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
