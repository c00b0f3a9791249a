//! The environment as text, one field per variable. clap reads it and documents it in `--help`; nothing here judges.

use std::path::PathBuf;

use clap::Args;

use super::packages::PackageArgs;

/// Variables of `bex-api serve`.
#[derive(Clone, Default, Args)]
pub struct ServeArgs {
    /// REST listener, `address:port`
    #[arg(long, env = "BEX_API_LISTEN", default_value = "127.0.0.1:8080")]
    pub api_listen: String,
    /// Health, readiness and metrics listener
    #[arg(long, env = "BEX_ADMIN_LISTEN", default_value = "127.0.0.1:9080")]
    pub admin_listen: String,
    /// PostgreSQL; may be a transaction-pooling pgbouncer
    #[arg(long, env = "BEX_DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// PostgreSQL for LISTEN, a direct connection; without it changes are polled once a second
    #[arg(long, env = "BEX_LISTEN_DATABASE_URL", hide_env_values = true)]
    pub listen_database_url: Option<String>,
    /// PEM certificates that the database's certificate must chain to
    #[arg(long, env = "BEX_DATABASE_CA")]
    pub database_ca: Option<PathBuf>,
    /// Attach ring: `kid:hex,…`; the first signs, all verify
    #[arg(long, env = "BEX_ATTACH_KEYS", hide_env_values = true)]
    pub attach_keys: Option<String>,
    /// Exec ring
    #[arg(long, env = "BEX_EXEC_KEYS", hide_env_values = true)]
    pub exec_keys: Option<String>,
    /// Driver ring
    #[arg(long, env = "BEX_DRIVER_KEYS", hide_env_values = true)]
    pub driver_keys: Option<String>,
    /// Proof ring: `kid:hex,…` with Ed25519 seeds; the first signs statements about turns, all are published
    #[arg(long, env = "BEX_PROOF_KEYS", hide_env_values = true)]
    pub proof_keys: Option<String>,
    /// Days that finished sessions and audit rows are kept where a workspace says nothing; 0 keeps them
    #[arg(long, env = "BEX_AUDIT_RETENTION_DAYS")]
    pub audit_retention_days: Option<String>,
    /// Days that remote sessions' logs are kept once turns and messages were made from them; 0 keeps them
    #[arg(long, env = "BEX_REMOTE_LOG_RETENTION_DAYS")]
    pub remote_log_retention_days: Option<String>,
    /// Prefix of every streamUrl
    #[arg(long, env = "BEX_ATTACH_PUBLIC_URL")]
    pub attach_public_url: Option<String>,
    /// The gateway's exec listener: https, or http on loopback
    #[arg(long, env = "BEX_EXEC_URL")]
    pub exec_url: Option<String>,
    /// PEM certificates that the gateway's certificate must chain to
    #[arg(long, env = "BEX_EXEC_TLS_CA")]
    pub exec_tls_ca: Option<PathBuf>,
    /// PEM certificate chain that proves this api to the gateway
    #[arg(long, env = "BEX_EXEC_TLS_CERT")]
    pub exec_tls_cert: Option<PathBuf>,
    /// Its PEM key
    #[arg(long, env = "BEX_EXEC_TLS_KEY")]
    pub exec_tls_key: Option<PathBuf>,
    /// Name that the gateway's certificate must have, instead of the URL's host
    #[arg(long, env = "BEX_EXEC_TLS_NAME")]
    pub exec_tls_name: Option<String>,
    /// JSON file of service tokens (SHA-256, subject, workspaces, role)
    #[arg(long, env = "BEX_SERVICE_TOKENS")]
    pub service_tokens: Option<PathBuf>,
    /// Issuer of access tokens, exactly as their `iss` says it
    #[arg(long, env = "BEX_OIDC_ISSUER")]
    pub oidc_issuer: Option<String>,
    /// Audiences a token may be for, with commas
    #[arg(long, env = "BEX_OIDC_AUDIENCE")]
    pub oidc_audience: Option<String>,
    /// Where the issuer publishes its keys; https
    #[arg(long, env = "BEX_OIDC_JWKS_URL")]
    pub oidc_jwks_url: Option<String>,
    /// PEM certificates that the issuer's certificate must chain to, instead of the machine's
    #[arg(long, env = "BEX_OIDC_CA")]
    pub oidc_ca: Option<PathBuf>,
    /// Claim that names workspaces
    #[arg(long, env = "BEX_OIDC_WORKSPACES_CLAIM", default_value = "workspaces")]
    pub oidc_workspaces_claim: String,
    /// Claim that names roles
    #[arg(long, env = "BEX_OIDC_ROLE_CLAIM", default_value = "role")]
    pub oidc_role_claim: String,
    /// JSON file of agent profiles
    #[arg(long, env = "BEX_PROFILES")]
    pub profiles: Option<PathBuf>,
    /// Where sandboxes run: `local` or `kubernetes`
    #[arg(long, env = "BEX_SANDBOX_KIND")]
    pub sandbox_kind: Option<String>,
    /// `1` allows what is safe on one machine only
    #[arg(long, env = "BEX_LOCAL")]
    pub local: Option<String>,
    /// Directory of local sandboxes
    #[arg(long, env = "BEX_SANDBOX_DIR")]
    pub sandbox_dir: Option<PathBuf>,
    /// JSON file: what the pods of sandboxes are made from
    #[arg(long, env = "BEX_SANDBOX_TEMPLATE")]
    pub sandbox_template: Option<PathBuf>,
    /// Namespaces of sandboxes, with commas
    #[arg(long, env = "BEX_SANDBOX_NAMESPACES")]
    pub sandbox_namespaces: Option<String>,
    /// A kubeconfig file; without it the pod's service account
    #[arg(long, env = "BEX_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// The driver's program inside a pod
    #[arg(long, env = "BEX_POD_DRIVER_BIN")]
    pub pod_driver_bin: Option<String>,
    /// The driver's directory inside a pod
    #[arg(long, env = "BEX_POD_DRIVER_DIR")]
    pub pod_driver_dir: Option<String>,
    /// The driver's program, an absolute path
    #[arg(long, env = "BEX_DRIVER_BIN")]
    pub driver_bin: Option<PathBuf>,
    /// Directory of recordings for the player
    #[arg(long, env = "BEX_PLAY_DIR")]
    pub play_dir: Option<PathBuf>,
    /// Directory of the built dashboard, served under /ui
    #[arg(long, env = "BEX_UI_DIR")]
    pub ui_dir: Option<PathBuf>,
    /// JSON file: secretRef to value
    #[arg(long, env = "BEX_SECRETS_FILE")]
    pub secrets_file: Option<PathBuf>,
    /// The Completer's tick, milliseconds
    #[arg(long, env = "BEX_COMPLETER_TICK_MS")]
    pub completer_tick_ms: Option<String>,
    /// Life of an idle sandbox, milliseconds
    #[arg(long, env = "BEX_IDLE_GRACE_MS")]
    pub idle_grace_ms: Option<String>,
    /// Silence that ends a turn, milliseconds
    #[arg(long, env = "BEX_TURN_DEADLINE_MS")]
    pub turn_deadline_ms: Option<String>,
    /// How long a status may be unreadable, milliseconds
    #[arg(long, env = "BEX_STATUS_UNREADABLE_MS")]
    pub status_unreadable_ms: Option<String>,
    /// How often is looked for what is kept no longer, milliseconds
    #[arg(long, env = "BEX_RETENTION_TICK_MS")]
    pub retention_tick_ms: Option<String>,
    /// Live sessions of one workspace
    #[arg(long, env = "BEX_LIVE_LIMIT")]
    pub live_limit: Option<String>,
    /// An OTLP collector that spans are sent to, `http://host:4318/v1/traces`; needs a build with the feature otlp
    #[arg(long, env = "BEX_OTLP_URL", hide_env_values = true)]
    pub otlp_url: Option<String>,
    /// Replay packages
    #[command(flatten)]
    pub packages: PackageArgs,
}

/// What `bex-api verify` and `bex-api import` are told.
#[derive(Clone, Default, Args)]
pub struct FileArgs {
    /// The export, as `format=jsonl` gave it
    pub file: PathBuf,
    /// JSON file of the public keys it must be signed with, as `/.well-known/bex-proof-keys.json` publishes them; without it the
    /// export's own are taken
    #[arg(long)]
    pub keys: Option<PathBuf>,
    /// Accepts an export that nobody signed
    #[arg(long)]
    pub unsigned: bool,
}

/// Variables of `bex-api import`.
#[derive(Clone, Default, Args)]
pub struct ImportArgs {
    /// PostgreSQL, as the api's user
    #[arg(long, env = "BEX_DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// PEM certificates that the database's certificate must chain to
    #[arg(long, env = "BEX_DATABASE_CA")]
    pub database_ca: Option<PathBuf>,
    /// The export
    #[command(flatten)]
    pub file: FileArgs,
}

/// Variables of `bex-api migrate`.
#[derive(Clone, Default, Args)]
pub struct MigrateArgs {
    /// PostgreSQL, a direct connection as the schema's owner
    #[arg(long, env = "BEX_DATABASE_DIRECT_URL", hide_env_values = true)]
    pub database_direct_url: Option<String>,
    /// PEM certificates that the database's certificate must chain to
    #[arg(long, env = "BEX_DATABASE_CA")]
    pub database_ca: Option<PathBuf>,
}
