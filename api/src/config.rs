//! Configuration: read once, before any port is bound, into plain data. Every fault is reported in one go, by the name
//! of its variable and never with its value.

mod packages;
mod parse;
mod raw;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bex_proto::ticket::KeyRing;
use bex_store::DbConfig;
use bex_telemetry::Collector;
use bex_tls::ClientFiles;

use crate::auth::{ClaimNames, Endpoint, ServiceTokens};
use crate::profiles::Profiles;
use crate::proof::ProofRing;
use crate::sandbox::kubernetes::KubernetesConfig;

pub use packages::{PackageArgs, PackageStore, PackagesConfig};
pub use raw::{FileArgs, ImportArgs, MigrateArgs, ServeArgs};

/// Exit code of a process whose configuration is refused (EX_USAGE).
pub const EXIT_USAGE: u8 = 64;

/// What `serve` runs with.
#[derive(Debug)]
pub struct Config {
    /// REST.
    pub listen: SocketAddr,
    /// Health, readiness, metrics.
    pub admin_listen: SocketAddr,
    /// The store.
    pub database: DbConfig,
    /// A direct connection for LISTEN; without it changes are polled.
    pub listen_database: Option<DbConfig>,
    /// Attach, exec and driver rings.
    pub keys: Keys,
    /// Prefix of every `streamUrl`, without a slash at its end.
    pub attach_public_url: String,
    /// The gateway's exec listener.
    pub exec: ExecEndpoint,
    /// Programs that may call.
    pub tokens: ServiceTokens,
    /// Whose access tokens let people call.
    pub oidc: Option<OidcConfig>,
    /// What may run.
    pub profiles: Profiles,
    /// Where it runs.
    pub sandbox: SandboxKind,
    /// Loops.
    pub timings: Timings,
    /// Live sessions of one workspace.
    pub live_limit: u32,
    /// Signs statements about turns, where there are keys.
    pub proof: Option<ProofRing>,
    /// Days that sessions and audit rows are kept where a workspace says nothing; 0: for ever.
    pub retention_days: u32,
    /// Days that remote sessions' logs are kept once rows were made from them; 0: for ever.
    pub remote_log_days: u32,
    /// How often is looked for what is kept no longer.
    pub retention_tick: Duration,
    /// Where spans are sent, by a program that was built for it.
    pub collector: Option<Collector>,
    /// How replay packages are made, where there is a place for them.
    pub packages: Option<PackagesConfig>,
    /// The built dashboard.
    pub ui_dir: Option<PathBuf>,
}

/// Where the gateway takes exec calls.
#[derive(Debug, Clone)]
pub struct ExecEndpoint {
    /// Scheme, host and port.
    pub url: hyper::Uri,
    /// For https: how each side is proved.
    pub tls: Option<ClientFiles>,
}

/// An issuer of access tokens.
#[derive(Debug, Clone)]
pub struct OidcConfig {
    /// As tokens name it.
    pub issuer: String,
    /// Audiences a token may be for.
    pub audiences: Vec<String>,
    /// Where its keys are.
    pub jwks: Endpoint,
    /// Where rights stand in a token.
    pub claims: ClaimNames,
}

/// The three key rings, which never stand in for one another.
#[derive(Debug, Clone)]
pub struct Keys {
    /// Browsers to gateway.
    pub attach: KeyRing,
    /// Api to gateway.
    pub exec: KeyRing,
    /// Gateway to driver; the api derives each driver's key from it.
    pub driver: KeyRing,
}

/// Where sandboxes run.
#[derive(Debug, Clone)]
pub enum SandboxKind {
    /// Directories and processes of this machine.
    Local(LocalSandboxes),
    /// Pods of a cluster.
    Kubernetes(Box<KubernetesConfig>),
}

/// The local kind's settings.
#[derive(Clone)]
pub struct LocalSandboxes {
    /// One directory per sandbox in here.
    pub dir: PathBuf,
    /// The driver's program.
    pub driver: PathBuf,
    /// Values by secretRef.
    pub secrets: BTreeMap<String, String>,
}

impl std::fmt::Debug for LocalSandboxes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalSandboxes")
            .field("dir", &self.dir)
            .field("driver", &self.driver)
            .field("secrets", &self.secrets.len())
            .finish()
    }
}

/// How patient the loops are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// The Completer's tick.
    pub completer_tick: Duration,
    /// Life of an idle sandbox.
    pub idle_grace: Duration,
    /// Silence that ends a turn.
    pub turn_deadline: Duration,
    /// How long a status may be unreadable.
    pub status_unreadable: Duration,
}

/// One variable that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: {problem}")]
pub struct ConfigFault {
    /// Its name.
    pub variable: &'static str,
    /// What is wrong; the value is never repeated.
    pub problem: String,
}

impl Config {
    /// Checks everything and reports every fault.
    ///
    /// # Errors
    /// All faults found, at least one.
    pub fn from_args(args: &ServeArgs) -> Result<Self, Vec<ConfigFault>> {
        parse::config(args)
    }
}

/// The direct database of `migrate`.
///
/// # Errors
/// When the URL is not given.
pub fn migrate_database(args: &MigrateArgs) -> Result<DbConfig, Vec<ConfigFault>> {
    match &args.database_direct_url {
        Some(url) => Ok(DbConfig::new(url, "bex-api migrate").with_ca(args.database_ca.clone())),
        None => Err(vec![ConfigFault {
            variable: "BEX_DATABASE_DIRECT_URL",
            problem: "is not set".into(),
        }]),
    }
}

/// The database of `package build`.
///
/// # Errors
/// When the URL is not given.
pub fn package_database(
    url: &Option<String>,
    ca: &Option<PathBuf>,
) -> Result<DbConfig, ConfigFault> {
    match url {
        Some(url) => Ok(DbConfig::new(url, "bex-api package").with_ca(ca.clone())),
        None => Err(ConfigFault {
            variable: "BEX_DATABASE_URL",
            problem: "is not set".into(),
        }),
    }
}

/// The database of `import`.
///
/// # Errors
/// When the URL is not given.
pub fn import_database(args: &ImportArgs) -> Result<DbConfig, Vec<ConfigFault>> {
    match &args.database_url {
        Some(url) => Ok(DbConfig::new(url, "bex-api import").with_ca(args.database_ca.clone())),
        None => Err(vec![ConfigFault {
            variable: "BEX_DATABASE_URL",
            problem: "is not set".into(),
        }]),
    }
}
