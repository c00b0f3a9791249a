//! Several gateways and apis on one store, each behind links that can fail: what chaos is done to.
//!
//! Every member reaches PostgreSQL through a proxy of its own, every api the gateways' exec listeners through another one that
//! goes to any gateway that listens.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use bex_testpg::{Options, TestPg};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::process::{self, Process};
use super::{
    Addresses, DATABASE, GRACE, Keys, LogRules, PORT_ATTEMPTS, READY, SandboxKind, Sandboxes,
    StackOptions, Tokens, config, directory, is_port_taken, ports,
};
use crate::client::{ApiClient, Secrets};
use crate::fault_proxy::{FaultProxy, Network};

/// How large a fleet is, and what its members are told.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// Gateways; one at least.
    pub gateways: usize,
    /// Apis; one at least.
    pub apis: usize,
    /// As for a stack; sandboxes are of the local kind.
    pub stack: StackOptions,
}

/// What a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// bex-gateway.
    Gateway,
    /// bex-api.
    Api,
}

/// What a member reaches over a network that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// PostgreSQL.
    Database,
    /// The gateways' exec listeners; of an api.
    Exec,
}

/// One process of the fleet.
pub struct Member {
    /// What it is.
    pub role: Role,
    /// Its name, also of its log.
    pub name: String,
    process: Process,
    admin: SocketAddr,
    database: FaultProxy,
    exec: Option<FaultProxy>,
}

/// A running fleet. Dropped, every process of it is killed, sandboxes included.
pub struct Fleet {
    // before the database, whose clients they are
    members: Vec<Member>,
    postgres: TestPg,
    /// Attach listeners.
    pub attach: Vec<SocketAddr>,
    /// The apis, for their operator.
    pub apis: Vec<ApiClient>,
    /// What is to be seen of the sandboxes.
    pub sandboxes: Sandboxes,
    keys: Keys,
    tokens: Tokens,
    dir: PathBuf,
    temporary: Option<TempDir>,
}

impl Fleet {
    /// Starts everything and waits until it is ready.
    ///
    /// # Errors
    /// When a program is missing or does not become ready; the error ends with its log.
    pub async fn start(options: &FleetOptions) -> anyhow::Result<Self> {
        let (dir, temporary) = directory(options.stack.dir.as_deref())?;
        let tokens = Tokens::random();
        config::write(&dir, &tokens, &options.stack)?;
        let postgres = TestPg::start_new(Options {
            fsync: options.stack.fsync,
        })?;
        let mut fleet = Self {
            members: Vec::new(),
            postgres,
            attach: Vec::new(),
            apis: Vec::new(),
            sandboxes: Sandboxes::new(SandboxKind::Local, dir.join(config::SANDBOX_DIR)),
            keys: Keys::random(),
            tokens,
            dir,
            temporary,
        };
        super::migrate(&fleet.postgres)?;
        let mut exec = Vec::new();
        for n in 1..=options.gateways {
            let at = fleet.add(Role::Gateway, n, &[], &options.stack).await?;
            fleet.attach.push(at.attach);
            exec.push(at.exec);
        }
        for n in 1..=options.apis {
            let at = fleet.add(Role::Api, n, &exec, &options.stack).await?;
            let client = ApiClient::new(at.api, &fleet.tokens.operator, Secrets::default());
            fleet.apis.push(client);
        }
        Ok(fleet)
    }

    async fn add(
        &mut self,
        role: Role,
        n: usize,
        exec: &[SocketAddr],
        options: &StackOptions,
    ) -> anyhow::Result<Addresses> {
        let server = SocketAddr::from(([127, 0, 0, 1], self.postgres.port()));
        let database = FaultProxy::start(vec![server]).await?;
        let exec = match role {
            Role::Gateway => None,
            Role::Api => Some(FaultProxy::start(exec.to_vec()).await?),
        };
        let (program, arguments): (_, &[&str]) = match role {
            Role::Gateway => ("bex-gateway", &[]),
            Role::Api => ("bex-api", &["serve"]),
        };
        let name = format!("{}-{n}", role.word());
        let mut process = Process::logging_as(&name, program, arguments, &self.dir);
        let mut attempts = 1..PORT_ATTEMPTS;
        loop {
            let mut addresses = ports::pick()?;
            if let Some(exec) = &exec {
                addresses.exec = exec.address;
            }
            let settings = config::Settings {
                dir: &self.dir,
                keys: &self.keys,
                addresses: &addresses,
                postgres: &self.postgres,
                options,
                cluster: None,
            };
            let (mut env, admin) = match role {
                Role::Gateway => (settings.gateway()?, addresses.gateway_admin),
                Role::Api => (settings.api()?, addresses.api_admin),
            };
            let (direct, proxied) = (format!("@{server}/"), format!("@{}/", database.address));
            for (_, value) in &mut env {
                *value = value.replace(&direct, &proxied);
            }
            process.start_with(env)?;
            match process.ready(admin, READY).await {
                Err(error) if is_port_taken(&error) && attempts.next().is_some() => {
                    process.forget()?;
                }
                ready => {
                    ready?;
                    self.members.push(Member {
                        role,
                        name,
                        process,
                        admin,
                        database,
                        exec,
                    });
                    return Ok(addresses);
                }
            }
        }
    }

    /// Gateways first, then apis.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The same, to do something to them.
    pub fn members_mut(&mut self) -> &mut [Member] {
        &mut self.members
    }

    /// Waits until every member is ready.
    ///
    /// # Errors
    /// When one ends or stays unready.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        for member in &mut self.members {
            member.process.ready(member.admin, READY).await?;
        }
        Ok(())
    }

    /// SIGKILL to PostgreSQL, as a machine's crash would.
    pub fn kill9_postgres(&mut self) {
        tokio::task::block_in_place(|| self.postgres.kill9());
    }

    /// A clean end of PostgreSQL, with a checkpoint.
    pub fn shut_down_postgres(&mut self) {
        tokio::task::block_in_place(|| self.postgres.shut_down());
    }

    /// Starts PostgreSQL again on the same files and port.
    ///
    /// # Errors
    /// When it does not become ready.
    pub fn start_postgres(&mut self) -> anyhow::Result<()> {
        Ok(tokio::task::block_in_place(|| self.postgres.start())?)
    }

    /// Whether PostgreSQL runs.
    pub fn postgres_runs(&self) -> bool {
        self.postgres
            .pid()
            .is_some_and(|pid| u32::try_from(pid).is_ok_and(super::pid_lives))
    }

    /// Runs SQL as the superuser, past every proxy, and gives what psql printed.
    ///
    /// # Errors
    /// When a statement fails.
    pub fn sql(&self, sql: &str) -> anyhow::Result<String> {
        let run = || self.postgres.sql(DATABASE, sql);
        Ok(tokio::task::block_in_place(run)?)
    }

    /// Where everything of this fleet is kept.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the logs are.
    pub fn log_dir(&self) -> PathBuf {
        self.dir.join(process::LOG_DIR)
    }

    /// Keeps the directory when the fleet ends.
    pub fn keep(&mut self) -> &Path {
        if let Some(temporary) = self.temporary.take() {
            let _ = temporary.keep();
        }
        &self.dir
    }

    /// Ends every member in order.
    ///
    /// # Errors
    /// When one does not end within its grace with code 0.
    pub async fn end(&mut self) -> anyhow::Result<()> {
        for member in &self.members {
            member.process.terminate();
        }
        for member in &mut self.members {
            if let Some(code) = member.process.ended(GRACE).await? {
                ensure!(code == 0, "{} ended with {code} after SIGTERM", member.name);
            }
        }
        Ok(())
    }

    /// Inspects the members' logs.
    ///
    /// # Errors
    /// What they hold that they must not.
    pub fn check_logs(&self, rules: &LogRules) -> anyhow::Result<()> {
        let secrets: Vec<String> = self
            .tokens
            .all()
            .chain(self.keys.all())
            .map(str::to_owned)
            .collect();
        rules.check(&self.dir, &secrets)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for member in &mut self.members {
            // one that is stopped takes SIGKILL too
            let _ = member.process.kill9();
        }
        self.sandboxes.kill_all();
    }
}

impl Member {
    /// Whether it was started and has not ended, as far as is known.
    pub fn runs(&self) -> bool {
        self.process.pid().is_some()
    }

    /// Its exit code, once, when it ended; -1 for a signal.
    pub fn exit_code(&mut self) -> Option<i32> {
        self.process.exit_code()
    }

    /// SIGKILL; returns once it is gone.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill9(&mut self) -> anyhow::Result<()> {
        self.process.kill9()
    }

    /// Starts it again on its ports; it becomes ready by and by.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&mut self) -> anyhow::Result<()> {
        self.process.start()
    }

    /// Nothing of it goes on until [`Member::go_on`].
    pub fn pause(&self) {
        self.process.signal(Signal::SIGSTOP);
    }

    /// It goes on, and does not know that time has passed.
    pub fn go_on(&self) {
        self.process.signal(Signal::SIGCONT);
    }

    /// Whether it has such a link.
    pub fn has(&self, link: Link) -> bool {
        link == Link::Database || self.exec.is_some()
    }

    /// Changes what one of its links does; one that it has not got is let be.
    pub fn set(&self, link: Link, network: Network) {
        match link {
            Link::Database => self.database.set(network),
            Link::Exec => {
                if let Some(exec) = &self.exec {
                    exec.set(network);
                }
            }
        }
    }
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Api => "api",
        }
    }
}
