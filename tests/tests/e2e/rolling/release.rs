//! The programs of one release, run as the stack runs them, on a database and behind services that both releases share.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use bex_tests::client::{ApiClient, Secrets};
use bex_tests::{Stack, eventually};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::service::Service;

const DATABASE: &str = "rolling";
/// A cold start on a busy machine.
const READY: Duration = Duration::from_secs(60);
/// What the contract gives a process to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(25);
/// A pod's preStop: who was given a connection just before its removal has sent its request by then.
const PRE_STOP: Duration = Duration::from_secs(1);

type Env = Vec<(String, String)>;

/// Everything that the releases share.
pub struct World {
    /// The services of the api, of the attach and of the exec listener.
    pub api: Service,
    pub attach: Service,
    pub exec: Service,
    api_env: Env,
    gateway_env: Env,
    database: String,
    logs: PathBuf,
}

/// A running program.
struct Member {
    name: String,
    child: Child,
    admin: SocketAddr,
}

/// One release's api and gateway.
pub struct Release {
    api: Member,
    gateway: Member,
    rest: SocketAddr,
    attach: SocketAddr,
    exec: SocketAddr,
}

impl World {
    /// A stack's place without its processes: they are ended, what they were told is kept, and a database is made beside theirs.
    pub async fn take_over(stack: &mut Stack) -> anyhow::Result<Self> {
        let api_env = environment(stack.api_pid())?;
        let gateway_env = environment(stack.gateway_pid())?;
        stack.kill9_api()?;
        stack.kill9_gateway()?;
        stack.sql(&format!("CREATE DATABASE {DATABASE}"))?;
        Ok(Self {
            api: Service::start().await?,
            attach: Service::start().await?,
            exec: Service::start().await?,
            api_env: elsewhere(api_env),
            gateway_env: elsewhere(gateway_env),
            database: stack
                .database_url()
                .replace("/bex?", &format!("/{DATABASE}?")),
            logs: stack.log_dir(),
        })
    }

    /// Who may create and steer, at whichever api is ready.
    pub fn operator(&self, stack: &Stack) -> ApiClient {
        ApiClient::new(self.api.address, &stack.tokens.operator, Secrets::default())
    }

    /// Brings the schema to a release's.
    pub fn migrate(&self, bin_dir: &Path) -> anyhow::Result<()> {
        let output = Command::new(bin_dir.join("bex-api"))
            .arg("migrate")
            .env_clear()
            .env("BEX_DATABASE_DIRECT_URL", &self.database)
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the migration failed: {said}");
        Ok(())
    }

    /// Starts a release's gateway and api, and lets clients meet them when they are ready.
    pub async fn start(&self, name: &str, bin_dir: &Path) -> anyhow::Result<Release> {
        let (rest, attach, exec) = (free()?, free()?, free()?);
        let at = |name: &str, value: String| (name.to_owned(), value);
        let driver = bin_dir.join("bex-driver").display().to_string();
        let mut env = self.gateway_env.clone();
        env.extend([
            at("BEX_ATTACH_LISTEN", attach.to_string()),
            at("BEX_EXEC_LISTEN", exec.to_string()),
            at("BEX_DRIVER_BIN", driver.clone()),
        ]);
        let mut gateway = self.run(name, "bex-gateway", &[], bin_dir, env)?;
        gateway.ready().await?;
        self.exec.add(exec).await;
        self.attach.add(attach).await;
        let mut env = self.api_env.clone();
        env.extend([
            at("BEX_API_LISTEN", rest.to_string()),
            at("BEX_EXEC_URL", format!("http://{}", self.exec.address)),
            at(
                "BEX_ATTACH_PUBLIC_URL",
                format!("http://{}", self.attach.address),
            ),
            at("BEX_DRIVER_BIN", driver),
        ]);
        let mut api = self.run(name, "bex-api", &["serve"], bin_dir, env)?;
        api.ready().await?;
        self.api.add(rest).await;
        Ok(Release {
            api,
            gateway,
            rest,
            attach,
            exec,
        })
    }

    /// Ends a release as a cluster does: no new connections, a moment, SIGTERM.
    pub async fn end(&self, mut release: Release) -> anyhow::Result<()> {
        self.api.remove(release.rest).await;
        self.attach.remove(release.attach).await;
        self.exec.remove(release.exec).await;
        tokio::time::sleep(PRE_STOP).await;
        release.api.terminate()?;
        release.gateway.terminate()?;
        release.api.ended().await?;
        release.gateway.ended().await
    }

    fn run(
        &self,
        release: &str,
        program: &str,
        args: &[&str],
        bin_dir: &Path,
        mut env: Env,
    ) -> anyhow::Result<Member> {
        let admin = free()?;
        env.push(("BEX_ADMIN_LISTEN".to_owned(), admin.to_string()));
        let name = format!("{program}-{release}");
        let log = std::fs::File::create(self.logs.join(format!("{name}.log")))?;
        let child = Command::new(bin_dir.join(program))
            .args(args)
            .env_clear()
            .envs(env)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Member { name, child, admin })
    }
}

impl Release {
    /// Open streams of its gateway.
    pub async fn streams(&self) -> Option<u32> {
        let metrics = self.gateway.get("/metrics").await?;
        let mut lines = metrics.lines();
        lines.find_map(|line| line.strip_prefix("bex_gateway_streams ")?.parse().ok())
    }
}

impl Member {
    async fn ready(&mut self) -> anyhow::Result<()> {
        let what = format!("{} is ready", self.name);
        eventually(&what, READY, async || self.get("/readyz").await.map(drop)).await
    }

    /// What its admin listener says, when it says yes.
    async fn get(&self, path: &str) -> Option<String> {
        let request = Request::get(path).body(Full::<Bytes>::default()).ok()?;
        let answer = bex_tests::client::http::fetch(self.admin, request).await;
        let answer = answer.ok().filter(|a| a.status().is_success())?;
        Some(String::from_utf8_lossy(answer.body()).into_owned())
    }

    fn terminate(&self) -> anyhow::Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?);
        Ok(kill(pid, Signal::SIGTERM)?)
    }

    async fn ended(&mut self) -> anyhow::Result<()> {
        let what = format!("{} ends", self.name);
        let status = eventually(&what, GRACE, async || self.child.try_wait().ok()?).await?;
        ensure!(status.success(), "{} ended with {status}", self.name);
        Ok(())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn environment(pid: Option<u32>) -> anyhow::Result<Env> {
    let pid = pid.context("the process runs")?;
    let text = std::fs::read_to_string(format!("/proc/{pid}/environ"))?;
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    Ok(pairs.map(|(n, v)| (n.to_owned(), v.to_owned())).collect())
}

/// The same on the shared database.
fn elsewhere(env: Env) -> Env {
    let moved = |(name, value): (String, String)| {
        let value = match name.ends_with("DATABASE_URL") {
            true => value.replace("/bex?", &format!("/{DATABASE}?")),
            false => value,
        };
        (name, value)
    };
    env.into_iter().map(moved).collect()
}

fn free() -> anyhow::Result<SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
