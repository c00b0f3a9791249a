//! Sandboxes of the local kind: a directory below one root, a driver process that outlives this one, a port on 127.0.0.1.
//!
//! ```text
//!   <root>/<pod>/driver/launch.json ─▶ driver starts ─▶ driver/listening.json ─▶ sandbox.json   (made)
//!   <root>/<pod>  ─▶ TERM, KILL, seen dead ─▶ <root>/<pod>.gone ─▶ removed                     (deleted)
//! ```
//! A kill of this process at any arrow is survived: a driver is found again by the launch path in its arguments.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use bex_proto::Chain;
use bex_proto::ids::random_id;
use bex_proto::launch::{
    CONTAINER, DRIVER_DIR, Isolation, LAUNCH_FILE, LISTENING_FILE, Launch, Listening, LocalSandbox,
    ProcessStat, SANDBOX_FILE, TOKEN_SEED_VARIABLE, WORK_DIR, namespace_of, pod_of,
};
use bex_proto::{Generation, SessionId};
use nix::sys::signal::Signal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout_at};

use super::process;
use super::{
    CreateError, DeleteError, Deleted, Lifecycle, ListError, Look, Made, SandboxName, SandboxPlan,
    Secrets,
};

/// How long a driver may take until it listens.
const LISTEN_WAIT: Duration = Duration::from_secs(20);
/// TERM to KILL: the driver writes its turn-end in that time.
const TERM_WAIT: Duration = Duration::from_secs(2);
/// KILL to "still running".
const KILL_WAIT: Duration = Duration::from_secs(5);
/// How often a level is looked at: nothing tells of a file or of a process that is no child.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// So many looks in a row without a driver mean that it ended.
const ABSENT_LOOKS: u32 = 3;
/// A registry or listening file is small; more is not ours.
const FILE_BYTES: u64 = 64 * 1024;
const GONE_SUFFIX: &str = ".gone";
const DRIVER_STDERR: &str = "driver.stderr";

/// See the module's text.
#[derive(Debug, Clone)]
pub struct LocalLifecycle {
    root: PathBuf,
    driver: PathBuf,
}

struct Paths {
    dir: PathBuf,
    driver: PathBuf,
    launch: PathBuf,
    listening: PathBuf,
    registry: PathBuf,
}

impl LocalLifecycle {
    /// Sandboxes below `root`, run by the driver binary at `driver`. Both are absolute.
    pub fn new(root: PathBuf, driver: PathBuf) -> Self {
        Self { root, driver }
    }

    fn paths(&self, pod: &str) -> Paths {
        let dir = self.root.join(pod);
        let driver = dir.join(DRIVER_DIR);
        Paths {
            launch: driver.join(LAUNCH_FILE),
            listening: driver.join(LISTENING_FILE),
            registry: dir.join(SANDBOX_FILE),
            driver,
            dir,
        }
    }

    /// Starts the driver, or finds the one that lives. Idempotent.
    async fn start(&self, plan: &SandboxPlan, paths: &Paths) -> Result<Made, CreateError> {
        if let Some(known) = read_json::<LocalSandbox>(&paths.registry)
            .map_err(failed("reading the registry file"))?
            && process::alive(known.pid, known.pid_start)
                .map_err(failed("looking at the driver"))?
        {
            return Ok(made(&known));
        }
        let deadline = Instant::now() + LISTEN_WAIT;
        if drivers_of(&paths.launch)
            .map_err(failed("looking for a driver"))?
            .is_empty()
        {
            self.spawn(plan, paths)?;
        }
        let (listening, driver) = listening(paths, deadline).await?;
        let sandbox = LocalSandbox {
            session: plan.session.clone(),
            generation: plan.generation,
            namespace: namespace_of(&plan.workspace),
            pod: pod_of(&plan.session, plan.generation),
            pod_uid: random_id("uid"),
            address: listening.address,
            pid: driver.pid,
            pid_start: driver.start,
            legacy: plan.legacy.is_some(),
        };
        write_json(&paths.registry, &sandbox).map_err(failed("writing the registry file"))?;
        Ok(made(&sandbox))
    }

    fn spawn(&self, plan: &SandboxPlan, paths: &Paths) -> Result<(), CreateError> {
        let Secrets::Values(secrets) = &plan.secrets else {
            return Err(CreateError::Impossible("no cluster gives its secrets"));
        };
        let work = paths.dir.join(WORK_DIR);
        for dir in [&paths.driver, &work] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir)
                .map_err(failed("making the sandbox's directories"))?;
        }
        // a listening file of an earlier life must not be taken for this one's
        remove_file(&paths.listening).map_err(failed("removing an old listening file"))?;
        let launch = Launch {
            session: plan.session.clone(),
            workspace: plan.workspace.clone(),
            generation: plan.generation,
            key: plan.key.to_hex(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            dir: paths.driver.clone(),
            workdir: work.clone(),
            agent: plan.agent.clone(),
            secrets: secrets.clone(),
            legacy: plan.legacy.clone(),
            isolation: Isolation::None,
        };
        write_json(&paths.launch, &launch).map_err(failed("writing the launch file"))?;
        let stderr = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(paths.driver.join(DRIVER_STDERR))
            .map_err(failed("opening the driver's log"))?;
        // `setsid` becomes the driver: a session of its own, which no signal to this process's group reaches. Its
        // environment is built from nothing, so that no key of this process is inherited.
        let driver = tokio::process::Command::new("setsid")
            .arg(&self.driver)
            .arg("serve")
            .arg("--launch")
            .arg(&paths.launch)
            .env_clear()
            .envs(
                ["PATH", "HOME", "LANG", "RUST_LOG"]
                    .iter()
                    .filter_map(|n| Some((n, std::env::var_os(n)?))),
            )
            .env(TOKEN_SEED_VARIABLE, plan.token_seed.to_hex())
            .current_dir(&work)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .kill_on_drop(false)
            .spawn()
            .map_err(failed("starting the driver"))?;
        // dropped, it is reaped by the runtime when it ends; it is found again through the files it writes
        drop(driver);
        Ok(())
    }
}

#[async_trait]
impl Lifecycle for LocalLifecycle {
    fn kind(&self) -> &'static str {
        "local"
    }

    async fn create(&self, plan: &SandboxPlan) -> Result<Made, CreateError> {
        let pod = pod_of(&plan.session, plan.generation);
        let paths = self.paths(&pod);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&paths.dir)
            .map_err(failed("making the sandbox's directory"))?;
        let lock = File::create(paths.dir.join("create.lock"))
            .map_err(failed("opening the sandbox's lock"))?;
        let deadline = Instant::now() + LISTEN_WAIT;
        // two creators of one name: the second finds what the first made
        while let Err(e) = lock.try_lock() {
            match e {
                fs::TryLockError::WouldBlock if Instant::now() < deadline => {
                    sleep(LOOK_EVERY).await
                }
                fs::TryLockError::WouldBlock => return Err(CreateError::NotListening),
                fs::TryLockError::Error(e) => return Err(failed("locking the sandbox")(e)),
            }
        }
        self.start(plan, &paths).await
    }

    async fn look(&self, sandbox: &SandboxName) -> Look {
        let paths = self.paths(&sandbox.pod);
        let seen = match read_json::<LocalSandbox>(&paths.registry) {
            Ok(Some(known))
                if sandbox
                    .pod_uid
                    .as_ref()
                    .is_some_and(|uid| *uid != known.pod_uid) =>
            {
                Ok(false)
            }
            Ok(Some(known)) => process::alive(known.pid, known.pid_start),
            Ok(None) => drivers_of(&paths.launch).map(|drivers| !drivers.is_empty()),
            Err(e) => Err(e),
        };
        match seen {
            Ok(true) => Look::Running,
            Ok(false) => Look::Gone,
            Err(e) => {
                tracing::warn!(session = %sandbox.session, generation = %sandbox.generation, error = %Chain(&e), "the sandbox can not be looked at");
                Look::Unknown
            }
        }
    }

    async fn delete(&self, sandbox: &SandboxName) -> Result<Deleted, DeleteError> {
        let paths = self.paths(&sandbox.pod);
        let refused = |what| move |source| DeleteError::Failed { what, source };
        let looking = "looking for the sandbox's processes";
        for (signal, wait) in [(Signal::SIGTERM, TERM_WAIT), (Signal::SIGKILL, KILL_WAIT)] {
            let processes = processes_of(&paths).map_err(refused(looking))?;
            for process in &processes {
                process::signal(process, signal).map_err(refused("signalling the sandbox"))?;
            }
            let deadline = Instant::now() + wait;
            while any_lives(&processes).map_err(refused(looking))? && Instant::now() < deadline {
                sleep(LOOK_EVERY).await;
            }
        }
        // looked for again: one may have been started meanwhile
        if !processes_of(&paths).map_err(refused(looking))?.is_empty() {
            return Err(DeleteError::StillRunning);
        }
        // renamed first: a half-removed directory never looks like a sandbox
        let gone = self.root.join(format!("{}{GONE_SUFFIX}", sandbox.pod));
        absent_is_fine(fs::rename(&paths.dir, &gone))
            .map_err(refused("renaming the sandbox's directory"))?;
        absent_is_fine(fs::remove_dir_all(&gone))
            .map_err(refused("removing the sandbox's directory"))?;
        Ok(Deleted)
    }

    async fn list(&self) -> Result<Vec<SandboxName>, ListError> {
        let entries = match fs::read_dir(&self.root) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(ListError)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(ListError)?.file_name();
            let pod = name
                .to_str()
                .map(|name| name.strip_suffix(GONE_SUFFIX).unwrap_or(name));
            let Some((session, generation)) = pod.and_then(parse_pod) else {
                continue;
            };
            let pod = pod_of(&session, generation);
            let known = read_json::<LocalSandbox>(&self.paths(&pod).registry).unwrap_or_default();
            found.push(SandboxName {
                session,
                generation,
                namespace: known
                    .as_ref()
                    .map(|k| k.namespace.clone())
                    .unwrap_or_default(),
                pod,
                pod_uid: known.map(|k| k.pod_uid),
            });
        }
        Ok(found)
    }
}

fn made(sandbox: &LocalSandbox) -> Made {
    Made {
        namespace: sandbox.namespace.clone(),
        pod: sandbox.pod.clone(),
        pod_uid: sandbox.pod_uid.clone(),
        container: CONTAINER.to_owned(),
    }
}

fn parse_pod(pod: &str) -> Option<(SessionId, Generation)> {
    let (session, generation) = pod.rsplit_once("-g")?;
    Some((session.parse().ok()?, Generation(generation.parse().ok()?)))
}

/// Waits for the listening file of a driver that lives and was started from this launch file.
async fn listening(
    paths: &Paths,
    deadline: Instant,
) -> Result<(Listening, ProcessStat), CreateError> {
    let mut absent = 0;
    loop {
        let listening = read_json::<Listening>(&paths.listening)
            .map_err(failed("reading the listening file"))?;
        if let Some(listening) = listening
            && let Some(driver) =
                process::read(listening.pid).map_err(failed("looking at the driver"))?
            && !driver.zombie
            && process::has_argument(driver.pid, &paths.launch)
                .map_err(failed("looking at the driver"))?
        {
            return Ok((listening, driver));
        }
        let drivers = drivers_of(&paths.launch).map_err(failed("looking for the driver"))?;
        // a process shows no arguments for a moment while it becomes another program
        absent = if drivers.is_empty() { absent + 1 } else { 0 };
        if absent == ABSENT_LOOKS {
            return Err(CreateError::Ended);
        }
        if timeout_at(deadline, sleep(LOOK_EVERY)).await.is_err() {
            return Err(CreateError::NotListening);
        }
    }
}

fn any_lives(processes: &[ProcessStat]) -> io::Result<bool> {
    for process in processes {
        if process::alive(process.pid, process.start)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn drivers_of(launch: &Path) -> io::Result<Vec<ProcessStat>> {
    process::all(|p| process::has_argument(p.pid, launch))
}

/// The drivers of a sandbox and every process of their sessions.
fn processes_of(paths: &Paths) -> io::Result<Vec<ProcessStat>> {
    let mut sessions: Vec<u32> = drivers_of(&paths.launch)?
        .iter()
        .map(|p| p.session)
        .collect();
    if let Some(known) = read_json::<LocalSandbox>(&paths.registry)?
        && (process::alive(known.pid, known.pid_start)? || process::read(known.pid)?.is_none())
    {
        // also when its leader is gone: a session keeps its number while one of its processes lives
        sessions.push(known.pid);
    }
    let own = process::read(std::process::id())?.map(|p| p.session);
    process::all(|p| {
        let of_its_session = Some(p.session) != own && sessions.contains(&p.session);
        Ok(of_its_session || process::has_argument(p.pid, &paths.launch)?)
    })
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> CreateError {
    move |source| CreateError::Failed { what, source }
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn remove_file(path: &Path) -> io::Result<()> {
    absent_is_fine(fs::remove_file(path))
}

/// `None` when the file is not there; a file that does not parse is an error, never an absence.
fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let file = match File::open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut text = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, FILE_BYTES), &mut text)?;
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|e| io::Error::new(ErrorKind::InvalidData, e))
}

/// Writes a file of mode 0600 under another name and renames it: readers see all of it or nothing.
fn write_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let text = serde_json::to_vec(value).map_err(io::Error::other)?;
    let temporary = path.with_extension("tmp");
    remove_file(&temporary)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}
