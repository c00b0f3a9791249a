//! The whole system on one machine: a private PostgreSQL, api, gateway, sandboxes of either kind, on free ports.
//!
//! [`Stack::stop`] ends everything in order and inspects the logs; dropped, a stack is killed. Either way no process of it is
//! left, drivers and their agents included, though those live in process sessions of their own.

mod binaries;
mod commands;
mod config;
mod fleet;
mod jwks;
mod keys;
mod kind;
mod logs;
mod ports;
mod process;
mod replica;
mod sandboxes;

pub use bex_testpg::Fsync;
pub use binaries::bin_dir;
pub use commands::Ended;
pub use config::ORIGIN;
pub(crate) use config::dashboard;
pub use fleet::{Fleet, FleetOptions, Link, Member, Role};
pub use jwks::{AUDIENCE, ISSUER, Issuer, SigningKey, claims, signed, unsigned};
pub use keys::{Keys, Tokens, ring};
pub use kind::{SANDBOX, SandboxKind};
pub use logs::LogRules;
pub use replica::Replica;
pub use sandboxes::{Sandbox, Sandboxes, command_line, pid_lives};

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use bex_proto::SessionId;
use bex_testpg::{Options, TestPg};
use tempfile::TempDir;

use crate::client::{ApiClient, Secrets};
use crate::cluster::{self, PodCluster};
use crate::eventually;
use process::Process;

/// The workspace of the stack's operator and viewer.
pub const WORKSPACE: &str = "demo";
/// Another one, with an operator of its own.
pub const OTHER_WORKSPACE: &str = "other";
const DATABASE: &str = "bex";
/// A cold start on a busy machine.
const READY: Duration = Duration::from_secs(60);
/// A random port is rarely taken, and hardly ever twice.
const PORT_ATTEMPTS: u32 = 5;
/// What the contract gives a process to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(25);

/// What stands in sandboxes as the driver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Driver {
    /// The real one.
    #[default]
    Real,
    /// One that is told to break the contract; see [`crate::fake_driver`].
    Faulty,
}

impl Driver {
    fn program(self) -> &'static str {
        match self {
            Self::Real => "bex-driver",
            Self::Faulty => "bex-fake-driver",
        }
    }
}

/// How a stack differs from the default one.
#[derive(Debug, Clone)]
pub struct StackOptions {
    /// Where sandboxes are; as [`SANDBOX`] says without it.
    pub kind: Option<SandboxKind>,
    /// Their driver.
    pub driver: Driver,
    /// Credentials that agents may be given; [`Stack::secret_ref`] tells their names at the api.
    pub secrets: BTreeMap<String, String>,
    /// Whether commits survive a crash of the machine.
    pub fsync: Fsync,
    /// The Completer's tick.
    pub tick: Duration,
    /// How long an idle sandbox lives; the contract's 30 min without it.
    pub idle_grace: Option<Duration>,
    /// Further environment of the api.
    pub api_env: Vec<(String, String)>,
    /// Further environment of the gateway.
    pub gateway_env: Vec<(String, String)>,
    /// Where everything is kept; a temporary directory without it.
    pub dir: Option<PathBuf>,
    /// The attach ring of the gateway, where it is not the api's.
    pub gateway_attach_keys: Option<String>,
    /// Log lines that are expected.
    pub logs: LogRules,
}

impl Default for StackOptions {
    fn default() -> Self {
        Self {
            kind: None,
            driver: Driver::Real,
            secrets: BTreeMap::new(),
            fsync: Fsync::Off,
            tick: Duration::from_millis(500),
            idle_grace: None,
            api_env: Vec::new(),
            gateway_env: Vec::new(),
            dir: None,
            gateway_attach_keys: None,
            logs: LogRules::default(),
        }
    }
}

/// Where everything listens.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// bex-api.
    pub api: SocketAddr,
    /// Its admin listener.
    pub api_admin: SocketAddr,
    /// The gateway's attach listener.
    pub attach: SocketAddr,
    /// Its exec listener.
    pub exec: SocketAddr,
    /// Its admin listener.
    pub gateway_admin: SocketAddr,
}

/// A running system.
pub struct Stack {
    // before the database, so that its clients are gone first
    gateway: Process,
    replicas: Vec<Process>,
    api: Process,
    postgres: TestPg,
    /// Ports.
    pub addresses: Addresses,
    /// Key rings, so that tests can mint what the api never would.
    pub keys: Keys,
    /// Bearer tokens.
    pub tokens: Tokens,
    /// What is to be seen of the sandboxes on this machine.
    pub sandboxes: Sandboxes,
    // where they are pods; after its clients
    cluster: Option<PodCluster>,
    secrets: Secrets,
    options: StackOptions,
    dir: PathBuf,
    stopped: bool,
    _temporary: Option<TempDir>,
}

impl Stack {
    /// Starts everything and waits until it is ready.
    ///
    /// # Errors
    /// When a program is missing or does not become ready; the error ends with its log.
    pub async fn start(options: StackOptions) -> anyhow::Result<Self> {
        let (dir, temporary) = directory(options.dir.as_deref())?;
        let tokens = Tokens::random();
        config::write(&dir, &tokens, &options)?;
        let kind = options.kind.map_or_else(SandboxKind::chosen, Ok)?;
        let (cluster, sandbox_dir) = match kind {
            SandboxKind::Local => (None, dir.join(config::SANDBOX_DIR)),
            SandboxKind::Kubernetes => {
                let driver = binaries::program(options.driver.program())?;
                let cluster = PodCluster::start(driver).await?;
                cluster.keep(&options.secrets);
                let pods = cluster.double.pods_dir().to_owned();
                (Some(cluster), pods)
            }
        };
        let postgres = TestPg::start_new(Options {
            fsync: options.fsync,
        })?;
        let mut stack = Self {
            gateway: Process::new("bex-gateway", &[], &dir),
            replicas: Vec::new(),
            api: Process::new("bex-api", &["serve"], &dir),
            postgres,
            addresses: ports::pick()?,
            secrets: Secrets::default(),
            keys: Keys::random(),
            sandboxes: Sandboxes::new(kind, sandbox_dir),
            cluster,
            tokens,
            options,
            dir,
            stopped: false,
            _temporary: temporary,
        };
        migrate(&stack.postgres)?;
        let mut attempts = 1..PORT_ATTEMPTS;
        loop {
            match stack.boot().await {
                // somebody took a port between our look and the bind
                Err(error) if is_port_taken(&error) && attempts.next().is_some() => {
                    stack.move_away()?;
                }
                booted => return booted.map(|()| stack),
            }
        }
    }

    fn settings<'a>(&'a self, addresses: &'a Addresses) -> config::Settings<'a> {
        config::Settings {
            dir: &self.dir,
            keys: &self.keys,
            addresses,
            postgres: &self.postgres,
            options: &self.options,
            cluster: self.cluster.as_ref(),
        }
    }

    async fn boot(&mut self) -> anyhow::Result<()> {
        let settings = self.settings(&self.addresses);
        let (gateway, api) = (settings.gateway()?, settings.api()?);
        self.gateway.start_with(gateway)?;
        self.api.start_with(api)?;
        self.ready().await
    }

    /// To other ports, without a trace of the first ones in the logs.
    fn move_away(&mut self) -> anyhow::Result<()> {
        self.addresses = ports::pick()?;
        self.gateway.forget()?;
        self.api.forget()
    }

    /// Waits until both processes say that they are ready.
    ///
    /// # Errors
    /// When one ends or stays unready.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        self.gateway
            .ready(self.addresses.gateway_admin, READY)
            .await?;
        self.api.ready(self.addresses.api_admin, READY).await
    }

    /// Who may do everything everywhere.
    pub fn admin(&self) -> ApiClient {
        self.client(&self.tokens.admin)
    }

    /// Who may create and steer in [`WORKSPACE`].
    pub fn operator(&self) -> ApiClient {
        self.client(&self.tokens.operator)
    }

    /// Who may read in [`WORKSPACE`].
    pub fn viewer(&self) -> ApiClient {
        self.client(&self.tokens.viewer)
    }

    /// An operator of [`OTHER_WORKSPACE`].
    pub fn stranger(&self) -> ApiClient {
        self.client(&self.tokens.stranger)
    }

    fn client(&self, token: &str) -> ApiClient {
        ApiClient::new(self.addresses.api, token, self.secrets.clone())
    }

    /// The cluster of a stack whose sandboxes are pods.
    ///
    /// # Errors
    /// When they are not.
    pub fn cluster(&self) -> anyhow::Result<&PodCluster> {
        let cluster = self.cluster.as_ref();
        cluster.context("the stack's sandboxes are no pods")
    }

    /// The name by which the api knows a credential of [`StackOptions::secrets`].
    pub fn secret_ref(&self, name: &str) -> String {
        match self.sandboxes.kind() {
            SandboxKind::Local => name.to_owned(),
            SandboxKind::Kubernetes => cluster::secret_ref(name),
        }
    }

    /// SIGKILL to a session's drivers and all of their processes, as a machine's loss would; returns when that is to be seen.
    ///
    /// # Errors
    /// When their pods still run after a while.
    pub async fn kill_sandbox(&self, session: &SessionId) -> anyhow::Result<()> {
        self.sandboxes.kill9(session);
        match &self.cluster {
            Some(cluster) => cluster.none_runs(session).await,
            None => Ok(()),
        }
    }

    /// Where everything of this stack is kept.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where recordings must lie to be played.
    pub fn play_dir(&self) -> PathBuf {
        self.dir.join(config::PLAY_DIR)
    }

    /// Where the logs are.
    pub fn log_dir(&self) -> PathBuf {
        self.dir.join(process::LOG_DIR)
    }

    /// The superuser's URL of the database.
    pub fn database_url(&self) -> String {
        self.postgres.url(DATABASE)
    }

    /// Runs SQL as the superuser and gives what psql printed, fields separated by `|`.
    ///
    /// # Errors
    /// When a statement fails.
    pub fn sql(&self, sql: &str) -> anyhow::Result<String> {
        Ok(self.postgres.sql(DATABASE, sql)?)
    }

    /// The gateway's process id, while it runs.
    pub fn gateway_pid(&self) -> Option<u32> {
        self.gateway.pid()
    }

    /// The api's process id, while it runs.
    pub fn api_pid(&self) -> Option<u32> {
        self.api.pid()
    }

    /// SIGKILL to the gateway; returns once it is gone.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill9_gateway(&mut self) -> anyhow::Result<()> {
        self.gateway.kill9()
    }

    /// SIGKILL to the api; returns once it is gone.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill9_api(&mut self) -> anyhow::Result<()> {
        self.api.kill9()
    }

    /// Starts the gateway again on its ports, after it was killed or, gracefully, while it runs.
    ///
    /// # Errors
    /// When it does not end within its grace, or does not become ready.
    pub async fn restart_gateway(&mut self) -> anyhow::Result<()> {
        self.gateway.restart(GRACE).await?;
        self.gateway
            .ready(self.addresses.gateway_admin, READY)
            .await
    }

    /// The same with further environment, e.g. another key ring.
    ///
    /// # Errors
    /// As [`Stack::restart_gateway`].
    pub async fn restart_gateway_with(&mut self, name: &str, value: &str) -> anyhow::Result<()> {
        self.gateway.set(name, value);
        self.restart_gateway().await
    }

    /// Starts the api again on its ports, after it was killed or, gracefully, while it runs.
    ///
    /// # Errors
    /// When it does not end within its grace, or does not become ready.
    pub async fn restart_api(&mut self) -> anyhow::Result<()> {
        self.api.restart(GRACE).await?;
        self.api.ready(self.addresses.api_admin, READY).await
    }

    /// SIGKILL to PostgreSQL, as a machine's crash would.
    pub fn kill9_postgres(&mut self) {
        tokio::task::block_in_place(|| self.postgres.kill9());
    }

    /// Starts PostgreSQL again on the same files and port.
    ///
    /// # Errors
    /// When it does not become ready.
    pub fn start_postgres(&mut self) -> anyhow::Result<()> {
        Ok(tokio::task::block_in_place(|| self.postgres.start())?)
    }

    /// Runs the gateway once more beside the first, only until it gives up: for what must stop a start.
    ///
    /// # Errors
    /// When it cannot be run, or does not end.
    pub async fn failed_gateway_start(&mut self) -> anyhow::Result<(i32, String)> {
        self.gateway.restart(GRACE).await?;
        let gateway = &mut self.gateway;
        let code = eventually("the gateway gives up", READY, async || gateway.exit_code()).await?;
        Ok((code, self.gateway.log()?))
    }

    /// Ends everything in order, then inspects the logs.
    ///
    /// # Errors
    /// When a process does not end within its grace with code 0, or a log holds what it must not.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let ended = self.end().await;
        let checked = self.options.logs.check(&self.dir, &self.all_secrets());
        self.stopped = ended.is_ok() && checked.is_ok();
        ended.and(checked)
    }

    async fn end(&mut self) -> anyhow::Result<()> {
        self.api.terminate();
        self.gateway.terminate();
        self.replicas.iter().for_each(Process::terminate);
        let first = [&mut self.api, &mut self.gateway];
        for process in first.into_iter().chain(&mut self.replicas) {
            if let Some(code) = process.ended(GRACE).await? {
                ensure!(
                    code == 0,
                    "{} ended with {code} after SIGTERM",
                    process.name()
                );
            }
        }
        self.sandboxes.kill_all();
        Ok(())
    }

    fn all_secrets(&self) -> Vec<String> {
        let issued = self.secrets.lock();
        let mut all = issued
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone();
        all.extend(self.tokens.all().map(str::to_owned));
        all.extend(self.keys.all().map(str::to_owned));
        all
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let _ = self.api.kill9();
        let _ = self.gateway.kill9();
        self.sandboxes.kill_all();
        if !self.stopped && std::thread::panicking() {
            logs::print_tails(&self.dir);
        }
    }
}

/// An empty database with our tables and the logins of both programs.
fn migrate(postgres: &TestPg) -> anyhow::Result<()> {
    postgres.create_database(DATABASE, None)?;
    let url = ("BEX_DATABASE_DIRECT_URL".into(), postgres.url(DATABASE));
    process::run("bex-api", &["migrate"], &[url])?;
    for role in ["bex_api", "bex_gateway"] {
        let sql = format!("CREATE ROLE {role}_login LOGIN IN ROLE {role}");
        postgres.sql(DATABASE, &sql)?;
    }
    Ok(())
}

fn is_port_taken(error: &anyhow::Error) -> bool {
    error.to_string().contains("Address already in use")
}

fn directory(given: Option<&Path>) -> anyhow::Result<(PathBuf, Option<TempDir>)> {
    if let Some(dir) = given {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        return Ok((dir.canonicalize()?, None));
    }
    let temporary = tempfile::Builder::new().prefix("bex-stack-").tempdir()?;
    let dir = temporary.path().canonicalize()?;
    if std::env::var_os("BEX_KEEP_DIR").is_some() {
        return Ok((temporary.keep(), None));
    }
    Ok((dir, Some(temporary)))
}
