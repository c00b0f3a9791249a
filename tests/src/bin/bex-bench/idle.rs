//! A tick of a Completer over sessions that wait for their next turn: it looks for due ones in the real store, and at each sandbox in its
//! registry entry and its process.
//!
//! Each sandbox has a process of its own, a sleeping one in the driver's place: a look asks only whether the registered process lives, and 500
//! drivers would measure the machine's memory.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bex_api::completer::{CompleterDeps, idle};
use bex_api::config::Timings;
use bex_api::exec_client::ExecClient;
use bex_api::metrics::Metrics;
use bex_api::notices::Notices;
use bex_api::sandbox::LocalLifecycle;
use bex_proto::launch::{LocalSandbox, SANDBOX_FILE, namespace_of, pod_of};
use bex_proto::limits;
use bex_proto::ticket::KeyRing;
use bex_proto::{SessionId, launch::ProcessStat};

use crate::RUNS;
use bex_tests::bench::database::{Database, GENERATION, WORKSPACE};
use bex_tests::bench::gateway::EXEC_KEYS;
use bex_tests::bench::report::{Figure, median};

const SESSIONS: usize = 500;
const FLOOR: Duration = Duration::from_secs(2);

/// A process that lives; killed when dropped.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Sleeper {
    fn start() -> anyhow::Result<Self> {
        let child = Command::new("sleep")
            .arg("infinity")
            .env_clear()
            .stdin(Stdio::null())
            .spawn();
        Ok(Self(child.context("cannot start a process")?))
    }
}

pub async fn run(database: &Database) -> anyhow::Result<Vec<Figure>> {
    let root = tempfile::tempdir()?;
    let mut alive = Vec::new();
    for _ in 0..SESSIONS {
        let session = database.session(1).await?;
        let sleeper = Sleeper::start()?;
        register(root.path(), &session, sleeper.0.id())?;
        alive.push(sleeper);
    }
    database
        .sql
        .batch_execute(
            "UPDATE turns SET verdict = 'complete', settled_at = now();
             UPDATE sessions SET phase = 'completed';
             UPDATE sandboxes SET state = 'idle', idle_since = now();
             INSERT INTO leases (session_id) SELECT id FROM sessions",
        )
        .await?;
    // a statement of its own: it runs in no transaction
    database.sql.batch_execute("VACUUM ANALYZE").await?;
    let deps = deps(database, root.path())?;
    let mut ticks = Vec::new();
    for _ in 0..RUNS {
        let begun = Instant::now();
        let due = claim(&deps).await?;
        let looked = idle::look(&deps).await?;
        ticks.push(begun.elapsed().as_secs_f64());
        ensure!(due == 0, "{due} sessions are due that should wait");
        ensure!(
            looked.idle == SESSIONS && looked.lost == 0,
            "{looked:?} is not what is there"
        );
    }
    // and the look tells the dead from the living
    alive.truncate(SESSIONS - 1);
    let looked = idle::look(&deps).await?;
    ensure!(looked.lost == 1, "{looked:?} after one died");
    let tick = median(ticks);
    Ok(vec![Figure {
        name: "a Completer's tick over 500 idle local sessions",
        value: format!("{:.0} ms", tick * 1e3),
        beside: "a query for due ones, and a look at each sandbox's process".into(),
        floor: "≤ 2 s",
        holds: tick <= FLOOR.as_secs_f64(),
    }])
}

async fn claim(deps: &CompleterDeps) -> anyhow::Result<usize> {
    let limit = u32::try_from(limits::COMPLETER_PARALLEL)?;
    let leases = deps.db.claim_leases("bench", limit, limits::IDLE_GRACE);
    Ok(leases.await?.len())
}

fn deps(database: &Database, root: &Path) -> anyhow::Result<CompleterDeps> {
    // nobody listens there: an idle sandbox is not observed
    let nowhere = "http://127.0.0.1:9".parse()?;
    Ok(CompleterDeps {
        db: Arc::new(database.db.clone()),
        owner: "bench".into(),
        rpc: Arc::new(ExecClient::new(&nowhere, KeyRing::parse(EXEC_KEYS)?)),
        lifecycle: Arc::new(LocalLifecycle::new(root.into(), "/nowhere".into())),
        timings: Timings {
            completer_tick: limits::COMPLETER_TICK,
            idle_grace: limits::IDLE_GRACE,
            turn_deadline: limits::TURN_DEADLINE,
            status_unreadable: limits::STATUS_UNREADABLE,
        },
        notices: Notices::default(),
        metrics: Metrics::default().completer,
    })
}

/// As the local kind registers a sandbox that it made.
fn register(root: &Path, session: &SessionId, pid: u32) -> anyhow::Result<()> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let stat = ProcessStat::parse(&stat).context("the kernel's words are not understood")?;
    let sandbox = LocalSandbox {
        session: session.clone(),
        generation: GENERATION,
        namespace: namespace_of(&WORKSPACE.parse()?),
        pod: pod_of(session, GENERATION),
        pod_uid: "uid".into(),
        address: "127.0.0.1:9".parse()?,
        pid,
        pid_start: stat.start,
        legacy: false,
    };
    let dir = root.join(&sandbox.pod);
    std::fs::create_dir_all(&dir)?;
    std::fs::write(dir.join(SANDBOX_FILE), serde_json::to_vec(&sandbox)?)?;
    Ok(())
}
