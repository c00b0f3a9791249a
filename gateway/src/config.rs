//! The gateway's configuration: read once, before any port is bound, with every fault reported together.
//!
//! Values come through a look-up function, so tests never touch the environment. Secrets are never printed, not even wrong ones.

mod exec_tls;
mod network;
mod reader;

use std::net::SocketAddr;
use std::path::PathBuf;

use bex_proto::launch::{POD_DRIVER_BIN, POD_DRIVER_DIR};
use bex_proto::ticket::KeyRing;
use bex_store::config::DbConfig;
use bex_store::pool::Db;
use bex_telemetry::Collector;
use bex_tls::ServerFiles;

use crate::hub::TeeMode;
use crate::sandbox::kubernetes::{KubernetesConfig, LoopbackPods, Reach, is_label};

pub use network::Network;
use reader::Reader;
pub use reader::{Fault, Faults};

/// Exit code of a process that refuses its configuration (`EX_USAGE`).
pub const EXIT_CONFIG: u8 = 64;

const DEFAULT_ATTACH: &str = "127.0.0.1:8083";
const DEFAULT_EXEC: &str = "127.0.0.1:8081";
const DEFAULT_ADMIN: &str = "127.0.0.1:8084";
/// The process's name in `pg_stat_activity`.
const APPLICATION: &str = "bex-gateway";

/// Everything the process is told.
#[derive(Debug, Clone)]
pub struct Config {
    /// `BEX_ATTACH_LISTEN`: viewers.
    pub attach_listen: SocketAddr,
    /// `BEX_EXEC_LISTEN`: the api.
    pub exec_listen: SocketAddr,
    /// `BEX_EXEC_TLS_…`: how the api is proved there; without them the exec listener is plain and on loopback.
    pub exec_tls: Option<ServerFiles>,
    /// `BEX_ADMIN_LISTEN`: probes and metrics.
    pub admin_listen: SocketAddr,
    /// `BEX_DATABASE_URL` with `BEX_DATABASE_CA`; may lead to a transaction-pooling proxy.
    pub database: DbConfig,
    /// `BEX_LISTEN_DATABASE_URL`: a direct connection for notifications; without it changes are polled for.
    pub listen_database: Option<DbConfig>,
    /// `BEX_ATTACH_KEYS`; without them the attach listener answers `not_configured`.
    pub attach_keys: Option<KeyRing>,
    /// `BEX_EXEC_KEYS`; without them the exec listener answers `not_configured`.
    pub exec_keys: Option<KeyRing>,
    /// `BEX_DRIVER_KEYS`.
    pub driver_keys: KeyRing,
    /// `BEX_CORS_ORIGINS`: compared exactly.
    pub cors_origins: Vec<String>,
    /// `BEX_TRUSTED_PROXIES`: peers whose forwarding headers are believed.
    pub trusted_proxies: Vec<Network>,
    /// `BEX_SANDBOX_KIND` and what it needs.
    pub sandboxes: Sandboxes,
    /// `BEX_TEE`.
    pub tee: TeeMode,
    /// `BEX_OTLP_URL`: where spans are sent, by a program that was built for it.
    pub collector: Option<Collector>,
}

/// Where sandboxes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sandboxes {
    /// Directories and child processes of this machine.
    Local {
        /// `BEX_SANDBOX_DIR`.
        dir: PathBuf,
        /// `BEX_DRIVER_BIN`.
        driver_bin: PathBuf,
    },
    /// Pods.
    Kubernetes(KubernetesConfig),
}

impl Config {
    /// Reads the configuration through `lookup`.
    ///
    /// # Errors
    /// Every fault at once.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Faults> {
        let mut reader = Reader::new(&lookup);
        let attach_listen = reader.address("BEX_ATTACH_LISTEN", DEFAULT_ATTACH);
        let exec_listen = reader.address("BEX_EXEC_LISTEN", DEFAULT_EXEC);
        let admin_listen = reader.address("BEX_ADMIN_LISTEN", DEFAULT_ADMIN);
        let ca = reader.text("BEX_DATABASE_CA").map(PathBuf::from);
        let database = db_config(&mut reader, "BEX_DATABASE_URL", ca.clone());
        if database.is_none() {
            reader.require("BEX_DATABASE_URL");
        }
        let listen_database = db_config(&mut reader, "BEX_LISTEN_DATABASE_URL", ca);
        let attach_keys = reader.keys("BEX_ATTACH_KEYS");
        let exec_keys = reader.keys("BEX_EXEC_KEYS");
        let driver_keys = reader.keys("BEX_DRIVER_KEYS");
        if driver_keys.is_none() {
            reader.require("BEX_DRIVER_KEYS");
        }
        reader.refuse_shared_keys(&[
            ("BEX_ATTACH_KEYS", attach_keys.as_ref()),
            ("BEX_EXEC_KEYS", exec_keys.as_ref()),
            ("BEX_DRIVER_KEYS", driver_keys.as_ref()),
        ]);
        let cors_origins = reader.list("BEX_CORS_ORIGINS", origin);
        let trusted_proxies = reader.list("BEX_TRUSTED_PROXIES", str::parse::<Network>);
        let listeners = [
            ("BEX_ATTACH_LISTEN", attach_listen),
            ("BEX_EXEC_LISTEN", exec_listen),
            ("BEX_ADMIN_LISTEN", admin_listen),
        ];
        let sandboxes = sandboxes(&mut reader, &listeners);
        let exec_tls = exec_tls::read(&mut reader, exec_listen);
        let tee = reader.parsed("BEX_TEE", |text| match text {
            "on" => Ok(TeeMode::On),
            "off" => Ok(TeeMode::Off),
            _ => Err("must be on or off"),
        });
        let collector = reader.parsed("BEX_OTLP_URL", Collector::parse);
        reader.finish(move || {
            Some(Self {
                attach_listen: attach_listen?,
                exec_listen: exec_listen?,
                exec_tls,
                admin_listen: admin_listen?,
                database: database?,
                listen_database,
                attach_keys,
                exec_keys,
                driver_keys: driver_keys?,
                cors_origins,
                trusted_proxies,
                sandboxes: sandboxes?,
                tee: tee.unwrap_or(TeeMode::On),
                collector,
            })
        })
    }
}

fn db_config(reader: &mut Reader<'_>, name: &'static str, ca: Option<PathBuf>) -> Option<DbConfig> {
    reader.parsed(name, |url| {
        let config = DbConfig::new(url, APPLICATION).with_ca(ca);
        // a pool connects on first use, so making one only proves the settings
        Db::connect(&config).map(|_| config)
    })
}

fn sandboxes(
    reader: &mut Reader<'_>,
    listeners: &[(&'static str, Option<SocketAddr>)],
) -> Option<Sandboxes> {
    let kind = reader.required("BEX_SANDBOX_KIND", |text| match text {
        "local" => Ok(Kind::Local),
        "kubernetes" => Ok(Kind::Kubernetes),
        _ => Err("must be local or kubernetes"),
    });
    let is_local = is_local(reader);
    if is_local {
        for (name, address) in listeners {
            if address.is_some_and(|a| !a.ip().is_loopback()) {
                reader.fault(name, "must be a loopback address with BEX_LOCAL=1");
            }
        }
    }
    match kind? {
        Kind::Local => {
            if !is_local {
                reader.fault(
                    "BEX_LOCAL",
                    "must be 1 for sandboxes of the kind local, which isolate nothing",
                );
            }
            let dir = reader.required("BEX_SANDBOX_DIR", absolute);
            let driver_bin = reader.required("BEX_DRIVER_BIN", absolute);
            Some(Sandboxes::Local {
                dir: dir?,
                driver_bin: driver_bin?,
            })
        }
        Kind::Kubernetes => kubernetes(reader, is_local).map(Sandboxes::Kubernetes),
    }
}

/// One machine, where every listener is on loopback.
fn is_local(reader: &Reader<'_>) -> bool {
    reader.text("BEX_LOCAL").as_deref() == Some("1")
}

enum Kind {
    Local,
    Kubernetes,
}

fn kubernetes(reader: &mut Reader<'_>, is_local: bool) -> Option<KubernetesConfig> {
    let networks = reader.list("BEX_POD_NETWORKS", |text| match text.parse::<Network>() {
        Ok(network) if !is_local && Reach::is_too_wide(network) => {
            Err("must not hold loopback or link-local addresses")
        }
        Ok(network) => Ok(network),
        Err(_) => Err("must be addresses or ranges like 10.0.0.0/8"),
    });
    reader.require("BEX_POD_NETWORKS");
    let loopback = if is_local {
        LoopbackPods::Allowed
    } else {
        LoopbackPods::Refused
    };
    let namespaces = reader.list("BEX_SANDBOX_NAMESPACES", |text| {
        let known = is_label(text).then(|| text.to_owned());
        known.ok_or("must be names of namespaces")
    });
    let kubeconfig = reader.parsed("BEX_KUBECONFIG", absolute);
    let mut inside = |name, default: &str| match reader.text(name) {
        Some(_) => reader.parsed(name, |text| absolute(text).map(|_| text.to_owned())),
        None => Some(default.to_owned()),
    };
    let driver_bin = inside("BEX_POD_DRIVER_BIN", POD_DRIVER_BIN);
    let driver_dir = inside("BEX_POD_DRIVER_DIR", POD_DRIVER_DIR);
    Some(KubernetesConfig {
        kubeconfig,
        reach: Reach::new(networks, loopback),
        namespaces,
        driver_bin: driver_bin?,
        driver_dir: driver_dir?,
    })
}

fn absolute(text: &str) -> Result<PathBuf, &'static str> {
    let path = PathBuf::from(text);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err("must be an absolute path")
    }
}

/// An origin as browsers send it: scheme, host, maybe a port; nothing else, no wildcard, no `null`.
fn origin(text: &str) -> Result<String, &'static str> {
    const WHAT: &str =
        "must be origins like https://app.example:8443, without a path or a wildcard";
    let host = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"))
        .ok_or(WHAT)?;
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-:[]".contains(&b);
    if host.is_empty() || !host.bytes().all(plain) {
        return Err(WHAT);
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests;
